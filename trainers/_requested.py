"""Choose the metrics that each round reports, and the metrics that are measured only for the finished model."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import xgboost as xgb

from sweeps import trial
from sweeps.trainers import reports_all, require_metric, require_task
from sweeps.trainers._metrics import is_computed

SPLITS = ("train", "valid")
METRICS = {"binary": ["logloss", "error", "auc"], "multiclass": ["mlogloss", "merror"], "regression": ["rmse", "mae"]}
OF_ONE_TASK = ("logloss", "error", "mlogloss", "merror")  # XGBoost fails if one of these is measured for the other classification


@dataclass(frozen=True)
class RequestedMetrics:
    """The metrics that a space file asks for.

    Attributes:
        names: Metrics of objectives and constraints, such as `valid-logloss`.
        metrics: XGBoost's names of the metrics that XGBoost measures in each round.
        computed: Those of `names` that XGBoost does not have, such as `valid-balanced_accuracy`. They are computed from predictions.
        splits: Splits on which XGBoost measures `metrics`: "train", "valid" or both.
        others: XGBoost's names of the metrics that are measured for the finished model.
        own: True if `params.eval_metric` is set. Each round then reports the metrics in `eval_metric` on valid.
        all: True with `params.report: all`. Each round then reports all `metrics` on both splits, not only those in `names`.
    """

    names: tuple[str, ...]
    metrics: tuple[str, ...]
    computed: tuple[str, ...]
    splits: tuple[str, ...]
    others: tuple[str, ...]
    own: bool
    all: bool

    @classmethod
    def of(cls, config: Mapping[str, Any], cur: trial.Current) -> RequestedMetrics:
        """Return the metrics that a trial's `params`, objectives and constraints name.

        Args:
            config: The trial's `params`.
            cur: The trial.

        Raises:
            ValueError: The data has no label, neither XGBoost nor sweeps has such a metric, or `params.report` has an unknown value.
        """
        task, own = require_task(cur.task), config.get("eval_metric", [])
        own = [own] if isinstance(own, str) else list(own)
        usual = own or METRICS[task]
        # If all objectives are costs, the trainer's first metric decides the best round. This metric is minimized.
        names = tuple(dict.fromkeys([*([cur.metric] if cur.metric else []), *cur.asked])) or (f"valid-{usual[0]}",)
        measured: dict[str, str] = {}
        for name in names:
            metric = _measured(name, task)
            if metric is not None and (metric in (*usual, *METRICS[task]) or (metric not in OF_ONE_TASK and _knows(metric))):
                measured[name] = metric
            elif not is_computed(name, task):
                require_metric(name, [f"{split}-{each}" for each in usual for split in reversed(SPLITS)], _place(name, cur))
        every = reports_all(config)
        splits = [split for split in SPLITS if every or (split == "valid" and own) or any(name.startswith(split) for name in measured)]
        return cls(
            names=names,
            metrics=tuple(dict.fromkeys([*(usual if every else own), *measured.values()])),
            computed=tuple(name for name in names if name not in measured),
            splits=tuple(splits),
            others=() if every else tuple(dict.fromkeys([*usual, *measured.values()])),
            own=bool(own),
            all=every,
        )

    @property
    def lead(self) -> str:
        """Metric that decides the best round."""
        return self.names[0]

    def reported(self, measured_values: Mapping[str, float]) -> dict[str, float]:
        """Return those of a round's measured metrics that the trial reports."""
        return {k: v for k, v in measured_values.items() if self.all or k in self.names or (self.own and k.startswith("valid-"))}

    def require(self, measured_values: Iterable[str]) -> None:
        """Raise an error if XGBoost does not report a metric that an objective or a constraint names.

        Args:
            measured_values: Names of the metrics that XGBoost reports.

        Raises:
            ValueError: XGBoost does not report one of `names`. The message suggests the most similar name that XGBoost reports.
        """
        for name in self.names:
            require_metric(name, measured_values)

    def final(self, model: xgb.Booster, splits: Mapping[str, xgb.DMatrix], reported: Iterable[str]) -> dict[str, float]:
        """Measure the metrics in `self.others` for a finished model. Metrics that the trial reported are left out.

        Args:
            model: The finished model.
            splits: The matrices of "train" and "valid".
            reported: Names of the metrics that the trial reported.
        """
        for metric in self.others:
            model.set_param({"eval_metric": metric})  # adds the metric, unless the model has it
        measured_values = parsed(model.eval_set([(matrix, split) for split, matrix in splits.items()])) if self.others else {}
        return {name: value for name, value in measured_values.items() if name not in set(reported)}


def parsed(line: str) -> dict[str, float]:
    r"""Parse `[0]\ttrain-auc:0.5\tvalid-auc:0.4`, and add the accuracy if there is an error rate."""
    metrics = {name: float(value) for name, _, value in (part.rpartition(":") for part in line.split("\t")[1:])}
    for error in metrics.keys() & {"valid-error", "valid-merror"}:
        metrics["valid-accuracy"] = 1.0 - metrics[error]
    return metrics


def _measured(name: str, task: str) -> str | None:
    """Return XGBoost's name of a metric: `logloss` for `valid-logloss`, `error` or `merror` for `valid-accuracy`.

    Return None if the name does not begin with a split.
    """
    split, _, metric = name.partition("-")
    if split not in SPLITS or not metric:
        return None
    return ("error" if task == "binary" else "merror") if metric == "accuracy" and split == "valid" and task != "regression" else metric


def _place(name: str, cur: trial.Current) -> str:
    """Return a text for messages that says which part of the space file names a metric."""
    return "objective.metric" if name == cur.metric else "a metric of objective and constraints"


@functools.lru_cache(maxsize=64)
def _knows(metric: str) -> bool:
    """Return whether XGBoost has a metric with this name."""
    try:
        xgb.Booster({"eval_metric": metric, "num_feature": 1, "verbosity": 0}).save_config()
    except xgb.core.XGBoostError as e:
        return "Unknown metric" not in str(e)
    return True
