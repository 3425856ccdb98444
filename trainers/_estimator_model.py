"""Predict with a trained estimator, and measure its predictions."""

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from joblib import parallel_config
from threadpoolctl import ThreadpoolController

from sweeps.core.label_columns import MULTILABEL, MULTIOUTPUT, SEVERAL
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
        x = columns(features)
        with _one_thread():
            if self._has_probabilities and self.task == MULTILABEL:
                return self._of_labels(self.estimator.predict_proba(x))
            if self._has_probabilities:
                return self._of_classes(self.estimator.predict_proba(x), 0.0)
            predictions = np.asarray(self.estimator.predict(x)).reshape(
                (len(x), -1) if self.task in SEVERAL else len(x)
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
            or self.task in SEVERAL
            or not hasattr(self.estimator, "decision_function")
        ):
            return self.predict(features)
        with _one_thread():
            values = np.asarray(self.estimator.decision_function(columns(features)), np.float64)
        return self._of_classes(
            np.column_stack([-values, values]) if values.ndim == 1 else values,
            values.min(initial=0) - 1,
        )

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
        ranked: list[str] = []
        others: list[str] = []
        for name in names:
            is_ranked = not self._has_probabilities and needs(name, self.task) == "scores"
            (ranked if is_ranked else others).append(name)
        measured: dict[str, float] = {}
        for predict, chosen in ((self.predict, others), (self.decision_function, ranked)):
            if chosen:
                measured |= measure(self.task, "valid", y, y_pred=predict(x), names=chosen)
        return measured

    @property
    def _has_probabilities(self) -> bool:
        """True if the estimator predicts probabilities."""
        return self.task not in NUMBERS and hasattr(self.estimator, "predict_proba")

    def _of_labels(self, values: Any) -> np.ndarray:
        """Return the probability of 1 for each label column, shape (n, k).

        Args:
            values: The result of `predict_proba`: such an array, or for each label column an array
                with one column for each class that the label column had in training.
        """
        if not isinstance(values, list):
            return np.asarray(values, np.float64)
        classes = getattr(self.estimator, "classes_", [(0, 1)] * len(values))
        labels = [
            sum((part[:, i] for i, known in enumerate(of) if known == 1), np.zeros(len(part)))
            for part, of in zip(values, classes, strict=True)
        ]
        return np.column_stack(labels)

    def _of_classes(self, values: np.ndarray, absent: float) -> np.ndarray:
        """Return one column for each class code.

        Classes that did not occur in training get the value `absent`.

        For two classes, return only the column of the second class.
        """
        known = np.asarray(getattr(self.estimator, "classes_", range(values.shape[1]))).astype(
            np.int64
        )
        out = np.full((len(values), self.classes), absent)
        out[:, known] = values
        return out[:, 1] if self.task == "binary" else out


def can_measure(metric: str, task: str, estimator: Any) -> bool:
    """Return whether an estimator predicts what a metric needs. The estimator need not be fitted.

    Args:
        metric: Name of a metric, with or without `valid-`.
        task: See `Current.task`.
        estimator: The estimator.
    """
    enough = ("classes", "scores") if hasattr(estimator, "decision_function") else ("classes",)
    return task in NUMBERS or hasattr(estimator, "predict_proba") or needs(metric, task) in enough


def columns(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a copy of a frame in which the values of a column are adjacent in memory.

    Every frame that an estimator gets is such a copy.

    The last bits of a matrix product depend on the order of the values in memory. Without this
    function, a bundle would predict other bits.
    """
    return pd.DataFrame({str(name): frame[name] for name in frame.columns})


@contextlib.contextmanager
def threads(number: int) -> Iterator[None]:
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
