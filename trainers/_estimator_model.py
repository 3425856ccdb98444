"""Predict with a trained estimator, and measure its predictions."""

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from joblib import parallel_config
from threadpoolctl import ThreadpoolController

from sweeps.core.label_columns import MULTILABEL, MULTIOUTPUT, SEVERAL_COLUMNS
from sweeps.core.metrics import needs

from ._metrics import measure

NUMBERS = ("regression", MULTIOUTPUT)


class Model:
    """A trained estimator.

    Args:
        estimator: The estimator. It must be fitted before it can predict.
        task: See `Current.task`.
        classes: Number of classes; 0 for a regression and for several label columns.
    """

    def __init__(self, estimator: Any, task: str, classes: int):
        self.estimator = estimator
        self.task = task
        self.classes = classes

    def predict(self, features: pd.DataFrame) -> np.ndarray:
        """Predict prepared rows.

        Args:
            features: The training columns, in their order.

        Returns:
            A float64 array with the probability of the second class, shape (n,); the probabilities
            of k classes, shape (n, k); or the values of a regression, shape (n,). If the estimator
            has no `predict_proba`, class codes, an int64 array of shape (n,). For k label columns,
            values, the probability of 1, or 0 and 1, shape (n, k).
        """
        x = adjacent_columns(features)
        with _one_thread():
            if self._has_probabilities and self.task == MULTILABEL:
                return self._label_columns(self.estimator.predict_proba(x))
            if self._has_probabilities:
                return self._class_columns(self.estimator.predict_proba(x), 0.0)
            predictions = np.asarray(self.estimator.predict(x)).reshape(
                (len(x), -1) if self.task in SEVERAL_COLUMNS else len(x)
            )
        return predictions.astype(np.float64 if self.task in NUMBERS else np.int64)

    def decision_function(self, features: pd.DataFrame) -> np.ndarray:
        """Return values that rank the rows, for metrics such as the AUC.

        The values are probabilities, or else values of the decision function.

        Args:
            features: The training columns, in their order.

        Returns:
            A float64 array of shape (n,) for two classes, and of shape (n, k) for k classes.
        """
        if (
            self._has_probabilities
            or self.task in SEVERAL_COLUMNS
            or not hasattr(self.estimator, "decision_function")
        ):
            return self.predict(features)
        with _one_thread():
            values = self.estimator.decision_function(adjacent_columns(features))
        values = np.asarray(values, np.float64)
        absent = values.min(initial=0) - 1
        if values.ndim == 1:  # two classes
            values = np.column_stack([-values, values])
        return self._class_columns(values, absent)

    def measure(self, x: pd.DataFrame, y: np.ndarray, names: Sequence[str]) -> dict[str, float]:
        """Measure metrics of valid.

        Without probabilities, metrics that need an order of the rows use the decision function.

        Args:
            x: Features.
            y: Class codes or values, shape (n,), or (n, k) for k label columns.
            names: Names of the metrics, such as `valid-auc`.

        Returns:
            The value of each metric, by its name.
        """
        of_order: list[str] = []
        if not self._has_probabilities:
            of_order = [name for name in names if needs(name, self.task) == "scores"]
        others = [name for name in names if name not in of_order]
        measured: dict[str, float] = {}
        if others:
            measured |= measure(self.task, "valid", y, y_pred=self.predict(x), names=others)
        if of_order:
            scores = self.decision_function(x)
            measured |= measure(self.task, "valid", y, y_pred=scores, names=of_order)
        return measured

    @property
    def _has_probabilities(self) -> bool:
        """True if the estimator predicts probabilities."""
        return self.task not in NUMBERS and hasattr(self.estimator, "predict_proba")

    def _label_columns(self, values: Any) -> np.ndarray:
        """Return the probability of 1 for each label column, shape (n, k).

        Args:
            values: The result of `predict_proba`: such an array, or for each label column an array
                with one column for each class that the label column had in training.
        """
        if not isinstance(values, list):
            return np.asarray(values, np.float64)
        classes = getattr(self.estimator, "classes_", [(0, 1)] * len(values))
        # A label column that never was 1 in training has no class 1, so the sum is 0.
        probabilities = [
            array[:, np.equal(known, 1)].sum(axis=1, dtype=np.float64)
            for array, known in zip(values, classes, strict=True)
        ]
        return np.column_stack(probabilities)

    def _class_columns(self, values: np.ndarray, absent: float) -> np.ndarray:
        """Return one column for each class code, or only that of the second class if there are two.

        Args:
            values: One column for each class that occurred in training.
            absent: The value for the other classes.
        """
        known = getattr(self.estimator, "classes_", range(values.shape[1]))
        columns = np.full((len(values), self.classes), absent)
        columns[:, np.asarray(known).astype(np.int64)] = values
        return columns[:, 1] if self.task == "binary" else columns


def can_measure(metric: str, task: str, estimator: Any) -> bool:
    """Return whether an estimator predicts what a metric needs. The estimator need not be fitted.

    Args:
        metric: Name of a metric, with or without `valid-`.
        task: See `Current.task`.
        estimator: The estimator.
    """
    if task in NUMBERS or hasattr(estimator, "predict_proba"):
        return True
    needed = needs(metric, task)
    return needed == "classes" or (needed == "scores" and hasattr(estimator, "decision_function"))


def adjacent_columns(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a copy of a frame in which the values of a column are adjacent in memory.

    Every frame that an estimator gets is such a copy.

    The last bits of a matrix product depend on the order of the values in memory. Without this
    function, a bundle would predict other bits.
    """
    return pd.DataFrame({str(name): frame[name] for name in frame.columns})


@contextlib.contextmanager
def limit_threads(number: int) -> Iterator[None]:
    """Limit the number of threads of BLAS and OpenMP in the block."""
    with _controller().limit(limits=number):
        yield


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Predict with one thread.

    The last bits of the sum over a forest's trees depend on the order in which several threads end.
    """
    with _controller().limit(limits=1, user_api="blas"), parallel_config(backend="sequential"):
        yield


@functools.cache
def _controller() -> ThreadpoolController:
    """Return the controller of the libraries for BLAS and OpenMP in this process.

    Its construction takes some milliseconds.
    """
    return ThreadpoolController()
