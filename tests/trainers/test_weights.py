"""Weights of rows in each trainer that uses them.

A weight of 2 is a row that occurs twice, and a weight of 0 a row that is not there.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer

from sweeps.core.metrics import score
from sweeps.space.sections.built_in_trainers import trainer_names
from sweeps.space.sections.trainer_definition import definition_of
from sweeps.testing.fake_session import FakeShard, LoopRun, run_loop, small_table

# Parameters with which a trainer uses all rows at once, and does not count rows in its rules. In
# later rounds, rounding decides ties.
PARAMS: dict[str, dict[str, Any]] = {
    "xgboost": {"num_boost_round": 3, "max_bin": 1024, "min_child_weight": 0.1},
    "lightgbm": {
        "num_boost_round": 3,
        "min_data_in_leaf": 0,
        "min_data_in_bin": 1,
        "max_bin": 1024,
        "num_leaves": 8,
    },
    "catboost": {
        "iterations": 3,
        "learning_rate": 0.3,
        "bootstrap_type": "No",
        "boosting_type": "Plain",
        "border_count": 1024,
        "random_strength": 0,
        "l2_leaf_reg": 0,
    },
    "torch_tabular": {"epochs": 3, "batch_size": 10_000, "lr": 0.05, "width": 16},
    "torch": {"epochs": 3, "batch_size": 10_000, "lr": 0.05},
}
TORCH = {"model": "tests.networks:Net", "loss": None, "dataset": None}
WEIGHTED = pytest.mark.parametrize("name", [*PARAMS])


def coarse_table(task: str) -> tuple[Any, dict[str, FakeShard]]:
    """Return `small_table` with rounded features.

    The bins of a column then do not depend on single rows.
    """
    current, shards = small_table(task)
    names = ["x0", "x1", "x2", "x3", "x4"]
    rounded = {
        name: FakeShard(shard.frame.assign(**(2 * shard.frame[names]).round().clip(-3, 3) / 2))
        for name, shard in shards.items()
    }
    return (
        lambda **changed: current(**{"check": rounded["valid"].frame.drop(columns="y")} | changed)
    ), rounded


def run(
    name: str, task: str, folder: Path, weights: Any = None, rows: Any = None, **changed: Any
) -> LoopRun:
    """Train with weights of the rows, on all rows or on some of them."""
    if name in ("lightgbm", "catboost"):
        pytest.importorskip(name)
    current, shards = coarse_table(task)
    train = shards["train"].frame
    train = train if weights is None else train.assign(sample_weight=np.asarray(weights, float))
    train = train if rows is None else train.iloc[rows].reset_index(drop=True)
    folder.mkdir()
    given = {
        "weight": None if weights is None else "sample_weight",
        "checkpoint_interval": 0.0,
        "options": TORCH,
    } | changed
    loop = importlib.import_module(f"sweeps.trainers.{name}").train_func
    return run_loop(
        loop, dict(PARAMS[name]), current(**given), {**shards, "train": FakeShard(train)}, folder
    )


def assert_same(first: LoopRun, second: LoopRun, rel: float = 1e-4) -> None:
    assert len(first.metrics) == len(second.metrics)
    for one, other in zip(first.metrics, second.metrics, strict=True):
        assert one == pytest.approx(other, rel=rel)


WEIGHTS = np.random.default_rng(1).integers(0, 4, 160)


def run_on_rank(
    name: str, task: str, rank: int, connect: Callable[[], None], folder: Path
) -> dict[str, list[dict[str, float]]]:
    """Train one of two ranks on its half of the rows: with weights, with rows that occur as often
    as the weights say, and without weights.

    Args:
        name: The trainer.
        task: The task.
        rank: The rank.
        connect: Function that is called before each training, to connect the ranks.
        folder: Folder for checkpoints.

    Returns:
        The metrics of each training.
    """
    current, shards = coarse_table(task)
    rows = np.arange(rank, 160, 2)
    chosen = {"weighted": rows, "repeated": np.repeat(rows, WEIGHTS[rows]), "plain": rows}
    loop, runs = importlib.import_module(f"sweeps.trainers.{name}").train_func, {}
    for kind, part in chosen.items():
        train = shards["train"].frame.iloc[part].reset_index(drop=True)
        train = (
            train.assign(sample_weight=WEIGHTS[rows].astype(float)) if kind == "weighted" else train
        )
        keep = folder / f"{kind}-{rank}"
        keep.mkdir()
        connect()
        cur = current(weight="sample_weight" if kind == "weighted" else None, _cached_objects={})
        runs[kind] = run_loop(
            loop,
            dict(PARAMS[name]),
            cur,
            {**shards, "train": FakeShard(train)},
            keep,
            rank=rank,
            world=2,
        ).metrics
    return runs


def assert_weights_count_on_two_ranks(ranks: list[dict[str, list[dict[str, float]]]]) -> None:
    """Check what `run_on_rank` has returned on both ranks."""
    zero, one = ranks
    assert zero == one and len(zero["plain"]) == 3
    for weighted, repeated in zip(zero["weighted"], zero["repeated"], strict=True):
        assert weighted == pytest.approx(repeated, rel=1e-4)
    assert zero["plain"][-1] != pytest.approx(zero["weighted"][-1], rel=1e-3)


@WEIGHTED
@pytest.mark.parametrize("task", ["multiclass", "regression"])
def test_a_weight_is_the_number_of_times_that_a_row_occurs(
    name: Any, task: str, tmp_path: Path
) -> None:
    weighted = run(name, task, tmp_path / "weighted", WEIGHTS)
    repeated = run(name, task, tmp_path / "repeated", rows=np.repeat(np.arange(160), WEIGHTS))
    assert_same(weighted, repeated)
    plain = run(name, task, tmp_path / "plain")
    assert plain.metrics[-1] != pytest.approx(weighted.metrics[-1], rel=1e-3), "weights count"


@pytest.mark.parametrize("name", ["xgboost", "lightgbm", "catboost"])
def test_metrics_of_train_count_each_row_once(name: str, tmp_path: Path) -> None:
    task, metric = "binary", "logloss"
    names = (f"valid-{metric}", f"train-{metric}")
    loop_run = run(name, task, tmp_path / "a", WEIGHTS, asked=names)
    _, shards = coarse_table(task)
    model = importlib.import_module(f"sweeps.trainers.{name}").load(
        str(loop_run.checkpoints[max(loop_run.checkpoints)])
    )
    best = min(loop_run.metrics, key=lambda each: each[names[0]])
    for each in names:
        rows = shards[each.partition("-")[0]].frame
        assert best[each] == pytest.approx(
            score(metric, task, rows["y"].to_numpy(), model.predict(rows.drop(columns="y"))),
            rel=1e-4,
        )
    other = run(name, task, tmp_path / "b", WEIGHTS)
    finished = importlib.import_module(f"sweeps.trainers.{name}").load(
        str(other.checkpoints[max(other.checkpoints)])
    )
    rows = shards["train"].frame
    expected = score(metric, task, rows["y"].to_numpy(), finished.predict(rows.drop(columns="y")))
    assert other.final[f"train-{metric}"] == pytest.approx(expected, rel=1e-4)


def estimator_options(estimator: str, **changed: Any) -> dict[str, Any]:
    return {"estimator": estimator, "steps": 3, "batch_size": None} | changed


class TestEstimators:
    """The trainer `sklearn`: each way to train an estimator."""

    @pytest.mark.parametrize(
        ("estimator", "steps"),
        [("tests.trainers.test_weights:scaled", 3), ("sklearn.naive_bayes:GaussianNB", 1)],
    )
    def test_a_weight_is_the_number_of_times_that_a_row_occurs(
        self, estimator: str, steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(PARAMS, "sklearn", {})
        options = estimator_options(estimator, steps=steps)
        weighted = run("sklearn", "binary", tmp_path / "weighted", WEIGHTS, options=options)
        repeated = run(
            "sklearn",
            "binary",
            tmp_path / "repeated",
            rows=np.repeat(np.arange(160), WEIGHTS),
            options=options,
        )
        assert_same(weighted, repeated, rel=1e-3)
        plain = run("sklearn", "binary", tmp_path / "plain", options=options)
        assert plain.metrics[-1] != pytest.approx(weighted.metrics[-1], rel=1e-3)

    @pytest.mark.parametrize(
        "estimator", ["sklearn.naive_bayes:GaussianNB", "sklearn.linear_model:SGDClassifier"]
    )
    def test_partial_fit_gets_the_weights_of_its_rows(
        self, estimator: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Rows with the weight 0 have wrong labels, which would ruin the model."""
        monkeypatch.setitem(PARAMS, "sklearn", {"loss": "log_loss"} if "SGD" in estimator else {})
        options = estimator_options(estimator, batch_size=20)
        current, shards = coarse_table("binary")
        good = shards["train"].frame.assign(sample_weight=1.0)
        both = FakeShard(
            pd.concat([good, good.assign(y=1 - good["y"], sample_weight=0.0)], ignore_index=True)
        )
        given = current(
            weight="sample_weight", options=options, metric="valid-accuracy", goal="maximize"
        )
        loop = importlib.import_module("sweeps.trainers.sklearn").train_func
        loop_run = run_loop(
            loop, dict(PARAMS["sklearn"]), given, {**shards, "train": both}, tmp_path
        )
        assert loop_run.metrics[-1]["valid-accuracy"] > 0.8

    def test_an_estimator_without_weights_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(PARAMS, "sklearn", {})
        options = estimator_options("sklearn.neighbors:KNeighborsClassifier", steps=None)
        with pytest.raises(
            ValueError,
            match=r"`fit` of KNeighborsClassifier in .* has no argument `sample_weight`; leave out "
            r"data.weight",
        ):
            run("sklearn", "binary", tmp_path / "a", WEIGHTS, options=options)
        assert run("sklearn", "binary", tmp_path / "b", options=options).metrics


def scaled() -> Pipeline:
    """Return a pipeline whose transformer does not depend on the rows."""
    return make_pipeline(FunctionTransformer(np.negative), LogisticRegression())


class TestLosses:
    """The trainer `torch`: the loss of each row."""

    def test_a_loss_of_pytorch_is_weighted(self, tmp_path: Path) -> None:
        options = TORCH | {"loss": "torch.nn.functional:l1_loss"}
        weighted = run("torch", "regression", tmp_path / "weighted", WEIGHTS, options=options)
        repeated = run(
            "torch",
            "regression",
            tmp_path / "repeated",
            rows=np.repeat(np.arange(160), WEIGHTS),
            options=options,
        )
        assert_same(weighted, repeated)

    def test_a_loss_that_returns_only_the_mean_is_refused(self, tmp_path: Path) -> None:
        options = TORCH | {"loss": "tests.networks:loss_of_a_mean"}
        with pytest.raises(
            ValueError, match=r"trainer.loss: weights of rows need a loss with `reduction"
        ):
            run("torch", "regression", tmp_path / "a", WEIGHTS, options=options)
        assert run("torch", "regression", tmp_path / "b", options=options).metrics


def test_the_trainers_that_use_weights_are_those_of_this_file() -> None:
    use = {name for name in trainer_names() if definition_of(f"sweeps.trainers.{name}").weights}
    assert use - {"command"} == {
        *PARAMS,
        "sklearn",
        "keras",
    }  # for keras: tests/frameworks/test_keras_trainer.py
