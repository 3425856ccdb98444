"""Choose the metrics that each round reports, and the metrics that are measured only for the finished model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sweeps import trial
from sweeps.core.metrics import find
from sweeps.trainers import reports_all, require_metric, require_task
from sweeps.trainers._metrics import is_computed

SPLITS = ("valid", "train")


@dataclass(frozen=True)
class RequestedMetrics:
    """The metrics of a trial whose framework measures metrics itself.

    Metrics have full names, such as `valid-logloss`.

    Attributes:
        names: Metrics of objectives and constraints. The first metric decides the best round.
        reported: Metrics that each round reports: `names`, and the metrics of `params.eval_metric`
            on valid. With `params.report: all`, a round also reports the usual metrics on both
            splits.
        final: Metrics that are measured for the finished model.
        framework_names: For each metric that the framework measures, the framework's name without
            the split, such as `binary_logloss`. The other metrics are computed from predictions.
        own_metrics: True if `params.eval_metric` is set.
        report_all: True with `params.report: all`.
    """

    names: tuple[str, ...]
    reported: tuple[str, ...]
    final: tuple[str, ...]
    framework_names: Mapping[str, str]
    own_metrics: bool
    report_all: bool

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
            ValueError: The data has no label, neither the framework nor sweeps has a metric, or
                `params.report` has an unknown value.
        """
        task, own = require_task(cur.task), config.get("eval_metric") or []
        own = [own] if isinstance(own, str) else list(own)
        metrics = own or usual[task]
        # If all objectives are costs, the trainer's first metric decides the best round. This
        # metric is minimized.
        names = _unique([*([cur.metric] if cur.metric else []), *cur.asked]) or (
            f"valid-{metrics[0]}",
        )
        every = [f"{split}-{metric}" for metric in metrics for split in SPLITS]
        on_valid = [f"valid-{metric}" for metric in own]
        report_all = reports_all(config)
        reported = _unique([*names, *(every if report_all else on_valid)])
        both = [f"{split}-{name.partition('-')[2]}" for name in names for split in SPLITS]
        final = () if report_all else _unique([*every, *both])
        framework_names = {
            name: found
            for name in _unique([*reported, *final])
            if (found := _translate(name, translate))
        }
        for name in reported:
            if name not in framework_names and not is_computed(name, task) and name not in every:
                require_metric(
                    name,
                    every,
                    "objective.metric"
                    if name == cur.metric
                    else "a metric of objective and constraints",
                )
        for name in on_valid:
            if name not in framework_names and not is_computed(name, task):
                require_metric(
                    name,
                    [f"valid-{metric}" for metric in usual[task]],
                    "a metric of params.eval_metric",
                )
        return cls(names, reported, final, framework_names, bool(own), report_all)

    def with_computed_train(self, task: str) -> RequestedMetrics:
        """Return the same metrics, but those of train are computed from predictions if sweeps has them.

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
        """Return the framework's names of those metrics that the framework measures, without a split and without duplicates."""
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
        """Metrics that are computed from predictions in each round, because the framework does not have them."""
        return [name for name in self.reported if name not in self.framework_names]

    def select(self, measured: Mapping[str, float]) -> dict[str, float]:
        """Return those of a round's measured metrics that the trial reports.

        With `params.eval_metric`, all metrics of valid are reported, because the framework may call
        a metric by another name.
        """
        return {
            name: value
            for name, value in measured.items()
            if self.report_all
            or name in self.reported
            or (self.own_metrics and name.startswith("valid-"))
        }

    def require(self, measured: Iterable[str]) -> None:
        """Raise an error if an objective or a constraint names a metric that is not measured.

        Args:
            measured: Names of the measured metrics.

        Raises:
            ValueError: One of `names` is not measured. The message suggests the most similar
                measured name.
        """
        for name in self.names:
            require_metric(name, measured)


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _translate(name: str, translate: Callable[[str, str], str | None]) -> str | None:
    """Return the framework's name of a metric; None if the name does not begin with a split, or if the framework lacks the metric."""
    split, _, metric = name.partition("-")
    return translate(split, metric) if split in SPLITS and metric else None
