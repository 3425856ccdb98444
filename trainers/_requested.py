"""Choose the metrics that each round reports.

Other metrics are measured only for the finished model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from sweeps import trial
from sweeps.core.metrics import find

from . import Params, require_metric, require_task
from ._metrics import SPLITS, is_computed, measure, requested_names

if TYPE_CHECKING:
    import numpy as np


class RequestedMetrics:
    """The metrics of a trial whose framework measures metrics itself.

    Metrics have full names, such as `valid-logloss`.

    Args:
        config: The trial's `params`.
        cur: The trial.
        usual: For each task, the trainer's usual metrics without a split, such as `logloss`.
        translate: Function of a split and of a metric without a split. It returns the framework's
            name of the metric; None if the framework does not have the metric.

    Attributes:
        lead: Metric that decides the best round.
        reported: Metrics that each round reports: those of objectives and constraints, and the
            metrics of `params.eval_metric` on valid.
        final: Metrics that are measured for the finished model.
        framework_names: For each metric that the framework measures, the framework's name without
            the split, such as `binary_logloss`. The other metrics are computed from predictions.

    Raises:
        ValueError: The data has no label, or neither the framework nor sweeps has a metric.
    """

    def __init__(
        self,
        config: Params,
        cur: trial.Current,
        usual: Mapping[str, Sequence[str]],
        translate: Callable[[str, str], str | None],
    ):
        self.task = require_task(cur.task)
        eval_metrics = config.get("eval_metric") or []
        eval_metrics = [eval_metrics] if isinstance(eval_metrics, str) else list(eval_metrics)
        metrics = eval_metrics or usual[self.task]
        names = requested_names(cur, [f"valid-{metrics[0]}"])
        self.lead = names[0]
        self.reported = _unique([*names, *(f"valid-{metric}" for metric in eval_metrics)])
        all_metrics = [*metrics, *(name.partition("-")[2] for name in names)]
        self.final = _unique(f"{split}-{metric}" for metric in all_metrics for split in SPLITS)
        self.framework_names: dict[str, str] = {}
        for name in (*self.reported, *self.final):
            split, _, metric = name.partition("-")
            framework_name = translate(split, metric) if split in SPLITS else None
            if framework_name:
                self.framework_names[name] = framework_name
        known = [f"{split}-{metric}" for metric in usual[self.task] for split in SPLITS]
        for name in self.reported:
            if name not in self.framework_names and not is_computed(name, self.task):
                require_metric(name, known)

    def compute_train(self) -> None:
        """Compute the metrics of train from predictions, as far as sweeps has them.

        Call this method if the rows have weights, because the framework's metrics of train would
        use the weights.
        """
        for name in list(self.framework_names):
            split, _, metric = name.partition("-")
            if split == "train" and find(metric, self.task) is not None:
                del self.framework_names[name]

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
        measured = [name for name in self.reported if name in self.framework_names]
        return [split for split in SPLITS if any(name.startswith(split) for name in measured)]

    @property
    def computed(self) -> list[str]:
        """Metrics that are computed from predictions in each round.

        The framework does not have these metrics.
        """
        return [name for name in self.reported if name not in self.framework_names]

    def measure_final(
        self,
        reported: Mapping[str, float],
        predict: Callable[[str], tuple[np.ndarray, np.ndarray]],
    ) -> dict[str, float]:
        """Measure the finished model with those of the metrics `final` that sweeps has.

        Args:
            reported: Metrics of the last round, which are not measured again.
            predict: Function of a split. It returns the labels and the model's predictions.
        """
        wanted = [
            name
            for name in self.final
            if name not in reported and find(name.partition("-")[2], self.task) is not None
        ]
        metrics: dict[str, float] = {}
        for split in SPLITS:
            if any(name.startswith(split) for name in wanted):
                metrics |= measure(self.task, split, *predict(split), names=wanted)
        return metrics

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
