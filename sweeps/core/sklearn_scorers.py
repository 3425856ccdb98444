"""Call scikit-learn's scorers with labels and predictions instead of an estimator."""

import numpy as np
import sklearn
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.metrics import get_scorer

# If a class does not occur in `y_true`, the scorers whose names contain one of these texts need the
# argument `labels`.
_NAME_PARTS_WITH_LABELS = ("log_loss", "brier", "roc_auc_ov", "top_k")
# The names of the scorers that take several label columns of 0 and 1 begin with one of these.
_MULTILABEL_PREFIXES = ("f1_", "jaccard_", "precision_", "recall_")
# Bounds for the difference between 1 and the sum of a row's probabilities. scikit-learn warns above
# the first bound. Rounding to 32 bits stays below the second one.
_SKLEARN_TOLERANCE = 1e-8
_ROUNDING_ERROR = 1e-5


class _Classifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Stand-in for a fitted classifier: it returns its input as the probabilities.

    With two classes, it predicts class 1 if the probability of this class is above 0.5.
    """

    def __init__(self, classes: int = 2):
        self.classes = classes
        self.classes_ = np.arange(classes)

    def predict_proba(self, p: np.ndarray) -> np.ndarray:
        return p

    def predict(self, p: np.ndarray) -> np.ndarray:
        return np.asarray(p.argmax(axis=1))


class _Regressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Stand-in for a fitted regressor: it returns its input as the predictions."""

    def predict(self, p: np.ndarray) -> np.ndarray:
        return p


def score(name: str, y_true: np.ndarray, y_pred: np.ndarray) -> float:
    """Return the value of a scorer of scikit-learn.

    Args:
        name: Name of the scorer, such as `balanced_accuracy`.
        y_true: Class codes of shape (n,) for a classification; numbers of shape (n,) for a
            regression. For several label columns, numbers, or 0 and 1, of shape (n, k).
        y_pred: Probabilities of all k classes, shape (n, k), for a classification; numbers of shape
            (n,) for a regression. For several label columns, numbers, or the probability of 1, of
            shape (n, k).

    Raises:
        ValueError: The installed scikit-learn has no such scorer, or the scorer does not accept the
            labels or the predictions.
    """
    scorer = get_scorer(name)
    if y_true.ndim == 2:
        if name.startswith(_MULTILABEL_PREFIXES):
            y_pred = (y_pred > 0.5).astype(np.int64)
        return float(scorer(_Regressor(), y_pred, y_true))
    if y_pred.ndim == 1:
        return float(scorer(_Regressor(), y_pred, y_true))
    sums = y_pred.sum(axis=1, keepdims=True)
    if _SKLEARN_TOLERANCE < abs(sums - 1).max() < _ROUNDING_ERROR:
        y_pred = y_pred / sums
    classes = y_pred.shape[1]
    model = _Classifier(classes)
    takes_labels = any(part in name for part in _NAME_PARTS_WITH_LABELS)
    if len(np.unique(y_true)) == classes or not takes_labels:
        return float(scorer(model, y_pred, y_true))
    # Without metadata routing, a scorer does not accept the argument `labels`.
    with sklearn.config_context(enable_metadata_routing=True):
        return float(scorer(model, y_pred, y_true, labels=list(range(classes))))
