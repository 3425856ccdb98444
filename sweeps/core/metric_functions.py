"""The functions of the metrics; see `metrics.Metric.function` for the shapes of their arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


# XGBoost clips probabilities at this value in `logloss` and `mlogloss`. scikit-learn's `log_loss`
# clips at another value.
SMALLEST_PROBABILITY = 1e-16


def log_losses(y: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Return the negative logarithm of the probability of each row's label."""
    import numpy as np

    return np.asarray(-np.log(np.maximum(p[np.arange(len(y)), y], SMALLEST_PROBABILITY)))


def predicted_class(p: np.ndarray) -> np.ndarray:
    """Return the most likely class of each row.

    If there are two classes, class 1 is chosen if its probability is above 0.5, as in XGBoost's
    `error`.
    """
    import numpy as np

    return (p[:, 1] > 0.5).astype(np.int64) if p.shape[1] == 2 else p.argmax(axis=1)


def errors(y: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Return 1 for each row whose predicted class is wrong, and 0 for the others."""
    import numpy as np

    return np.asarray(predicted_class(p) != y, dtype=np.float64)


def hits(y: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Return 1 for each row whose predicted class is right, and 0 for the others."""
    return 1 - errors(y, p)


def auc(y: np.ndarray, p: np.ndarray) -> float:
    """Return the area under the ROC curve; see `auc_of_draws`."""
    import numpy as np

    return float(auc_of_draws(y, p, np.ones((1, len(y)), dtype=np.int64))[0])


def auc_of_draws(y: np.ndarray, p: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the area under the ROC curve for several draws of the rows.

    With more than two classes, compute the area of each class against all other classes. The result
    is the mean of these areas, weighted by the frequency of the class, as in XGBoost.

    Args:
        y: Class codes, shape (n,).
        p: Probabilities or scores, shape (n, k).
        counts: How many times each draw has each row, integers of shape (draws, n).

    Returns:
        The areas, shape (draws,). NaN if a class does not occur in a draw.
    """
    import numpy as np

    classes = [1] if p.shape[1] == 2 else range(p.shape[1])
    areas = np.zeros(len(counts))
    for c in classes:
        order = np.argsort(p[:, c], kind="stable")
        inside, outside = order[y[order] == c], order[y[order] != c]
        drawn = counts[:, inside]
        # Number of rows outside the class up to each of them, in the order of their scores
        before = np.zeros((len(counts), len(outside) + 1))
        np.cumsum(counts[:, outside], axis=1, out=before[:, 1:])
        lower = before[:, np.searchsorted(p[outside, c], p[inside, c], "left")]
        lower += before[:, np.searchsorted(p[outside, c], p[inside, c], "right")]
        pairs = drawn.sum(axis=1) * before[:, -1]
        with np.errstate(invalid="ignore", divide="ignore"):
            area = np.einsum("ij,ij->i", drawn, lower) / 2 / pairs
        share = 1 if len(classes) == 1 else drawn.sum(axis=1) / counts.sum(axis=1)
        areas += area * share
    return areas


def f1(y: np.ndarray, p: np.ndarray) -> float:
    """Return the F1 score of class 1.

    With more than two classes, return the mean of the F1 scores of all classes that occur in the
    labels or the predictions.
    """
    import numpy as np

    predicted = predicted_class(p)
    classes = [1] if p.shape[1] == 2 else np.union1d(y, predicted)
    scores = []
    for c in classes:
        both = 2 * int(((y == c) & (predicted == c)).sum())
        total = int((y == c).sum()) + int((predicted == c).sum())
        scores.append(both / total if total else 0.0)
    return float(np.mean(scores))


def squared_errors(y: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Return the squared error of each row; of several columns, the mean over the columns."""
    return _row_means((y - p) ** 2)


def absolute_errors(y: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Return the absolute error of each row; of several columns, the mean over the columns."""
    return _row_means(abs(y - p))


def _row_means(values: np.ndarray) -> np.ndarray:
    """Return the mean of each row of values with one or several columns."""
    import numpy as np

    return np.asarray(values.reshape(len(values), -1).mean(axis=1))


def r2(y: np.ndarray, p: np.ndarray) -> float:
    """Return R², or the mean of the columns' R²; NaN if a column is constant."""
    from sklearn.metrics import r2_score

    return float("nan") if (y == y[0]).all(axis=0).any() else float(r2_score(y, p))


def call_scorer(name: str, y: np.ndarray, p: np.ndarray) -> float:
    """Call a scorer of scikit-learn. Return NaN if the scorer does not accept the predictions.

    If the scorer raises an error, a second call with constant predictions shows whether the labels
    or the predictions are the cause.

    Raises:
        ValueError: The scorer does not accept the labels, because it does not accept constant
            predictions for them either.
    """
    import numpy as np

    from .sklearn_scorers import score

    if not np.isfinite(p).all():
        return float("nan")
    try:
        return score(name, y, p)
    except ValueError as e:
        try:
            score(name, y, np.full_like(p, 1 / p[0].size))  # equal probabilities of all classes
        except ValueError:
            raise ValueError(
                f"the metric `{name}` cannot be computed for these labels: {e}"
            ) from None
        return float("nan")
