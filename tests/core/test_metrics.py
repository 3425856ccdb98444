"""Metrics agree with XGBoost and with scikit-learn."""

from __future__ import annotations

import math
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest
from sklearn import metrics as sk
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.linear_model import LinearRegression
from sklearn.naive_bayes import GaussianNB

from sweeps.core.metrics import METRICS, OWN, SCORERS, find, score
from sweeps.core.plugins import references

RNG = np.random.default_rng(0)


def evaluated(
    objective: str, names: list[str], y: np.ndarray, **params: Any
) -> tuple[np.ndarray, dict[str, float]]:
    """Predictions of a small booster, and XGBoost's own metrics of them."""
    import xgboost as xgb

    rows = xgb.DMatrix(RNG.normal(size=(len(y), 4)) + y[:, None] * 0.5, label=y)
    params |= {
        "objective": objective,
        "eval_metric": names,
        "nthread": 1,
        "max_depth": 3,
        "eta": 0.6,
    }
    evaluations: dict[str, dict[str, list[float]]] = {}
    booster = xgb.train(
        params, rows, 15, evals=[(rows, "e")], evals_result=evaluations, verbose_eval=False
    )
    return booster.predict(rows), {name: values[-1] for name, values in evaluations["e"].items()}


def test_binary_as_xgboost() -> None:
    y = (RNG.random(500) < 0.3).astype(float)
    p, own = evaluated("binary:logistic", ["logloss", "error", "auc", "rmse", "mae"], y)
    for name, value in own.items():
        assert score(f"valid-{name}", "binary", y, p) == pytest.approx(value, abs=1e-5), name


def test_multiclass_as_xgboost() -> None:
    y = RNG.choice(3, 500, p=[0.6, 0.3, 0.1]).astype(float)
    p, own = evaluated("multi:softprob", ["mlogloss", "merror", "auc"], y, num_class=3)
    for name, value in own.items():
        assert score(name, "multiclass", y, p) == pytest.approx(value, abs=1e-5), name


def test_regression_as_xgboost() -> None:
    y = RNG.normal(size=300)
    p, own = evaluated("reg:squarederror", ["rmse", "mae"], y)
    for name, value in own.items():
        assert score(name, "regression", y, p) == pytest.approx(value, abs=1e-5), name


def test_certain_and_wrong_costs_what_xgboost_says() -> None:
    assert score("logloss", "binary", np.array([1]), np.array([0.0])) == pytest.approx(
        -np.log(1e-16)
    )


def is_nan(value: float | None) -> bool:
    return value is not None and math.isnan(value)


def test_what_is_not_defined_is_nan() -> None:
    assert is_nan(score("auc", "binary", np.zeros(3), np.array([0.1, 0.2, 0.3])))
    assert is_nan(score("rmse", "regression", np.array([]), np.array([])))


@pytest.mark.parametrize(
    "task", ["binary", "multiclass", "regression", "multilabel", "multioutput"]
)
def test_predictions_that_are_nan_have_no_value(task: str) -> None:
    """Otherwise NaN would count as the first class, and a network that has diverged could have a
    good accuracy.
    """
    y = {
        "binary": np.array([0, 0, 1]),
        "multilabel": np.array([[0, 1], [1, 0], [0, 0]]),
        "multioutput": np.array([[0, 1], [1, 0], [2, 2]]),
    }.get(task, np.array([0, 1, 2]))
    p = np.full((3, 3) if task == "multiclass" else y.shape, 0.5)
    p[0] = np.nan
    for name in (name for name, metric in METRICS.items() if task in metric.tasks):
        assert is_nan(score(name, task, y, p)), name


def test_the_table_has_every_scorer_of_scikit_learn() -> None:
    assert sorted(SCORERS) == sk.get_scorer_names()


def fitted(task: str) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray]:
    """A fitted estimator of scikit-learn, rows with their labels, and the estimator's output in the
    format of `Model.predict`.
    """
    x = RNG.normal(size=(300, 4))
    classes = {
        "binary": x[:, 0] + RNG.normal(size=300) > 0.4,
        "multiclass": np.digitize(x[:, 0] + RNG.normal(size=300), [-0.8, 0.6]),
    }.get(task)
    if classes is None:
        y = 40 + x @ np.arange(4) + RNG.normal(size=300)
        model = LinearRegression().fit(x, y)
        return model, x, y, model.predict(x)
    y = classes.astype(int)
    model = GaussianNB().fit(x, y)  # has no decision function
    p = model.predict_proba(x)
    return model, x, y, p[:, 1] if task == "binary" else p


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
def test_a_scorer_gives_what_scikit_learn_gives_for_the_estimator(task: str) -> None:
    model, x, y, p = fitted(task)
    names = [name for name, metric in SCORERS.items() if task in metric.tasks and name not in OWN]
    assert len(names) >= 12
    for name in names:
        assert score(f"valid-{name}", task, y, p) == pytest.approx(
            sk.get_scorer(name)(model, x, y), rel=1e-12
        ), name


class Fixed(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """An estimator of scikit-learn that predicts the given values."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def fit(self, x: Any, y: Any) -> Any:
        return self

    def predict(self, x: Any) -> Any:
        return self.values

    def __sklearn_is_fitted__(self) -> bool:
        return True


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.UndefinedMetricWarning")
@pytest.mark.parametrize("task", ["multilabel", "multioutput"])
def test_metrics_of_several_labels(task: str) -> None:
    y, p = RNG.random((60, 3)), RNG.random((60, 3))
    y = np.round(y).astype(int) if task == "multilabel" else y
    guessed = np.round(p).astype(int) if task == "multilabel" else p
    kind = "f1 jaccard precision recall" if task == "multilabel" else ""
    names = [name for name, metric in METRICS.items() if task in metric.tasks]
    assert len(names) >= 10
    for name in names:
        if name not in OWN:
            expected = sk.get_scorer(name)(Fixed(guessed), np.zeros((60, 1)), y)
            assert score(f"valid-{name}", task, y, p) == pytest.approx(expected), name
            assert not kind or name.partition("_")[0] in kind.split()
    flat = (
        {"logloss": sk.log_loss(y.ravel(), p.ravel()), "error": np.mean(guessed != y)}
        if task == "multilabel"
        else {}
    )
    if task == "multioutput":
        flat = {
            "rmse": np.mean((y - p) ** 2) ** 0.5,
            "mae": np.mean(abs(y - p)),
            "r2": sk.r2_score(y, p),
        }
    for name, expected in flat.items():
        assert score(name, task, y, p) == pytest.approx(expected), name
    assert is_nan(score("logloss" if task == "multilabel" else "rmse", task, y[:0], p[:0]))
    assert score("auc", task, y, p) is None


def test_scorer_gives_nan_for_predictions_and_raises_for_labels() -> None:
    y = np.array([0.5, 1.0, 2.0])
    for name in (
        "neg_mean_squared_log_error",
        "neg_mean_gamma_deviance",
        "neg_mean_poisson_deviance",
    ):
        assert is_nan(score(name, "regression", y, np.array([-3.0, 1.0, 2.0]))), name
        with pytest.raises(
            ValueError, match=f"the metric `{name}` cannot be computed for these labels: Mean "
        ):
            score(name, "regression", -y, y)
    value = score(
        "neg_mean_poisson_deviance", "regression", np.array([0.0, 1.0]), np.array([0.2, 1.0])
    )
    assert value is not None and math.isfinite(value)


def test_probabilities_of_32_bits_are_accepted_without_a_warning() -> None:
    y, p = RNG.integers(0, 7, 500), RNG.dirichlet(np.ones(7), 500)
    with warnings.catch_warnings(action="error"):
        value = score("neg_log_loss", "multiclass", y, p.astype(np.float32))
    assert value == pytest.approx(score("neg_log_loss", "multiclass", y, p), rel=1e-5)
    with pytest.warns(UserWarning, match="do not sum to one"):
        score("neg_log_loss", "multiclass", y, p / 2)


@pytest.mark.parametrize("task", ["binary", "multiclass"])
def test_class_codes_give_the_metrics_that_need_only_classes(task: str) -> None:
    model, x, y, p = fitted(task)
    codes = model.predict(x)
    for name, metric in METRICS.items():
        if find(name, task) is None:
            continue
        if metric.needs == "classes":
            assert score(name, task, y, codes) == pytest.approx(score(name, task, y, p)), name
        else:
            with pytest.raises(
                ValueError,
                match=f"`{name}` needs probabilities, but the model predicts only classes",
            ):
                score(name, task, y, codes)


def test_the_table_is_read_without_scikit_learn() -> None:
    code = (
        "import sys; from sweeps.core.metrics import SCORERS; assert 'sklearn' not in sys.modules "
        "and 'numpy' not in sys.modules, SCORERS"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def cost(y_true: np.ndarray, y_pred: np.ndarray) -> float:
    """A user's metric: a false negative costs five times as much as a false positive."""
    return float(np.mean(np.where(y_true == 1, 5 * (y_pred <= 0.5), y_pred > 0.5)))


def not_a_number(y_true: np.ndarray, y_pred: np.ndarray) -> str:
    return "good"


def test_a_users_function_scores_predictions() -> None:
    y, p = np.array([0, 1, 1, 0]), np.array([0.7, 0.2, 0.9, 0.1])
    assert score("tests.core.test_metrics:cost", "binary", y, p) == 1.5
    with pytest.raises(references.RefError, match="has no `costs`"):
        score("tests.core.test_metrics:costs", "binary", y, p)
    with pytest.raises(references.RefError, match="must be a function of labels and predictions"):
        score("tests.core.test_metrics:RNG", "binary", y, p)
    with pytest.raises(ValueError, match="returned a str, but must return a number"):
        score("tests.core.test_metrics:not_a_number", "binary", y, p)
