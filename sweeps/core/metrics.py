"""The metrics that this package computes itself. The table `METRICS` lists the name, the tasks and the function of each metric.

Trainers use these metrics to compute the values that trials report. The export uses them to compute test scores. The definitions are
XGBoost's, so that a test score can be compared with the value that a trial reported. AUC, F1 and R² come from scikit-learn.
A user's own metric is a function, named `module:function` in the space file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from sweeps.core import references

if TYPE_CHECKING:
    import numpy as np

CLASSIFICATION = ("binary", "multiclass")
NUMERIC = ("binary", "regression")  # with two classes, the label 0 or 1 is compared with the probability of class 1
# XGBoost clips probabilities at this value in `logloss` and `mlogloss`. scikit-learn's `log_loss` clips at another value.
SMALLEST_PROBABILITY = 1e-16


@dataclass(frozen=True)
class Metric:
    """A metric that compares predictions with labels.

    Attributes:
        tasks: The tasks for which the metric is defined.
        function: Function that takes labels and predictions, and returns the metric. For a classification metric, the labels are class
            codes of shape (n,), and the predictions are probabilities of shape (n, k). For other metrics, labels and predictions are
            numbers of shape (n,).
    """

    tasks: tuple[str, ...]
    function: Callable[[np.ndarray, np.ndarray], float]


def score(metric: str, task: str | None, y_true: np.ndarray, y_pred: np.ndarray) -> float | None:
    """Compute a metric of a model's predictions.

    Args:
        metric: A name in `METRICS`, with or without `valid-` or `valid_` before it, or a user's `module:function`.
        task: "binary", "multiclass" or "regression". None for data without a label.
        y_true: Labels of shape (n,): class codes 0, 1, ... or numbers.
        y_pred: The model's output. Binary: the probability of class 1, shape (n,). Multiclass: probabilities, shape (n, k).
            Regression: numbers, shape (n,).

    Returns:
        The metric's value. NaN if it is undefined for these labels, such as the AUC if all rows have the same class. None if `METRICS` has
        no such metric, or if the metric does not apply to the task.

    Raises:
        references.RefError: The user's function cannot be imported, or is not a function.
        ValueError: The user's function returned something other than a number.
    """
    import numpy as np

    y_true, y_pred = np.asarray(y_true), np.asarray(y_pred, dtype=np.float64)
    if is_function(metric):
        return _call(metric, y_true, y_pred)
    known = METRICS.get(metric.removeprefix("valid-").removeprefix("valid_"))
    if known is None or task not in known.tasks:
        return None
    if len(y_true) == 0:
        return float("nan")
    if known.tasks is CLASSIFICATION:
        return float(known.function(y_true.astype(np.int64), _probabilities(y_pred)))
    if y_pred.ndim == 2 and task == "binary":
        y_pred = y_pred[:, 1]
    return float(known.function(y_true.astype(np.float64), y_pred.reshape(-1)))


def is_function(metric: str) -> bool:
    """Return whether a metric's name is a reference `module:function`, and thus names a user's function."""
    try:
        references.parse(metric)
    except references.RefError:
        return False
    return True


def load_function(metric: str) -> Callable[[np.ndarray, np.ndarray], float]:
    """Import the function of a user's metric.

    Args:
        metric: Reference `module:function`. The function takes labels and predictions, and returns a number.

    Raises:
        references.RefError: The function cannot be imported, or the reference names something that cannot be called.
    """
    function = references.resolve(metric)
    if not callable(function):
        raise references.RefError(f"`{metric}` has the type {type(function).__name__}, but must be a function of labels and predictions")
    return cast("Callable[[np.ndarray, np.ndarray], float]", function)


def _call(metric: str, y_true: np.ndarray, y_pred: np.ndarray) -> float:
    """Call the function of a user's metric. Raise ValueError if it does not return a number."""
    value = load_function(metric)(y_true, y_pred)
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"`{metric}` returned a {type(value).__name__}, but must return a number") from None


def _probabilities(y_pred: np.ndarray) -> np.ndarray:
    """Return probabilities of shape (n, k). If the input has only the probability of class 1, a column for class 0 is put before it."""
    import numpy as np

    if y_pred.ndim == 2 and y_pred.shape[1] > 1:
        return y_pred
    positive = y_pred.reshape(-1)
    return np.column_stack([1 - positive, positive])


def _log_loss(y: np.ndarray, p: np.ndarray) -> float:
    import numpy as np

    return float(-np.mean(np.log(np.maximum(p[np.arange(len(y)), y], SMALLEST_PROBABILITY))))


def _predicted_class(p: np.ndarray) -> np.ndarray:
    """Return the most likely class of each row.

    If there are two classes, class 1 is chosen if its probability is above 0.5, as in XGBoost's `error`.
    """
    import numpy as np

    return (p[:, 1] > 0.5).astype(np.int64) if p.shape[1] == 2 else p.argmax(axis=1)


def _error(y: np.ndarray, p: np.ndarray) -> float:
    return float((_predicted_class(p) != y).mean())


def _auc(y: np.ndarray, p: np.ndarray) -> float:
    """Return the area under the ROC curve.

    With more than two classes, compute the area of each class against all other classes. The result is the mean of these areas, weighted by
    the frequency of the class, as in XGBoost. Return NaN if a probability is NaN, or if a class does not occur in the labels.
    """
    import numpy as np
    from sklearn.metrics import roc_auc_score

    if np.isnan(p).any():
        return float("nan")
    classes = [1] if p.shape[1] == 2 else range(p.shape[1])
    if any((y == c).all() or not (y == c).any() for c in classes):
        return float("nan")
    return float(np.average([roc_auc_score(y == c, p[:, c]) for c in classes], weights=[(y == c).sum() for c in classes]))


def _f1(y: np.ndarray, p: np.ndarray) -> float:
    """Return the F1 score of class 1.

    With more than two classes, return the mean of the F1 scores of all classes that occur in the labels or the predictions.
    """
    from sklearn.metrics import f1_score

    return float(f1_score(y, _predicted_class(p), average="binary" if p.shape[1] == 2 else "macro", zero_division=0.0))


def _mse(y: np.ndarray, p: np.ndarray) -> float:
    return float(((y - p) ** 2).mean())


def _mae(y: np.ndarray, p: np.ndarray) -> float:
    return float(abs(y - p).mean())


def _r2(y: np.ndarray, p: np.ndarray) -> float:
    import numpy as np
    from sklearn.metrics import r2_score

    return float("nan") if np.isnan(p).any() or (y == y[0]).all() else float(r2_score(y, p))


METRICS = {
    "logloss": Metric(CLASSIFICATION, _log_loss),
    "mlogloss": Metric(CLASSIFICATION, _log_loss),
    "error": Metric(CLASSIFICATION, _error),
    "merror": Metric(CLASSIFICATION, _error),
    "accuracy": Metric(CLASSIFICATION, lambda y, p: 1 - _error(y, p)),
    "auc": Metric(CLASSIFICATION, _auc),
    "f1": Metric(CLASSIFICATION, _f1),
    "rmse": Metric(NUMERIC, lambda y, p: _mse(y, p) ** 0.5),
    "mse": Metric(NUMERIC, _mse),
    "mae": Metric(NUMERIC, _mae),
    "r2": Metric(NUMERIC, _r2),
}
