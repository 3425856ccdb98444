"""Choose and compute the metrics that trainers report. `sweeps.core.metrics` defines them."""

from collections.abc import Collection

import numpy as np

from sweeps import trial
from sweeps.core.metrics import USUAL, find, score

from . import require_metric

SPLITS = ("valid", "train")


def checked_names(cur: trial.Current, usual: Collection[str]) -> tuple[str, ...]:
    """Return `requested_names`, and raise an error if the trainer cannot report one of them.

    Args:
        cur: The trial.
        usual: Full names of the metrics that the trainer lists for the task, such as
            `valid-logloss`. Objectives and constraints may also name every other metric in
            `sweeps.core.metrics` that is defined for the task, as `valid-NAME`.

    Raises:
        ValueError: An objective or a constraint names a metric that the trainer cannot report for
            the task.
    """
    names = requested_names(cur, usual)
    for name in names:
        if not is_computed(name, cur.task):
            require_metric(name, usual)
    return names


def requested_names(cur: trial.Current, usual: Collection[str]) -> tuple[str, ...]:
    """Return the metrics that every step reports: the metrics that objectives and constraints name.

    The first one decides the best step. If all objectives are costs, the first one is the first
    usual metric, which is minimized.
    """
    return tuple(dict.fromkeys([cur.metric or next(iter(usual)), *cur.asked]))


def is_computed(name: str, task: str | None) -> bool:
    """Return whether `measure` can compute a metric of valid for a task.

    An example of a metric is `valid-balanced_accuracy`.
    """
    return name.startswith("valid-") and find(name, task) is not None


def measure(
    task: str,
    split: str,
    y_true: np.ndarray,
    y_pred: np.ndarray,
    names: Collection[str] | None = None,
) -> dict[str, float]:
    """Compute metrics of one split.

    Args:
        task: See `Current.task`.
        split: "train" or "valid".
        y_true: Class codes or values, shape (n,), or (n, k) for k label columns.
        y_pred: Predictions in the format of `Model.predict`.
        names: Names of the metrics to compute, such as `valid-logloss` or
            `valid-balanced_accuracy`. Names of the other split are ignored. None to compute the
            usual metrics of the task.

    Returns:
        The value of each metric, by a name such as `valid-logloss`.

    Raises:
        ValueError: A metric needs probabilities, but `y_pred` has class codes; or scikit-learn does
            not accept the labels.
    """
    prefix = f"{split}-"
    if names is None:
        names = [prefix + metric for metric in USUAL[task]]
    scores = {}
    for name in names:
        if name.startswith(prefix):
            value = score(name.removeprefix(prefix), task, y_true, y_pred)
            assert value is not None, f"`{name}` is not defined for the task {task}"
            scores[name] = value
    return scores
