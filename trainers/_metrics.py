"""Metrics of a model's answers, defined as XGBoost defines them."""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np

TINY = 1e-16


def measure(task: str, split: str, wanted: np.ndarray, predicted: np.ndarray, names: Collection[str] | None = None) -> dict[str, float]:
    """Return the metrics of a task, such as `valid-logloss`.

    Args:
        task: "binary", "multiclass" or "regression".
        split: what the rows are of, "train" or "valid".
        wanted: class codes or values, shape (n,).
        predicted: as `Model.predict` gives them.
        names: the metrics to measure, with their split; all of the task if not given.
    """
    found = {f"{split}-{name}": metric for name, metric in METRICS[task].items()}
    return {name: float(metric(wanted, predicted)) for name, metric in found.items() if names is None or name in names}


def _logloss(wanted: np.ndarray, p: np.ndarray) -> float:
    p = np.clip(p, TINY, 1 - TINY)
    return -np.mean(np.where(wanted == 1, np.log(p), np.log1p(-p)))


def _error(wanted: np.ndarray, p: np.ndarray) -> float:
    return float(np.mean((p > 0.5) != (wanted == 1)))


def _mlogloss(wanted: np.ndarray, p: np.ndarray) -> float:
    return -np.mean(np.log(np.clip(p[np.arange(len(wanted)), wanted], TINY, 1)))


def _merror(wanted: np.ndarray, p: np.ndarray) -> float:
    return float(np.mean(p.argmax(axis=1) != wanted))


def auc(positive: np.ndarray, score: np.ndarray) -> float:
    """Area under the ROC curve; ties count half. NaN where one class is missing or a score is NaN."""
    n1 = int(positive.sum())
    n0 = len(positive) - n1
    if not n1 or not n0 or np.isnan(score).any():
        return float("nan")
    _, place, count = np.unique(score, return_inverse=True, return_counts=True)
    rank = np.cumsum(count) - (count - 1) / 2  # of a tie: the middle of the ranks it takes
    return float((rank[place][positive].sum() - n1 * (n1 + 1) / 2) / (n1 * n0))


METRICS: dict[str, dict[str, Callable[[np.ndarray, np.ndarray], float]]] = {
    "binary": {
        "logloss": _logloss,
        "error": _error,
        "accuracy": lambda wanted, p: 1 - _error(wanted, p),
        "auc": lambda wanted, p: auc(wanted == 1, p),
    },
    "multiclass": {"mlogloss": _mlogloss, "merror": _merror, "accuracy": lambda wanted, p: 1 - _merror(wanted, p)},
    "regression": {
        "rmse": lambda wanted, predicted: np.sqrt(np.mean((predicted - wanted) ** 2)),
        "mae": lambda wanted, predicted: np.mean(np.abs(predicted - wanted)),
    },
}
