"""Metrics agree with XGBoost and with scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics as sk

from sweeps.core import references
from sweeps.core.metrics import METRICS, score

RNG = np.random.default_rng(0)


def evaluated(objective: str, names: list[str], y: np.ndarray, **params) -> tuple[np.ndarray, dict[str, float]]:
    """Predictions of a small booster, and XGBoost's own metrics of them."""
    xgb = pytest.importorskip("xgboost")
    rows = xgb.DMatrix(RNG.normal(size=(len(y), 4)) + y[:, None] * 0.5, label=y)
    params |= {"objective": objective, "eval_metric": names, "nthread": 1, "max_depth": 3, "eta": 0.6}
    found: dict = {}
    booster = xgb.train(params, rows, 15, evals=[(rows, "e")], evals_result=found, verbose_eval=False)
    return booster.predict(rows), {name: values[-1] for name, values in found["e"].items()}


def test_binary_as_xgboost():
    y = (RNG.random(500) < 0.3).astype(float)
    p, own = evaluated("binary:logistic", ["logloss", "error", "auc", "rmse", "mae"], y)
    for name, value in own.items():
        assert score(f"valid-{name}", "binary", y, p) == pytest.approx(value, abs=1e-5), name


def test_multiclass_as_xgboost():
    y = RNG.choice(3, 500, p=[0.6, 0.3, 0.1]).astype(float)
    p, own = evaluated("multi:softprob", ["mlogloss", "merror", "auc"], y, num_class=3)
    for name, value in own.items():
        assert score(name, "multiclass", y, p) == pytest.approx(value, abs=1e-5), name


def test_regression_as_xgboost():
    y = RNG.normal(size=300)
    p, own = evaluated("reg:squarederror", ["rmse", "mae"], y)
    for name, value in own.items():
        assert score(name, "regression", y, p) == pytest.approx(value, abs=1e-5), name


def test_the_rest_as_scikit_learn():
    y, p = RNG.integers(0, 2, 200), RNG.random(200).round(1)
    assert score("accuracy", "binary", y, p) == pytest.approx(sk.accuracy_score(y, p > 0.5))
    assert score("f1", "binary", y, p) == pytest.approx(sk.f1_score(y, p > 0.5))
    assert score("auc", "binary", y, p) == pytest.approx(sk.roc_auc_score(y, p))
    classes, many = RNG.integers(0, 4, 200), RNG.dirichlet(np.ones(4), 200)
    assert score("f1", "multiclass", classes, many) == pytest.approx(sk.f1_score(classes, many.argmax(1), average="macro"))
    assert score("r2", "regression", y, p) == pytest.approx(sk.r2_score(y, p))
    assert score("mse", "regression", y, p) == pytest.approx(sk.mean_squared_error(y, p))


def test_certain_and_wrong_costs_what_xgboost_says():
    assert score("logloss", "binary", np.array([1]), np.array([0.0])) == pytest.approx(-np.log(1e-16))


@pytest.mark.parametrize(
    ("metric", "task"), [("valid-ndcg", "binary"), ("loss", "regression"), ("rmse", "multiclass"), ("logloss", "regression")]
)
def test_what_is_not_known_is_none(metric, task):
    y = np.array([0, 1, 2])
    assert score(metric, task, y, np.full((3, 3), 1 / 3) if task == "multiclass" else np.full(3, 0.5)) is None


def test_what_is_not_defined_is_nan():
    assert np.isnan(score("auc", "binary", np.zeros(3), np.array([0.1, 0.2, 0.3])))
    assert np.isnan(score("rmse", "regression", np.array([]), np.array([])))


def test_both_prefixes_and_both_shapes():
    y, p = np.array([0, 1, 1]), np.array([0.2, 0.7, 0.4])
    two = np.column_stack([1 - p, p])
    assert len({score(name, "binary", y, q) for name in ("logloss", "valid-logloss", "valid_logloss") for q in (p, two)}) == 1


def test_no_metric_raises_on_predictions_that_are_nan():
    for name, metric in METRICS.items():
        task = metric.tasks[-1]
        y, p = np.array([0, 1, 2]), np.full((3, 3), np.nan) if task == "multiclass" else np.full(3, np.nan)
        assert isinstance(score(name, task, y, p), float), name


def cost(y_true: np.ndarray, y_pred: np.ndarray) -> float:
    """A user's metric: a false negative costs five times as much as a false positive."""
    return float(np.mean(np.where(y_true == 1, 5 * (y_pred <= 0.5), y_pred > 0.5)))


def not_a_number(y_true: np.ndarray, y_pred: np.ndarray) -> str:
    return "good"


def test_a_users_function_scores_predictions():
    y, p = np.array([0, 1, 1, 0]), np.array([0.7, 0.2, 0.9, 0.1])
    assert score("tests.core.test_metrics:cost", "binary", y, p) == 1.5
    with pytest.raises(references.RefError, match="has no `costs`"):
        score("tests.core.test_metrics:costs", "binary", y, p)
    with pytest.raises(references.RefError, match="must be a function of labels and predictions"):
        score("tests.core.test_metrics:RNG", "binary", y, p)
    with pytest.raises(ValueError, match="returned a str, but must return a number"):
        score("tests.core.test_metrics:not_a_number", "binary", y, p)
