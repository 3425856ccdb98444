"""Several label columns in the trainers that predict them."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

from sweeps.core.loop_context import CHECK_PREDICTIONS
from sweeps.core.metrics import score
from sweeps.testing.fake_session import FakeShard, LoopRun, run_loop, small_table

LABELS = ["u", "v"]
TASKS = ("multilabel", "multioutput")
METRIC = {"multilabel": "valid-logloss", "multioutput": "valid-rmse"}
each_task = pytest.mark.parametrize("task", TASKS)


def table(task: str, **changed: Any) -> tuple[Any, dict[str, FakeShard]]:
    """Return a `Current` and the shards of a table with the label columns `u` and `v`."""
    current, shards = small_table("regression", rows=400)
    frames = {}
    for name, shard in shards.items():
        x = shard.frame.drop(columns="y")
        values = pd.DataFrame({"u": 3 * x["x0"] + x["x1"] ** 2 + 100, "v": x["x2"] - x["x0"]})
        labels = values if task == "multioutput" else (values > values.median()).astype("int64")
        frames[name] = FakeShard(x.assign(**labels))
    check = frames["valid"].frame.drop(columns=LABELS).head(32)
    about = {
        "label": LABELS,
        "task": task,
        "classes": None,
        "metric": METRIC[task],
        "check": check,
        "checkpoint_interval": 0.0,
    }
    return current(**about | changed), frames


def trained(
    trainer: str, task: str, params: dict[str, Any], folder: Path, **changed: Any
) -> tuple[LoopRun, dict[str, FakeShard], np.ndarray]:
    """Train, and return the run, the shards, and the loaded model's predictions for valid.

    They must have the reported metrics.
    """
    module = importlib.import_module(f"sweeps.trainers.{trainer}")
    cur, shards = table(task, **changed)
    folder.mkdir(exist_ok=True)
    run = run_loop(module.train_func, params, cur, shards, folder)
    valid = shards["valid"].frame
    best = run.checkpoints[max(run.checkpoints)]
    model = module.load(str(best))
    predicted = np.asarray(model.predict(valid.drop(columns=LABELS)))
    assert predicted.shape == (len(valid), 2)
    values = [m[METRIC[task]] for m in run.metrics]
    assert score(METRIC[task], task, valid[LABELS].to_numpy(), predicted) == pytest.approx(
        min(values), rel=1e-4
    )
    np.testing.assert_array_equal(np.load(best / CHECK_PREDICTIONS), model.predict(cur.check))
    return run, shards, predicted


@each_task
@pytest.mark.parametrize("strategy", ["one_output_per_tree", "multi_output_tree"])
def test_xgboost(task: Any, strategy: str, tmp_path: Path) -> None:
    params = {"num_boost_round": 5, "max_depth": 3, "multi_strategy": strategy}
    _, shards, predicted = trained("xgboost", task, params, tmp_path)
    objective = "binary:logistic" if task == "multilabel" else "reg:squarederror"
    train, valid = (
        xgb.DMatrix(s.frame.drop(columns=LABELS), s.frame[LABELS])
        for s in (shards["train"], shards["valid"])
    )
    own = {
        "objective": objective,
        "max_depth": 3,
        "multi_strategy": strategy,
        "nthread": 1,
        "seed": 7,
    }
    np.testing.assert_allclose(predicted, xgb.train(own, train, 5).predict(valid), rtol=1e-6)


@each_task
def test_sklearn_grows_a_forest(task: Any, tmp_path: Path) -> None:
    kind = RandomForestClassifier if task == "multilabel" else RandomForestRegressor
    options = {
        "estimator": f"sklearn.ensemble:{kind.__name__}",
        "steps": 2,
        "batch_size": None,
    }
    run, shards, predicted = trained(
        "sklearn", task, {"n_estimators": 10, "max_depth": 4}, tmp_path, options=options
    )
    train, valid = (s.frame for s in (shards["train"], shards["valid"]))
    model = kind(n_estimators=10, max_depth=4, random_state=7).fit(
        train.drop(columns=LABELS), train[LABELS]
    )
    x = valid.drop(columns=LABELS)
    expected = (
        np.column_stack([part[:, 1] for part in model.predict_proba(x)])
        if task == "multilabel"
        else model.predict(x)
    )
    if min(m[METRIC[task]] for m in run.metrics) == run.metrics[-1][METRIC[task]]:
        np.testing.assert_allclose(predicted, expected, rtol=1e-9)


def test_sklearn_without_probabilities_predicts_0_and_1(tmp_path: Path) -> None:
    cur, shards = table(
        "multilabel",
        metric="valid-error",
        options={
            "estimator": "sklearn.linear_model:RidgeClassifier",
            "steps": None,
            "batch_size": None,
        },
    )
    module = importlib.import_module("sweeps.trainers.sklearn")
    run = run_loop(module.train_func, {}, cur, shards, tmp_path)
    predicted = module.load(str(run.checkpoints[1])).predict(cur.check)
    assert (
        predicted.dtype == np.int64
        and predicted.shape == (32, 2)
        and set(predicted.ravel()) == {0, 1}
    )


@each_task
def test_torch(task: Any, tmp_path: Path) -> None:
    options = {"model": "tests.networks:Net", "loss": None, "dataset": None}
    params = {"epochs": 4, "batch_size": 50, "lr": 0.05}
    run, _, predicted = trained("torch", task, params, tmp_path / "plain", options=options)
    assert run.metrics[-1][METRIC[task]] < run.metrics[0][METRIC[task]]
    if task == "multioutput":
        assert abs(predicted[:, 0].mean() - 101) < 5, "each column is scaled back to its own unit"
    else:
        assert predicted.min() >= 0 and predicted.max() <= 1
