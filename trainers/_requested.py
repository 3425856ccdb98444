"""Choose the metrics that each round reports.

Other metrics are measured only for the finished model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sweeps import trial
from sweeps.core.metrics import find
from sweeps.trainers import require_metric, require_task
from sweeps.trainers._metrics import SPLITS, is_computed, measure

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class RequestedMetrics:
    """The metrics of a trial whose framework measures metrics itself.

    Metrics have full names, such as `valid-logloss`.

    Attributes:
        names: Metrics of objectives and constraints. The first metric decides the best round.
        reported: Metrics that each round reports: `names`, and the metrics of `params.eval_metric`
            on valid.
        final: Metrics that are measured for the finished model.
        framework_names: For each metric that the framework measures, the framework's name without
            the split, such as `binary_logloss`. The other metrics are computed from predictions.
    """

    names: tuple[str, ...]
    reported: tuple[str, ...]
    final: tuple[str, ...]
    framework_names: Mapping[str, str]

    @classmethod
    def of(
        cls,
        config: Mapping[str, Any],
        cur: trial.Current,
        usual: Mapping[str, Sequence[str]],
        translate: Callable[[str, str], str | None],
    ) -> RequestedMetrics:
        """Return the metrics that a trial's `params`, objectives and constraints name.

        Args:
            config: The trial's `params`.
            cur: The trial.
            usual: For each task, the trainer's usual metrics without a split, such as `logloss`.
            translate: Function of a split and of a metric without a split. It returns the
                framework's name of the metric; None if the framework does not have the metric.

        Raises:
            ValueError: The data has no label, or neither the framework nor sweeps has a metric.
        """
        task = require_task(cur.task)
        own = config.get("eval_metric") or []
        own = [own] if isinstance(own, str) else list(own)
        metrics = own or usual[task]
        # If all objectives are costs, the trainer's first metric decides the best round. This
        # metric is minimized.
        names = _unique([*([cur.metric] if cur.metric else []), *cur.asked]) or (
            f"valid-{metrics[0]}",
        )
        reported = _unique([*names, *(f"valid-{metric}" for metric in own)])
        final = _unique(
            f"{split}-{metric}"
            for metric in (*metrics, *(name.partition("-")[2] for name in names))
            for split in SPLITS
        )
        framework_names = {
            name: found
            for name in _unique([*reported, *final])
            if (found := _translate(name, translate))
        }
        known = [f"{split}-{metric}" for metric in usual[task] for split in SPLITS]
        for name in reported:
            if name not in framework_names and not is_computed(name, task):
                require_metric(name, known)
        return cls(names, reported, final, framework_names)

    def with_computed_train(self, task: str) -> RequestedMetrics:
        """Return the same metrics, but compute those of train from predictions if sweeps has them.

        Use this method if the rows have weights, because the framework's metrics of train would use
        the weights.
        """
        names = {
            name: framework
            for name, framework in self.framework_names.items()
            if name.startswith("valid-") or find(name.partition("-")[2], task) is None
        }
        return replace(self, framework_names=names)

    @property
    def lead(self) -> str:
        """Metric that decides the best round."""
        return self.names[0]

    def framework_metrics(self, names: Iterable[str]) -> list[str]:
        """Return the framework's names of those metrics that the framework measures.

        The names have no split and no duplicates.
        """
        return list(
            _unique(self.framework_names[name] for name in names if name in self.framework_names)
        )

    @property
    def splits(self) -> list[str]:
        """Splits on which the framework measures metrics in each round."""
        return [
            split
            for split in SPLITS
            if any(name.startswith(split) for name in self.reported if name in self.framework_names)
        ]

    @property
    def computed(self) -> list[str]:
        """Metrics that are computed from predictions in each round.

        The reason: the framework does not have them.
        """
        return [name for name in self.reported if name not in self.framework_names]

    def measure_final(
        self,
        task: str,
        reported: Mapping[str, float],
        predict: Callable[[str], tuple[np.ndarray, np.ndarray]],
    ) -> dict[str, float]:
        """Measure the finished model with those of the metrics `final` that sweeps has.

        Args:
            task: The trial's task.
            reported: Metrics of the last round, which are not measured again.
            predict: Function of a split. It returns the labels and the model's predictions.
        """
        wanted = [
            name
            for name in self.final
            if name not in reported and find(name.partition("-")[2], task) is not None
        ]
        found: dict[str, float] = {}
        for split in SPLITS:
            if any(name.startswith(split) for name in wanted):
                found |= measure(task, split, *predict(split), names=wanted)
        return found

    def select(self, measured: Mapping[str, float]) -> dict[str, float]:
        """Return those of a round's measured metrics that the trial reports.

        Raises:
            ValueError: A metric is not measured, because the framework calls it by another name.
        """
        for name in self.reported:
            require_metric(name, measured)
        return {name: measured[name] for name in self.reported}


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _translate(name: str, translate: Callable[[str, str], str | None]) -> str | None:
    """Return the framework's name of a metric.

    Return None if the name does not begin with a split, or if the framework lacks the metric.
    """
    split, _, metric = name.partition("-")
    return translate(split, metric) if split in SPLITS and metric else None
