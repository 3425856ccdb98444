"""Measure metrics with XGBoost."""

import functools

import xgboost as xgb

from sweeps.core.label_columns import SEVERAL_COLUMNS
from sweeps.core.metrics import USUAL

METRICS = {task: [name for name in names if name != "accuracy"] for task, names in USUAL.items()}
# XGBoost fails if one of these is measured for the other classification.
OF_ONE_TASK = ("logloss", "error", "mlogloss", "merror")


def metric_name(task: str, split: str, metric: str) -> str | None:
    """Return XGBoost's name of a metric; None if XGBoost cannot measure the metric for the task.

    For the accuracy on valid, this is `error` or `merror`. Other metrics have the same name.
    """
    if metric == "accuracy" and split == "valid" and metric in USUAL[task]:
        return "merror" if task == "multiclass" else "error"
    if metric in METRICS[task]:
        return metric
    if task in SEVERAL_COLUMNS:  # XGBoost has metrics that fail for several label columns
        return None
    return metric if metric not in OF_ONE_TASK and _is_known(metric) else None


@functools.lru_cache(maxsize=64)
def _is_known(metric: str) -> bool:
    """Return whether XGBoost has a metric with this name."""
    try:
        xgb.Booster({"eval_metric": metric, "num_feature": 1, "verbosity": 0}).save_config()
    except xgb.core.XGBoostError as e:
        return "Unknown metric" not in str(e)
    return True


def parsed(line: str) -> dict[str, float]:
    r"""Parse `[0]\ttrain-auc:0.5\tvalid-auc:0.4`. Add the accuracy if there is an error rate."""
    metrics = {
        name: float(value)
        for name, _, value in (part.rpartition(":") for part in line.split("\t")[1:])
    }
    for error in metrics.keys() & {"valid-error", "valid-merror"}:
        metrics["valid-accuracy"] = 1.0 - metrics[error]
    return metrics
