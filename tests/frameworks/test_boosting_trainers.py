"""Properties that the trainers `lightgbm` and `catboost` share, and those of each.

The loops run in this process, without Ray.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

pytest.importorskip("lightgbm")
pytest.importorskip("catboost")

from sweeps.data.preprocessing import step_files
from sweeps.data.preprocessing.fit import fit_chain
from sweeps.space import Step
from sweeps.testing.fake_session import FakeShard, run_loop, small_table
from sweeps.testing.pytest_trainers import TrainerTests
from sweeps.trainers import catboost, lightgbm
from sweeps.trainers._catboost_model import metric_name as catboost_name
from sweeps.trainers._lightgbm_booster import metric_name as lightgbm_name
from sweeps.trainers._metrics import measure
from sweeps.trainers._rounds import reported_rounds

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(120)]

TASKS = ("binary", "multiclass", "regression")
LIGHTGBM = {"num_boost_round": 12, "num_leaves": 15, "min_data_in_leaf": 3, "learning_rate": 0.9}
CATBOOST = {"iterations": 12, "depth": 5, "learning_rate": 1.0}
TRAINERS = {"lightgbm": (lightgbm, LIGHTGBM), "catboost": (catboost, CATBOOST)}
every = pytest.mark.parametrize("name", TRAINERS)
each_task = pytest.mark.parametrize("task", TASKS)


class TestLightGBM(TrainerTests):
    module = "sweeps.trainers.lightgbm"
    params: ClassVar = {"num_boost_round": 4, "min_data_in_leaf": 5, "extra_trees": True}


class TestLightGBMRegression(TestLightGBM):
    task = "regression"


class TestCatBoost(TrainerTests):
    module = "sweeps.trainers.catboost"
    params: ClassVar = {"iterations": 4, "depth": 3}


class TestCatBoostRegression(TestCatBoost):
    task = "regression"


def with_categories(shards: Any) -> None:
    """Add a column of the pandas type `category`, with missing values, to every shard."""
    for shard in shards.values():
        lyon = np.where(shard.frame["x1"] > 0, "Lyon", np.array(None))
        city = np.where(shard.frame["x0"] > 0.3, "Paris", lyon)
        shard.frame = shard.frame.assign(
            city=pd.Categorical(city, categories=["Lyon", "Nice", "Paris"])
        )


@every
@each_task
def test_the_checkpoint_has_the_model_of_the_best_step(
    name: Any, task: Any, tmp_path: Path
) -> None:
    module, params = TRAINERS[name]
    current, shards = small_table(task, missing=True)
    with_categories(shards)
    cur = current(check=shards["valid"].frame.drop(columns="y").iloc[:32])
    run = run_loop(module.train_func, params, cur, shards, tmp_path)
    metric = cur.metric
    assert metric is not None
    values = [metrics[metric] for metrics in run.metrics]
    best = int(np.argmin(values)) + 1
    assert len(values) == 12 and list(run.checkpoints) == [12]
    folder = run.checkpoints[12]
    assert json.loads((folder / "sweeps.json").read_text()) == {"best_step": best}
    model = module.load(str(folder))
    predicted = model.predict(cur.check)
    assert (
        predicted.shape == {"binary": (32,), "multiclass": (32, 3), "regression": (32,)}[task]
        and predicted.dtype == np.float64
    )
    np.testing.assert_array_equal(predicted, np.load(folder / "check.npy"))
    assert cur.check is not None
    np.testing.assert_array_equal(
        np.concatenate([model.predict(cur.check.iloc[[i]]) for i in range(8)]), predicted[:8]
    )
    assert len(model.predict(cur.check.iloc[:0])) == 0
    model_metrics: dict[str, float] = {}
    for split in ("train", "valid"):
        frame = shards[split].frame
        model_metrics |= measure(
            task, split, frame["y"].to_numpy(), model.predict(frame.drop(columns="y"))
        )
    assert model_metrics[metric] == pytest.approx(values[best - 1], rel=1e-6)
    assert run.final == pytest.approx(
        {k: v for k, v in model_metrics.items() if k != metric}, rel=1e-6
    )


@every
def test_raw_rows_with_categories_are_predicted_as_in_training(name: Any, tmp_path: Path) -> None:
    module, params = TRAINERS[name]
    current, shards = small_table("binary", rows=300, missing=True)
    raw = {}
    for split, shard in shards.items():
        x = shard.frame["x0"]
        city = np.where(x > 0.3, "Málaga", np.where(x > -0.5, "Łódź", np.array(None)))
        raw[split] = shard.frame.assign(city=city, floor=(2 * x).round().clip(-2, 2).astype(int))
    steps = (Step("Categorizer", ("city", "floor", "x4"), {}),)
    raw["train"]["x4"] = np.nan
    fitted = fit_chain(steps, pa.Table.from_pandas(raw["train"], preserve_index=False), "y")
    step_files.save_chain(fitted, tmp_path)
    chain = step_files.load_chain(tmp_path)
    shards = {split: FakeShard(chain.transform(rows)) for split, rows in raw.items()}
    rows = raw["valid"].drop(columns="y").iloc[:32]
    run = run_loop(
        module.train_func, params, current(check=chain.transform(rows)), shards, tmp_path
    )
    model = module.load(str(run.checkpoints[12]))
    expected = np.load(run.checkpoints[12] / "check.npy")
    assert model.predict(chain.transform(rows)).tobytes() == expected.tobytes()
    unseen = model.predict(chain.transform(rows.assign(city="Atlantis", floor=77, x4=1.0)))
    missing = model.predict(chain.transform(rows.assign(city=None, floor=np.nan)))
    assert unseen.tobytes() == missing.tobytes() != expected.tobytes()
    if name == "lightgbm":
        cities, floors = model.booster.pandas_categorical
        assert cities == ["Málaga", "Łódź"] and floors == [-2.0, -1.0, 0.0, 1.0, 2.0]


@every
def test_parameters_that_the_trainer_sets_are_refused(name: Any, tmp_path: Path) -> None:
    module, params = TRAINERS[name]
    current, shards = small_table("binary")
    reserved = module.RESERVED[0]
    with pytest.raises(ValueError, match=rf"params\.{reserved} cannot be set, because `{name}`"):
        run_loop(module.train_func, params | {reserved: 5}, current(), shards, tmp_path)


@every
def test_a_step_reports_only_what_the_space_file_names(name: Any, tmp_path: Path) -> None:
    module, params = TRAINERS[name]
    current, shards = small_table("binary")
    own = {"lightgbm": "average_precision", "catboost": "MCC"}[name]
    run = run_loop(
        module.train_func,
        params,
        current(asked=("valid-logloss", f"valid-{own}")),
        shards,
        tmp_path,
        stop_at=2,
    )
    assert {frozenset(metrics) for metrics in run.metrics} == {
        frozenset({"valid-logloss", f"valid-{own}"})
    }
    run = run_loop(
        module.train_func, params | {"eval_metric": [own, "roc_auc"]}, current(), shards, tmp_path
    )
    assert {frozenset(m) for m in run.metrics} == {
        frozenset({"valid-logloss", f"valid-{own}", "valid-roc_auc"})
    }
    run = run_loop(module.train_func, params, current(metric=None), shards, tmp_path, stop_at=1)
    assert set(run.metrics[0]) == {"valid-logloss"}


def test_names_of_metrics() -> None:
    assert lightgbm_name("binary", "valid", "logloss") == "binary_logloss"
    assert lightgbm_name("regression", "valid", "mean_absolute_error") == "l1"
    assert (
        lightgbm_name("binary", "valid", "map")
        is lightgbm_name("binary", "valid", "nonsense")
        is None
    )
    assert lightgbm_name("multiclass", "valid", "merror") is None, "LightGBM counts ties as errors"
    assert (
        catboost_name("binary", "valid", "auc") == "AUC"
        and catboost_name("binary", "valid", "MCC") == "MCC"
    )
    assert (
        catboost_name("multiclass", "valid", "F1")
        is catboost_name("binary", "valid", "nonsense")
        is None
    )


@every
def test_steps_follow_max_t_and_a_stop_leaves_no_files(
    name: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, _ = TRAINERS[name]
    current, shards = small_table("regression")
    (tmp_path / "temp").mkdir()
    (tmp_path / "keep").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temp"))
    monkeypatch.chdir(tmp_path)
    run = run_loop(module.train_func, {}, current(max_t=4), shards, tmp_path / "keep")
    assert len(run.metrics) == 4 and list(run.checkpoints) == [4] and run.final
    for interval in (0.0, 60.0):  # the trial is stopped with and without a checkpoint
        run = run_loop(
            module.train_func,
            {},
            current(max_t=9, checkpoint_interval=interval),
            shards,
            tmp_path / "keep",
            stop_at=3,
        )
        assert len(run.metrics) == 3 and run.final == {}
    assert os.listdir(tmp_path / "temp") == [] and sorted(os.listdir(tmp_path)) == ["keep", "temp"]


@every
def test_the_same_in_a_cold_and_in_a_warm_worker(name: Any, tmp_path: Path) -> None:
    module, params = TRAINERS[name]
    params = params | (
        {"bagging_fraction": 0.7, "bagging_freq": 1} if name == "lightgbm" else {"rsm": 0.6}
    )
    current, shards = small_table("binary")
    first = run_loop(module.train_func, params, current(checkpoint_interval=0.0), shards, tmp_path)
    other = params | {"max_bin": 16}
    assert (
        run_loop(module.train_func, other, current(seed=1), shards, tmp_path, stop_at=3).metrics
        != first.metrics[:3]
    )
    run_loop(module.train_func, params, current(), shards, tmp_path, resume=first.checkpoints[12])
    assert run_loop(module.train_func, params, current(), shards, tmp_path).metrics == first.metrics
    assert shards["train"].reads == shards["valid"].reads == 1, "a warm worker has kept the rows"
    cold, cold_shards = small_table("binary")
    assert (
        run_loop(module.train_func, params, cold(), cold_shards, tmp_path).metrics == first.metrics
    )


@every
def test_patience_ends_the_training_and_the_best_reported_round_is_kept(
    name: Any, tmp_path: Path
) -> None:
    module, _ = TRAINERS[name]
    current, shards = small_table("binary")
    params = {"learning_rate": 0.1, "patience": 20}
    cur = current(required_steps=frozenset({22, 66}))
    run = run_loop(module.train_func, params, cur, shards, tmp_path)
    metric = cur.metric
    assert metric is not None
    values = [metrics[metric] for metrics in run.metrics]
    best = run.steps[int(np.argmin(values))]
    assert set(run.steps) <= {*reported_rounds(5000), 22, 66} and len(run.steps) < run.steps[-1]
    assert 22 in run.steps and run.steps[-1] - best >= 20
    (folder,) = run.checkpoints.values()
    assert json.loads((folder / "sweeps.json").read_text()) == {"best_step": best}
    valid = shards["valid"].frame
    predicted = module.load(str(folder)).predict(valid.drop(columns="y"))
    assert measure("binary", "valid", valid["y"].to_numpy(), predicted)[metric] == (
        pytest.approx(min(values), rel=1e-6)
    )
    done = run_loop(module.train_func, params, current(), shards, tmp_path, resume=folder)
    assert done.steps == [], "patience had ended this trial"
    shards["valid"] = shards["train"]
    refit = current(keep_last=True, max_t=230, sweep_max_t=None, goal="maximize")
    run = run_loop(module.train_func, params | {"patience": 1}, refit, shards, tmp_path)
    assert run.steps[-1] == 230, "a refit trains its rounds without patience"


@every
def test_a_resumed_long_trial_equals_an_uninterrupted_one(name: Any, tmp_path: Path) -> None:
    module, _ = TRAINERS[name]
    current, shards = small_table("binary")
    params = {"learning_rate": 0.05, "patience": 200} | (
        {"bagging_fraction": 0.7, "bagging_freq": 3} if name == "lightgbm" else {"depth": 3}
    )
    whole = run_loop(module.train_func, params, current(checkpoint_interval=0.0), shards, tmp_path)
    for number in list(whole.checkpoints)[-4:-1:2]:
        rest = run_loop(
            module.train_func, params, current(), shards, tmp_path, resume=whole.checkpoints[number]
        )
        assert (rest.steps, rest.metrics) == (whole.steps[number:], whole.metrics[number:])


# LightGBM


# CatBoost
