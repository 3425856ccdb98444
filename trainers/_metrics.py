"""Compute the metrics that `torch_tabular` reports. `sweeps.core.metrics` defines the metrics in the same way as XGBoost."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from sweeps.core.metrics import score

REPORTED = {
    "binary": ("logloss", "error", "accuracy", "auc"),
    "multiclass": ("mlogloss", "merror", "accuracy"),
    "regression": ("rmse", "mae"),
}


def measure(task: str, split: str, y_true: np.ndarray, y_pred: np.ndarray, names: Collection[str] | None = None) -> dict[str, float]:
    """Compute the metrics of one split.

    Args:
        task: "binary", "multiclass" or "regression".
        split: "train" or "valid".
        y_true: Class codes or values, shape (n,).
        y_pred: Predictions in the format of `Model.predict`.
        names: Names of the metrics to compute, such as `valid-logloss`. None to compute all metrics of the task.

    Returns:
        The value of each metric, by a name such as `valid-logloss`.
    """
    scores = {}
    for metric in REPORTED[task]:
        name = f"{split}-{metric}"
        if names is None or name in names:
            value = score(metric, task, y_true, y_pred)
            assert value is not None  # every metric of the table above applies to its task
            scores[name] = value
    return scores
