"""Metrics of a model's answers, defined as XGBoost defines them."""

from __future__ import annotations

import numpy as np


def measure(task: str, wanted: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    """The metrics of a task, defined as XGBoost defines them.

    Args:
        task: "binary", "multiclass" or "regression".
        wanted: class codes or values, (n,).
        predicted: as `Model.predict` gives them.
    """
    if task == "regression":
        error = predicted - wanted
        return {"valid-rmse": float(np.sqrt(np.mean(error**2))), "valid-mae": float(np.mean(np.abs(error)))}
    tiny = 1e-16
    if task == "binary":
        p = np.clip(predicted, tiny, 1 - tiny)
        logloss = -np.mean(np.where(wanted == 1, np.log(p), np.log1p(-p)))
        wrong = float(np.mean((predicted > 0.5) != (wanted == 1)))
        return {
            "valid-logloss": float(logloss),
            "valid-error": wrong,
            "valid-accuracy": 1 - wrong,
            "valid-auc": auc(wanted == 1, predicted),
        }
    logloss = -np.mean(np.log(np.clip(predicted[np.arange(len(wanted)), wanted], tiny, 1)))
    wrong = float(np.mean(predicted.argmax(axis=1) != wanted))
    return {"valid-mlogloss": float(logloss), "valid-merror": wrong, "valid-accuracy": 1 - wrong}


def auc(positive: np.ndarray, score: np.ndarray) -> float:
    """Area under the ROC curve; ties count half. NaN where one class is missing or a score is NaN."""
    n1 = int(positive.sum())
    n0 = len(positive) - n1
    if not n1 or not n0 or np.isnan(score).any():
        return float("nan")
    _, place, count = np.unique(score, return_inverse=True, return_counts=True)
    rank = np.cumsum(count) - (count - 1) / 2  # of a tie: the middle of the ranks it takes
    return float((rank[place][positive].sum() - n1 * (n1 + 1) / 2) / (n1 * n0))
