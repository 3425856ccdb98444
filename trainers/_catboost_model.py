"""Prepare tables for CatBoost, predict with its models, and translate the names of its metrics."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

import catboost as cb
import numpy as np
from catboost.utils import eval_metric
from scipy.special import expit, softmax

from sweeps import trial
from sweeps.core.metrics import OWN

from . import read_rows

if TYPE_CHECKING:
    import pandas as pd

MISSING = "(missing)"  # CatBoost refuses missing values in a categorical column
# CatBoost's names of the metrics in `sweeps.core.metrics`. The error rate is 1 minus the accuracy.
NATIVE = {
    "binary": {"logloss": "Logloss", "error": "Accuracy", "accuracy": "Accuracy", "auc": "AUC"},
    "multiclass": {
        "mlogloss": "MultiClass",
        "logloss": "MultiClass",
        "merror": "Accuracy",
        "error": "Accuracy",
        "accuracy": "Accuracy",
    },
    "regression": {"rmse": "RMSE", "mae": "MAE"},
}
# sweeps's metrics that are 1 minus CatBoost's accuracy.
COMPLEMENTS_OF_ACCURACY = ("error", "merror")
# Loss functions whose models predict the logarithm of the target.
EXPONENTIAL = ("Poisson", "Tweedie")
# Labels and raw predictions, with which CatBoost is asked whether it knows a metric.
TINY: dict[str, tuple[list[float], np.ndarray]] = {
    "binary": ([0, 1, 0, 1], np.array([0.1, 0.4, -0.3, 0.2])),
    "multiclass": ([0, 1, 2], np.array([[0.1, 0.4, -0.3], [0.3, 0.1, 0.2], [-0.2, 0.3, 0.5]])),
    "regression": ([1.0, 2.0, 3.0, 4.0], np.array([1.1, 2.1, 2.9, 4.2])),
}


def metric_name(task: str, split: str, metric: str, weighted: bool = False) -> str | None:
    """Return CatBoost's name of a metric; None if CatBoost does not have the metric.

    Args:
        task: "binary", "multiclass" or "regression".
        split: "train" or "valid".
        metric: Name of the metric without a split.
        weighted: True if the rows of train have weights. A metric of train then counts each row
            once, if CatBoost allows it.
    """
    # The same definition as in XGBoost and LightGBM
    metric = re.sub(r"^ndcg@(\d+)$", r"NDCG:top=\1;type=Exp", metric)
    name: str | None = metric
    if metric in OWN:
        name = NATIVE[task].get(metric)
    elif not _is_known(task, metric):
        name = None
    if name is None or split == "valid" or not weighted:
        return name
    separator = ";" if ":" in name else ":"
    unweighted = f"{name}{separator}use_weights=false"
    return unweighted if _is_known(task, unweighted) else name


@functools.lru_cache(maxsize=64)
def _is_known(task: str, metric: str) -> bool:
    """Return whether CatBoost has a metric that is one number for this task."""
    label, raw = TINY[task]
    try:
        return len(eval_metric(label, raw, metric, group_id=[0] * len(label))) == 1
    except cb.CatBoostError:
        return False


def categorical_names(features: pd.DataFrame) -> list[str]:
    """Return the names of the columns with text or categories.

    Raises:
        ValueError: A column has neither numbers, nor text, nor categories, such as a column of
            dates.
    """
    names: list[str] = []
    others: list[str] = []
    for name, dtype in features.dtypes.items():
        if isinstance(dtype, np.dtype) and dtype.kind in "biuf":
            continue
        is_text = str(dtype) in ("category", "str", "string", "object")
        (names if is_text else others).append(str(name))
    if others:
        raise ValueError(
            f"these columns have neither numbers nor text: {', '.join(others[:10])}; drop such a "
            "column with `data.drop`"
        )
    return names


def with_text(features: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    """Return the rows with text in the named columns. A missing value becomes `MISSING`."""
    texts = {
        name: features[name].astype(object).where(features[name].notna(), MISSING).astype(str)
        for name in names
    }
    return features.assign(**texts)


def labeled_pool(split: str, cur: trial.Current) -> tuple[cb.Pool, np.ndarray]:
    """Return this worker's rows of `train` or `valid` in CatBoost's format, and their labels."""
    rows = read_rows(split, cur)
    names = categorical_names(rows.features)
    pool = cb.Pool(
        with_text(rows.features, names),
        rows.label,
        cat_features=names,
        weight=rows.weight,
        group_id=rows.query,
        thread_count=cur.threads,
    )
    return pool, rows.label


def predictions_of(raw: np.ndarray, task: str, loss: str) -> np.ndarray:
    """Convert raw predictions of a model to probabilities or values.

    Args:
        raw: The raw predictions, shape (n,) or (n, k).
        task: "binary", "multiclass" or "regression".
        loss: Name of the loss function.

    Returns:
        A float64 array with the probability of the second class, shape (n,); the probabilities of k
        classes, shape (n, k); or the values of a regression, shape (n,).
    """
    if task == "regression":
        values = raw if raw.ndim == 1 else raw[:, 0]
        return np.asarray(np.exp(values) if loss in EXPONENTIAL else values)
    if task == "binary" or loss == "MultiClassOneVsAll":
        return np.asarray(expit(raw))
    return np.asarray(softmax(raw, axis=1))


class Model:
    """A trained model.

    Args:
        model: CatBoost's model.
        task: "binary", "multiclass" or "regression".
        loss: Name of the loss function.
        rounds: Number of rounds that are used; 0 for all.
        threads: Number of threads; -1 for all CPUs.
    """

    def __init__(
        self, model: cb.CatBoost, task: str, loss: str, rounds: int = 0, threads: int = -1
    ):
        self.model = model
        self.task = task
        self.loss = loss
        self.rounds = rounds
        self.threads = threads

    def predict(self, features: pd.DataFrame) -> np.ndarray:
        """Predict prepared rows. The result has the format of `predictions_of`.

        Args:
            features: The training columns, in their order.
        """
        names = [str(features.columns[i]) for i in self.model.get_cat_feature_indices()]
        return self.predict_pool(
            cb.Pool(with_text(features, names), cat_features=names, thread_count=self.threads)
        )

    def predict_pool(self, pool: cb.Pool) -> np.ndarray:
        """Predict the rows of a pool."""
        raw = self.model.predict(
            pool, prediction_type="RawFormulaVal", ntree_end=self.rounds, thread_count=self.threads
        )
        return predictions_of(np.asarray(raw, np.float64), self.task, self.loss)
