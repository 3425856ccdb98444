"""The trainer `sklearn`: estimators, pipelines and functions, trained once or in steps."""

from __future__ import annotations

import json
import pickle
import re
import warnings
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
from sklearn import metrics as sk
from sklearn.base import BaseEstimator
from sklearn.compose import make_column_transformer
from sklearn.ensemble import BaggingClassifier, GradientBoostingRegressor, RandomForestClassifier
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from sweeps.testing.fake_session import FakeShard, LoopRun, run_loop, small_table
from sweeps.testing.pytest_trainers import TrainerTests
from sweeps.trainers import sklearn as trainer
from sweeps.trainers._estimator import EstimatorTraining, build
from sweeps.trainers._estimator_model import Model

HERE = "tests.trainers.test_sklearn_trainer"
FOREST = "sklearn.ensemble:RandomForestClassifier"


def scaled(C: float = 1.0, **options: Any) -> Pipeline:
    return Pipeline([("scale", StandardScaler()), ("clf", LogisticRegression(C=C, **options))])


def scaled_sgd() -> Pipeline:
    return Pipeline([("scale", StandardScaler()), ("clf", SGDClassifier(loss="log_loss"))])


def unpicklable() -> Pipeline:
    return make_pipeline(FunctionTransformer(lambda x: x), LogisticRegression())


def reads_text() -> Pipeline:
    encoder = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["city"]), remainder="passthrough"
    )
    return make_pipeline(encoder, LogisticRegression())


def bagged(n_jobs: int | None = None) -> BaggingClassifier:
    return BaggingClassifier(RandomForestClassifier(n_estimators=3), n_estimators=4, n_jobs=n_jobs)


class Blind(BaseEstimator):  # type: ignore[misc]
    def fit(self, x: pd.DataFrame, y: np.ndarray) -> Blind:
        return self


class TestForest(TrainerTests):
    module = "sweeps.trainers.sklearn"
    options: ClassVar = {"estimator": FOREST, "steps": 4}
    params: ClassVar = {"n_estimators": 10, "max_depth": 4}


class TestMiniBatches(TrainerTests):
    module = "sweeps.trainers.sklearn"
    options: ClassVar = {
        "estimator": "sklearn.linear_model:SGDClassifier",
        "steps": 5,
        "batch_size": 33,
    }
    params: ClassVar = {"loss": "log_loss", "alpha": 0.01}
    task = "multiclass"


class TestPipeline(TrainerTests):
    module = "sweeps.trainers.sklearn"
    options: ClassVar = {"estimator": f"{HERE}:scaled_sgd", "steps": 4}
    params: ClassVar = {"clf__alpha": 0.01}


class TestIterations(TrainerTests):
    module = "sweeps.trainers.sklearn"
    options: ClassVar = {"estimator": f"{HERE}:scaled", "steps": 4}
    params: ClassVar = {"C": 2.0, "solver": "saga", "clf__max_iter": 12}
    task = "multiclass"


def run(
    folder: Any,
    estimator: str,
    params: dict[str, Any] | None = None,
    task: str = "binary",
    resume: Any = None,
    **changed: Any,
) -> LoopRun:
    """Train on the small table.

    Arguments that are options of the trainer are its options; the others replace attributes of
    `Current`.
    """
    current, shards = changed.pop("table", None) or small_table(task)
    defaults = {"steps": None, "batch_size": None}
    options = {name: changed.pop(name) for name in [*changed] if name in defaults} | {
        "estimator": estimator
    }
    folder.mkdir(exist_ok=True, parents=True)
    return run_loop(
        trainer.train_func,
        params or {},
        current(**{"options": defaults | options} | changed),
        shards,
        folder,
        resume=resume,
    )


def last_model(loop_run: LoopRun) -> Model:
    return trainer.load(str(loop_run.checkpoints[max(loop_run.checkpoints)]))


def test_an_estimator_is_fitted_as_without_sweeps(tmp_path: Path) -> None:
    _, shards = small_table("multiclass")
    train, valid = shards["train"].frame, shards["valid"].frame
    params = {"n_estimators": 20, "max_depth": None}
    loop_run = run(
        tmp_path, FOREST, params, task="multiclass", asked=("valid-neg_log_loss",), steps=1
    )
    forest = RandomForestClassifier(20, random_state=7).fit(train.drop(columns="y"), train["y"])
    p = forest.predict_proba(valid.drop(columns="y"))
    assert len(loop_run.metrics) == 1
    assert loop_run.metrics[0]["valid-neg_log_loss"] == -sk.log_loss(valid["y"], p)
    np.testing.assert_array_equal(last_model(loop_run).predict(valid.drop(columns="y")), p)
    assert loop_run.final.keys() == {"valid-merror", "valid-accuracy"}
    assert loop_run.final["valid-accuracy"] == pytest.approx(
        forest.score(valid.drop(columns="y"), valid["y"])
    )


@pytest.mark.parametrize(
    ("estimator", "params", "task"),
    [
        (FOREST, {"n_estimators": 23}, "multiclass"),
        ("sklearn.ensemble:HistGradientBoostingClassifier", {"max_iter": 12}, "binary"),
    ],
)
def test_an_ensemble_that_grows_is_the_same_at_the_end(
    tmp_path: Path, estimator: Any, params: Any, task: str
) -> None:
    once = run(tmp_path / "once", estimator, params, task, steps=1)
    steps = run(tmp_path / "steps", estimator, params, task, steps=5, keep_last=True)
    assert (len(once.metrics), len(steps.metrics)) == (1, 5)
    assert steps.metrics[-1] == once.metrics[-1] != steps.metrics[-2]
    x = small_table(task)[1]["valid"].frame.drop(columns="y")
    np.testing.assert_array_equal(last_model(steps).predict(x), last_model(once).predict(x))


@pytest.mark.parametrize(
    ("estimator", "params", "options"),
    [
        (
            "sklearn.linear_model:SGDClassifier",
            {"loss": "log_loss", "learning_rate": "constant", "eta0": 5.0},
            {"steps": 12},
        ),
        (
            "sklearn.ensemble:HistGradientBoostingClassifier",
            {"learning_rate": 2.0, "max_iter": 12},
            {"steps": 12},
        ),
    ],
)
def test_the_model_of_the_best_step_is_kept(
    tmp_path: Path, estimator: str, params: Any, options: Any
) -> None:
    loop_run = run(tmp_path, estimator, params, **options)
    losses = [metrics["valid-logloss"] for metrics in loop_run.metrics]
    best = int(np.argmin(losses)) + 1
    assert best < len(losses), "the case should overfit"
    folder = loop_run.checkpoints[12]
    assert json.loads((folder / "sweeps.json").read_text()) == {"best_step": best}
    valid = small_table("binary")[1]["valid"].frame
    p = last_model(loop_run).predict(valid.drop(columns="y"))
    assert -np.log(np.where(valid["y"] == 1, p, 1 - p).clip(1e-16)).mean() == pytest.approx(
        min(losses)
    )


def test_seed_and_threads_follow_from_the_trial_at_every_depth() -> None:
    cur = small_table("binary")[0](threads=3, seed=11)
    forest = build(FOREST, {}, cur)
    assert (forest.random_state, forest.n_jobs) == (11, 3)
    own = build(FOREST, {"random_state": 1, "n_jobs": 2}, cur)
    assert (own.random_state, own.n_jobs) == (1, 2)
    assert build(FOREST, {"random_state": None}, cur).random_state is None, "as the user wants it"
    inside = build(f"{HERE}:bagged", {"estimator__max_depth": 2}, cur)
    assert (
        inside.n_jobs,
        inside.random_state,
        inside.estimator.n_jobs,
        inside.estimator.random_state,
    ) == (3, 11, 3, 11)
    assert inside.estimator.max_depth == 2
    with warnings.catch_warnings(
        action="error"
    ):  # scikit-learn warns about `n_jobs` of LogisticRegression
        training = EstimatorTraining(
            build("sklearn.linear_model:LogisticRegression", {}, cur), {}, 1, None, None, 7
        )
        training.run(1, pd.DataFrame({"a": [0, 1]}), np.arange(2), 2)


@pytest.mark.parametrize(
    ("estimator", "params", "task", "text"),
    [
        (
            "sklearn.ensemble:RandomForestRegressor",
            {},
            "binary",
            "is a regressor, but the label is for a classification",
        ),
        (FOREST, {}, "regression", "is a classifier, but the label is for a regression"),
        (
            "sklearn.preprocessing:StandardScaler",
            {},
            "regression",
            "is a StandardScaler, which has no method `predict`; name a classifier",
        ),
        (f"{HERE}:Blind", {}, "binary", "is a Blind, which has no method `predict`"),
        (
            f"{HERE}:scaled",
            {"clf__c": 3},
            "binary",
            f"params.clf__c is not a parameter of `{HERE}:scaled`; did you mean `clf__C`?",
        ),
        (f"{HERE}:unpicklable", {}, "binary", "the estimator cannot be pickled: "),
    ],
)
def test_what_cannot_be_trained_is_refused_in_one_line(
    tmp_path: Path, estimator: Any, params: Any, task: str, text: Any
) -> None:
    with pytest.raises(ValueError, match=re.escape(text)) as e:
        run(tmp_path, estimator, params, task)
    assert "\n" not in str(e.value)


@pytest.mark.parametrize("task", ["binary", "multiclass"])
def test_an_estimator_without_probabilities(tmp_path: Path, task: str) -> None:
    ranking = "valid-roc_auc" if task == "binary" else "valid-average_precision"
    wanted = ("valid-balanced_accuracy", ranking)
    loop_run = run(
        tmp_path,
        "sklearn.svm:LinearSVC",
        task=task,
        metric=wanted[0],
        asked=wanted,
        goal="maximize",
    )
    valid = small_table(task)[1]["valid"].frame
    model = last_model(loop_run)
    svc = model.estimator
    for name in wanted:
        assert loop_run.metrics[0][name] == pytest.approx(
            sk.get_scorer(name.removeprefix("valid-"))(svc, valid.drop(columns="y"), valid["y"])
        )
    assert model.predict(valid.drop(columns="y")).dtype == np.int64
    assert "valid-logloss" not in loop_run.final and "valid-accuracy" in loop_run.final
    text = (
        "`valid-neg_log_loss` needs probabilities, but `sklearn.svm:LinearSVC` has no "
        "`predict_proba`; choose a metric of classes"
    )
    with pytest.raises(ValueError, match=text):
        run(
            tmp_path / "no",
            "sklearn.svm:LinearSVC",
            task=task,
            metric="valid-neg_log_loss",
            goal="maximize",
        )


def test_predictions_are_independent_of_layout_and_threads(tmp_path: Path) -> None:
    _, shards = small_table("regression")
    x = shards["valid"].frame.drop(columns="y")
    for name in ("LinearRegression", "BayesianRidge"):
        model = last_model(
            run(tmp_path / name, f"sklearn.linear_model:{name}", {}, task="regression")
        )
        by_rows = pd.DataFrame(np.ascontiguousarray(x), columns=x.columns)
        by_columns = pd.DataFrame(np.asfortranarray(x), columns=x.columns)
        np.testing.assert_array_equal(model.predict(by_rows), model.predict(by_columns))
    forest = last_model(run(tmp_path / "forest", FOREST, {"n_estimators": 50, "n_jobs": 4}))
    assert len({forest.predict(x).tobytes() for _ in range(10)}) == 1


def test_text_is_refused_with_columns_or_read_by_pipeline(tmp_path: Path) -> None:
    current, shards = small_table("binary")
    for name, shard in shards.items():
        shards[name] = FakeShard(shard.frame.assign(city=["Lyon", "Pau"] * (len(shard.frame) // 2)))
    check = shards["valid"].frame.drop(columns="y").iloc[:32]
    with pytest.raises(
        ValueError, match="these columns are not numeric after preprocessing: city;"
    ):
        run(tmp_path / "forest", FOREST, table=(current, shards), check=check)
    loop_run = run(
        tmp_path / "pipeline",
        f"{HERE}:reads_text",
        table=(lambda **keys: current(**keys, _cached_objects={}), shards),
        check=check,
    )
    assert last_model(loop_run).predict(check).shape == (32,)


@pytest.mark.parametrize(
    ("estimator", "params", "changed"),
    [
        (
            "sklearn.neural_network:MLPClassifier",
            {"learning_rate_init": 1e-3},
            {"learning_rate_init": 0.1},
        ),
        (
            "sklearn.ensemble:GradientBoostingClassifier",
            {"learning_rate": 0.1, "n_estimators": 12},
            {"learning_rate": 1.0},
        ),
        (f"{HERE}:scaled_sgd", {"clf__alpha": 1e-4}, {"clf__alpha": 1.0}),
    ],
)
def test_changed_parameters_take_effect_on_resume(
    tmp_path: Path, estimator: Any, params: Any, changed: Any
) -> None:
    whole = run(tmp_path / "whole", estimator, params, steps=6, checkpoint_interval=0.0)
    other = run(
        tmp_path / "other", estimator, params | changed, steps=6, resume=whole.checkpoints[3]
    )
    same = run(tmp_path / "same", estimator, params, steps=6, resume=whole.checkpoints[3])
    assert same.metrics == whole.metrics[3:] and len(other.metrics) == 3
    assert all(a != b for a, b in zip(other.metrics, same.metrics, strict=True))
    state = pickle.loads(
        (
            (folder := other.checkpoints[3])
            / ("latest.pkl" if (folder / "latest.pkl").exists() else "model.pkl")
        ).read_bytes()
    )
    ((name, value),) = changed.items()
    assert state.get_params()[name] == value


def test_a_snapshot_shares_the_trees_and_is_not_changed_by_later_steps() -> None:
    x = pd.DataFrame({"a": np.arange(40.0)})
    for estimator in (GradientBoostingRegressor(n_estimators=8), RandomForestClassifier(8)):
        training = EstimatorTraining(estimator, {}, 4, None, None, 7)
        y = np.arange(40) % 2
        training.run(1, x, y, 2)
        kept = training.snapshot()
        before = kept.predict(x)
        training.run(2, x, y, 2)
        np.testing.assert_array_equal(kept.predict(x), before)
        assert len(kept.estimators_) == 2 and len(training.estimator.estimators_) == 4
        assert np.ravel(kept.estimators_)[0] is np.ravel(training.estimator.estimators_)[0]
