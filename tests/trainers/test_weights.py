"""Weights of rows in each trainer that uses them. A weight of 2 is a row that occurs twice, and a weight of 0 a row that is not there."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sweeps.core.metrics import score
from sweeps.space.trainer_definition import definition_of
from sweeps.space.trainer_section import trainer_names
from sweeps.testing.fake_session import FakeShard, LoopRun, run_loop, small_table

TASKS = ("binary", "multiclass", "regression")
TORCH_LOSSES = {"binary": "BCEWithLogitsLoss", "multiclass": "CrossEntropyLoss", "regression": "MSELoss"}
# Parameters with which a trainer uses all rows at once, and does not count rows in its rules. In later rounds, rounding decides ties.
TREES: dict[str, dict[str, Any]] = {
    "xgboost": {"num_boost_round": 3, "max_bin": 1024, "min_child_weight": 0.1},
    "lightgbm": {"num_boost_round": 3, "min_data_in_leaf": 0, "min_data_in_bin": 1, "max_bin": 1024, "num_leaves": 8},
    "catboost": {
        "iterations": 3,
        "learning_rate": 0.3,
        "bootstrap_type": "No",
        "boosting_type": "Plain",
        "border_count": 1024,
        "random_strength": 0,
        "l2_leaf_reg": 0,
    },
}
WEIGHTED = pytest.mark.parametrize("name", TREES)
each_task = pytest.mark.parametrize("task", TASKS)


def coarse_table(task: str) -> tuple[Any, dict[str, FakeShard]]:
    """Return `small_table` with rounded features. The bins of a column then do not depend on single rows."""
    current, shards = small_table(task)
    names = ["x0", "x1", "x2", "x3", "x4"]
    rounded = {name: FakeShard(shard.frame.assign(**(2 * shard.frame[names]).round().clip(-3, 3) / 2)) for name, shard in shards.items()}
    return (lambda **changed: current(**{"check": rounded["valid"].frame.drop(columns="y")} | changed)), rounded


def run(name: str, task: str, folder: Path, weights: Any = None, rows: Any = None, **changed: Any) -> LoopRun:
    """Train with weights of the rows, on all rows or on some of them."""
    if name in ("lightgbm", "catboost"):
        pytest.importorskip(name)
    current, shards = coarse_table(task)
    train = shards["train"].frame
    train = train if weights is None else train.assign(sample_weight=np.asarray(weights, float))
    train = train if rows is None else train.iloc[rows].reset_index(drop=True)
    folder.mkdir()
    given = {"weight": None if weights is None else "sample_weight", "checkpoint_interval": 0.0} | changed
    loop = importlib.import_module(f"sweeps.trainers.{name}").train_func
    return run_loop(loop, dict(TREES[name]), current(**given), {**shards, "train": FakeShard(train)}, folder)


def assert_same(first: LoopRun, second: LoopRun, rel: float = 1e-4) -> None:
    assert len(first.metrics) == len(second.metrics)
    for one, other in zip(first.metrics, second.metrics, strict=True):
        assert one == pytest.approx(other, rel=rel)


WEIGHTS = np.random.default_rng(1).integers(0, 4, 160)


@WEIGHTED
@each_task
def test_a_weight_is_the_number_of_times_that_a_row_occurs(name, task, tmp_path):
    weighted = run(name, task, tmp_path / "weighted", WEIGHTS)
    repeated = run(name, task, tmp_path / "repeated", rows=np.repeat(np.arange(160), WEIGHTS))
    assert_same(weighted, repeated)
    plain = run(name, task, tmp_path / "plain")
    assert plain.metrics[-1] != pytest.approx(weighted.metrics[-1], rel=1e-3), "weights count"
    assert_same(run(name, task, tmp_path / "ones", np.ones(160)), plain)


@WEIGHTED
@pytest.mark.parametrize("task", ["binary", "regression"])
def test_metrics_of_train_count_each_row_once(name, task, tmp_path):
    metric = "logloss" if task == "binary" else "rmse"
    names = (f"valid-{metric}", f"train-{metric}")
    found = run(name, task, tmp_path / "a", WEIGHTS, asked=names)
    _, shards = coarse_table(task)
    model = importlib.import_module(f"sweeps.trainers.{name}").load(str(found.checkpoints[max(found.checkpoints)]))
    best = min(found.metrics, key=lambda each: each[names[0]])
    for each in names:
        rows = shards[each.partition("-")[0]].frame
        assert best[each] == pytest.approx(score(metric, task, rows["y"].to_numpy(), model.predict(rows.drop(columns="y"))), rel=1e-4)
    other = run(name, task, tmp_path / "b", WEIGHTS)
    finished = importlib.import_module(f"sweeps.trainers.{name}").load(str(other.checkpoints[max(other.checkpoints)]))
    rows = shards["train"].frame
    expected = score(metric, task, rows["y"].to_numpy(), finished.predict(rows.drop(columns="y")))
    assert other.final[f"train-{metric}"] == pytest.approx(expected, rel=1e-4)


def test_the_trainers_that_use_weights_are_those_of_this_file():
    use = {name for name in trainer_names() if definition_of(f"sweeps.trainers.{name}").weights}
    assert use - {"command"} == {*TREES}
