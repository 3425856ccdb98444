"""The metrics that this package computes itself.

The table `METRICS` lists the name, the tasks and the function of each metric.

Trainers use these metrics to compute the values that trials report. The export uses them to compute
test scores. `METRICS` has two parts:

- `OWN`: metrics that are defined as in XGBoost, so that a test score can be compared with the value
  that a trial reported.
- `SCORERS`: scikit-learn's scorers, by the names of `sklearn.metrics.get_scorer_names()`. A higher
  value is always better. A name that is also in `OWN` keeps the definition in `OWN`.

This module imports scikit-learn only to compute a metric. A user's own metric is a function, named
`module:function` in the space file.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

from .label_columns import MULTILABEL, MULTIOUTPUT, SEVERAL_COLUMNS
from .metric_functions import (
    absolute_errors,
    auc,
    auc_of_draws,
    call_scorer,
    errors,
    f1,
    hits,
    log_losses,
    r2,
    squared_errors,
)
from .plugins import references
from .scorer_names import CLASSIFICATION as CLASSIFICATION
from .scorer_names import NUMERIC, SCORER_NAMES, Input

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Metric:
    """A metric that compares predictions with labels.

    Attributes:
        tasks: The tasks for which the metric is defined. "clustering" is a task that sweeps does
            not have.
        function: Function that takes labels and predictions, and returns the metric. For a
            classification metric, the labels are class codes of shape (n,), and the predictions are
            probabilities of shape (n, k). For several label columns, labels and predictions have
            the shape (n, k). For other metrics, labels and predictions are numbers of shape (n,).
        needs: The kind of predictions that a classification metric needs. "classes": predicted
            classes are enough. "scores": the model must rank the rows, by probabilities or by a
            decision function. "probabilities": the model must return probabilities.
        rows: The function of a metric that is a power of a mean over the rows: it returns a value
            for each row, shape (n,). None for other metrics.
        power: The power; 1/2 for a root.
        draws: Function of labels, predictions, and how many times each draw has each row, integers
            of shape (draws, n). It returns the metric of each draw. None if it takes as long as one
            call of `function` for each draw.
    """

    tasks: tuple[str, ...]
    function: Callable[[np.ndarray, np.ndarray], float]
    needs: Input = "probabilities"
    rows: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None
    power: float = 1.0
    draws: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray] | None = None


def mean_of(
    tasks: tuple[str, ...],
    rows: Callable[[np.ndarray, np.ndarray], np.ndarray],
    needs: Input = "probabilities",
    power: float = 1.0,
) -> Metric:
    """Return a metric that is a power of a mean over the rows; see `Metric`."""

    def function(y_true: np.ndarray, y_pred: np.ndarray) -> float:
        return float(rows(y_true, y_pred).mean() ** power)

    return Metric(tasks, function, needs, rows, power)


# The metrics that a trainer reports of a finished model, by the task.
USUAL = {
    "binary": ("logloss", "error", "accuracy", "auc"),
    "multiclass": ("mlogloss", "merror", "accuracy"),
    "regression": ("rmse", "mae"),
    MULTILABEL: ("logloss", "error", "accuracy"),
    MULTIOUTPUT: ("rmse", "mae"),
}


def find(metric: str, task: str | None) -> Metric | None:
    """Return the metric with a name.

    Return None if there is no such metric, or if the metric is not defined for the task.

    Args:
        metric: A name in `METRICS`, with or without `valid-` or `valid_` before it.
        task: "binary", "multiclass", "regression", "multilabel" or "multioutput". None for data
            without a label.
    """
    known = METRICS.get(base_name(metric))
    return known if known is not None and task in known.tasks else None


def base_name(metric: str) -> str:
    """Return the name of a metric without `valid-` or `valid_` before it."""
    return metric.removeprefix("valid-").removeprefix("valid_")


def needs(metric: str, task: str | None) -> Input | None:
    """Return what a metric needs from the model of a classification, see `Metric.needs`.

    Return None if there is no such metric for the task.
    """
    known = find(metric, task)
    return None if known is None else known.needs


def score(metric: str, task: str | None, y_true: np.ndarray, y_pred: np.ndarray) -> float | None:
    """Compute a metric of a model's predictions.

    Args:
        metric: See `find`; or a user's `module:function`.
        task: See `find`.
        y_true: Labels of shape (n,): class codes 0, 1, ... or numbers. For several label columns,
            shape (n, k).
        y_pred: The model's output. Binary: the probability of class 1, shape (n,). Multiclass:
            probabilities, shape (n, k). Both also allow integer class codes of shape (n,), or
            values of a decision function in place of probabilities. Regression: numbers, shape
            (n,). Several label columns: numbers, or the probability of 1, shape (n, k). Multilabel
            also allows integers 0 and 1.

    Returns:
        The metric's value. NaN if it is undefined for these predictions, such as predictions that
        are NaN, or for these labels, such as the AUC if all rows have the same class. None if
        `METRICS` has no such metric, or if the metric does not apply to the task.

    Raises:
        references.RefError: The user's function cannot be imported, or is not a function.
        ValueError: The user's function returned something other than a number; or `y_pred` has
            class codes, and the metric needs more; or scikit-learn does not accept the labels, such
            as negative labels for `neg_mean_squared_log_error`.
    """
    import numpy as np

    y_true = np.asarray(y_true)
    y_pred = np.asarray(y_pred)
    if references.is_reference(metric):
        return _call_user_metric(metric, y_true, y_pred.astype(np.float64))
    known = find(metric, task)
    if known is None:
        return None
    if len(y_true) == 0 or (y_pred.dtype.kind == "f" and np.isnan(y_pred).any()):
        # Otherwise NaN would count as the first class, and a network that has diverged could
        # have a good accuracy.
        return float("nan")
    return float(known.function(*_arguments(metric, known, task, y_true, y_pred)))


def draw_values(
    metric: str, task: str | None, y_true: np.ndarray, y_pred: np.ndarray, counts: np.ndarray
) -> np.ndarray | None:
    """Compute a metric for several draws of the rows at once.

    Args:
        metric: See `score`.
        task: See `find`.
        y_true: See `score`.
        y_pred: See `score`.
        counts: How many times each draw has each row, integers of shape (draws, n).

    Returns:
        The metric of each draw, shape (draws,). NaN if it is undefined for the draw. None if there
        is no fast way; see `Metric.draws`.

    Raises:
        ValueError: `y_pred` has class codes, and the metric needs more.
    """
    import numpy as np

    known = None if references.is_reference(metric) else find(metric, task)
    if known is None or (known.draws is None and known.rows is None):
        return None
    y_pred = np.asarray(y_pred)
    if len(y_pred) == 0 or (y_pred.dtype.kind == "f" and np.isnan(y_pred).any()):
        return np.full(len(counts), math.nan)
    arguments = _arguments(metric, known, task, np.asarray(y_true), y_pred)
    if known.draws is not None:
        return known.draws(*arguments, counts)
    assert known.rows is not None
    # The columns of a multilabel task are values of their own.
    values: np.ndarray = known.rows(*arguments).reshape(len(y_pred), -1).mean(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):  # a draw without rows
        means: np.ndarray = (counts @ values) / counts.sum(axis=1)
    return means**known.power


def _arguments(
    metric: str, known: Metric, task: str | None, y_true: np.ndarray, y_pred: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return labels and predictions as the function of a metric gets them; see `score`."""
    import numpy as np

    if known.needs != "classes":
        _check_predictions(metric, task, y_pred)
    if task == MULTILABEL and base_name(metric) in OWN:
        # As in XGBoost, each value of each column counts like a row with one label.
        y_true = y_true.ravel()
        y_pred = y_pred.ravel()
        task = "binary"
    if task in SEVERAL_COLUMNS:
        return y_true.astype(np.float64), y_pred.astype(np.float64)
    if task in CLASSIFICATION:
        if y_pred.ndim == 1 and y_pred.dtype.kind in "iub":
            # With two columns, `predicted_class` would treat multiclass as binary.
            y_pred = _one_hot(y_pred, y_true, 2 if task == "binary" else 3)
        y_pred = _probabilities(y_pred.astype(np.float64))
        if "regression" not in known.tasks:
            return y_true.astype(np.int64), y_pred
        y_pred = y_pred[:, 1]
    return y_true.astype(np.float64), y_pred.astype(np.float64).reshape(-1)


def _check_predictions(metric: str, task: str | None, y_pred: np.ndarray) -> None:
    """Raise ValueError if the predictions are only classes.

    Call this function for a metric that needs scores or probabilities.
    """
    if y_pred.dtype.kind not in "iub":
        return
    if task == MULTILABEL:
        raise ValueError(f"`{metric}` needs probabilities, but the model predicts only 0 and 1")
    if task in CLASSIFICATION and y_pred.ndim == 1:
        raise ValueError(f"`{metric}` needs probabilities, but the model predicts only classes")


def _one_hot(codes: np.ndarray, labels: np.ndarray, fewest: int) -> np.ndarray:
    """Return probabilities 0 and 1 for class codes, with at least `fewest` classes."""
    import numpy as np

    classes = max(fewest, int(labels.max()) + 1, int(codes.max()) + 1)
    return np.eye(classes)[codes.astype(np.int64)]


def load_function(metric: str) -> Callable[[np.ndarray, np.ndarray], float]:
    """Import the function of a user's metric.

    Args:
        metric: Reference `module:function`. The function takes labels and predictions, and returns
            a number.

    Raises:
        references.RefError: The function cannot be imported, or the reference names something that
            cannot be called.
    """
    function = references.resolve(metric)
    if not callable(function):
        raise references.RefError(
            f"`{metric}` has the type {type(function).__name__}, but must be a function of labels "
            "and predictions"
        )
    return cast("Callable[[np.ndarray, np.ndarray], float]", function)


def _call_user_metric(metric: str, y_true: np.ndarray, y_pred: np.ndarray) -> float:
    """Call the function of a user's metric. Raise ValueError if it does not return a number."""
    value = load_function(metric)(y_true, y_pred)
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(
            f"`{metric}` returned a {type(value).__name__}, but must return a number"
        ) from None


def _probabilities(y_pred: np.ndarray) -> np.ndarray:
    """Return probabilities of shape (n, k).

    If the input has only the probability of class 1, a column for class 0 is put before it.
    """
    import numpy as np

    if y_pred.ndim == 2 and y_pred.shape[1] > 1:
        return y_pred
    positive = y_pred.reshape(-1)
    return np.column_stack([1 - positive, positive])


OWN = {
    "logloss": mean_of((*CLASSIFICATION, MULTILABEL), log_losses),
    "mlogloss": mean_of(CLASSIFICATION, log_losses),
    "error": mean_of((*CLASSIFICATION, MULTILABEL), errors, "classes"),
    "merror": mean_of(CLASSIFICATION, errors, "classes"),
    "accuracy": mean_of((*CLASSIFICATION, MULTILABEL), hits, "classes"),
    "auc": Metric(CLASSIFICATION, auc, "scores", draws=auc_of_draws),
    "f1": Metric(CLASSIFICATION, f1, "classes"),
    "rmse": mean_of(NUMERIC, squared_errors, power=0.5),
    "mse": mean_of(NUMERIC, squared_errors),
    "mae": mean_of(NUMERIC, absolute_errors),
    "r2": Metric(NUMERIC, r2),
}
SCORERS = {
    name: Metric(tasks, functools.partial(call_scorer, name), needs)
    for tasks, needs, names in SCORER_NAMES
    for name in names.split()
}
METRICS = SCORERS | OWN
# Metrics of which a lower value is better, or a higher one. Names with other meanings, such as
# `gamma`, are left out.
_LOWER = (
    "logloss",
    "mlogloss",
    "error",
    "merror",
    "rmse",
    "rmsle",
    "mse",
    "mae",
    "mape",
    "mphe",
    "cross_entropy",
    "kullback_leibler",
    "poisson-nloglik",
    "gamma-nloglik",
    "gamma-deviance",
    "gamma_deviance",
)
_HIGHER = ("accuracy", "auc", "aucpr", "auc_mu", "f1", "ndcg", "r2")


def usual_goal(metric: str) -> Literal["minimize", "maximize"] | None:
    """Return the goal of a well-known metric. Return None if the metric's direction is not known.

    >>> usual_goal("valid-logloss"), usual_goal("train-auc"), usual_goal("profit")
    ('minimize', 'maximize', None)
    """
    name = base_name(metric.removeprefix("train-").removeprefix("train_")).partition("@")[0]
    if name in _LOWER:
        return "minimize"
    return "maximize" if name in _HIGHER or name in SCORERS else None
