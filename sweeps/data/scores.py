"""Scores of predictions, in NumPy, as XGBoost and scikit-learn define them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

# XGBoost clips probabilities here, in `logloss` and `mlogloss`
_EPSILON = 1e-16


def score(metric: str, task: str | None, y_true: np.ndarray, y_pred: np.ndarray) -> float | None:
    """The value of a metric, so that the winner's test score is comparable with what its trial reported.

    Args:
        metric: `logloss`, `mlogloss`, `error`, `merror`, `accuracy`, `auc`, `rmse`, `mae`, `mse`, `r2` or `f1`, with or
            without `valid-` or `valid_` before it.
        task: "binary", "multiclass" or "regression".
        y_true: shape (n,); class codes 0, 1, ..., or numbers.
        y_pred: binary: the probability of class 1, shape (n,); multiclass: probabilities, shape (n, k); regression:
            numbers, shape (n,).

    Returns:
        The score; NaN where it is not defined, such as an AUC over one class; None for a metric that is not known, or
        means nothing for the task.
    """
    for prefix in ("valid-", "valid_"):
        metric = metric.removeprefix(prefix)
    y_true, y_pred = np.asarray(y_true), np.asarray(y_pred, dtype=np.float64)
    if len(y_true) == 0:
        return float("nan")
    if task in ("binary", "multiclass"):
        known = _CLASSIFICATION.get(metric)
        if known:
            return float(known(y_true.astype(np.int64), _probabilities(y_pred)))
        if task == "multiclass":
            return None
        if y_pred.ndim == 2:
            y_pred = y_pred[:, 1]
    number = _REGRESSION.get(metric)
    return None if number is None else float(number(y_true.astype(np.float64), y_pred.reshape(-1)))


def _probabilities(y_pred: np.ndarray) -> np.ndarray:
    """Shape (n, k), whatever way they came."""
    if y_pred.ndim == 2 and y_pred.shape[1] > 1:
        return y_pred
    positive = y_pred.reshape(-1)
    return np.column_stack([1 - positive, positive])


def _logloss(y: np.ndarray, p: np.ndarray) -> float:
    return -np.mean(np.log(np.maximum(p[np.arange(len(y)), y], _EPSILON)))


def _choice(p: np.ndarray) -> np.ndarray:
    """The chosen class; with two, class 1 only if it is likelier than a half, as XGBoost's `error` has it."""
    return (p[:, 1] > 0.5).astype(np.int64) if p.shape[1] == 2 else p.argmax(axis=1)


def _error(y: np.ndarray, p: np.ndarray) -> float:
    return float(np.mean(_choice(p) != y))


def _auc_of(positive: np.ndarray, s: np.ndarray) -> float:
    """The area under the ROC curve of scores `s`, by ranks; ties count half."""
    hits = int(positive.sum())
    if hits in (0, len(s)):
        return float("nan")
    _, inverse, counts = np.unique(s, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    return float((ranks[positive].sum() - hits * (hits + 1) / 2) / (hits * (len(s) - hits)))


def _auc(y: np.ndarray, p: np.ndarray) -> float:
    """With more than two classes: each against the rest, weighted by how often it occurs, as in XGBoost."""
    if p.shape[1] == 2:
        return _auc_of(y == 1, p[:, 1])
    each = np.array([_auc_of(y == k, p[:, k]) for k in range(p.shape[1])])
    weights = np.bincount(y, minlength=p.shape[1])[: p.shape[1]]
    return float(np.average(each, weights=weights)) if not np.isnan(each).any() else float("nan")


def _f1(y: np.ndarray, p: np.ndarray) -> float:
    """Of class 1; with more than two classes the plain mean over those that occur or were predicted."""
    chosen = _choice(p)
    classes = [1] if p.shape[1] == 2 else np.union1d(y, chosen).tolist()
    scores = []
    for k in classes:
        wrong = np.sum((chosen == k) != (y == k))
        hits = np.sum((chosen == k) & (y == k))
        scores.append(2 * hits / (2 * hits + wrong) if hits + wrong else 0.0)
    return float(np.mean(scores))


def _mse(y: np.ndarray, p: np.ndarray) -> float:
    return float(np.mean((y - p) ** 2))


def _r2(y: np.ndarray, p: np.ndarray) -> float:
    spread = float(np.sum((y - y.mean()) ** 2))
    return 1 - float(np.sum((y - p) ** 2)) / spread if spread else float("nan")


_Metric = Callable[[np.ndarray, np.ndarray], float]
_CLASSIFICATION: dict[str, _Metric] = {
    "logloss": _logloss,
    "mlogloss": _logloss,
    "error": _error,
    "merror": _error,
    "accuracy": lambda y, p: 1 - _error(y, p),
    "auc": _auc,
    "f1": _f1,
}
_REGRESSION: dict[str, _Metric] = {
    "rmse": lambda y, p: _mse(y, p) ** 0.5,
    "mse": _mse,
    "mae": lambda y, p: float(np.mean(np.abs(y - p))),
    "r2": _r2,
}
