from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xgboost as xgb

from sweeps.core.best_step import Constraint
from sweeps.core.loop_context import CHECKPOINT_NOTE
from sweeps.testing.fake_session import run_loop, small_table
from sweeps.trainers import _booster, xgboost
from sweeps.trainers._dmatrix import matrix
from sweeps.trainers._metrics import measure
from sweeps.trainers._requested import RequestedMetrics
from sweeps.trainers._rounds import reported_rounds
from sweeps.trainers._xgboost_metrics import METRICS, metric_name
from sweeps.trainers.xgboost import load, train_func

PARAMS = {"num_boost_round": 8, "eta": 1.5, "max_depth": 4}


def test_is_what_xgboost_train_gives(tmp_path: Path) -> None:
    current, shards = small_table("binary")
    cur = current(asked=("valid-logloss", "train-auc"))
    run = run_loop(train_func, PARAMS, cur, shards, tmp_path)
    train, valid = (matrix(shards[name].frame, "y") for name in ("train", "valid"))
    log: dict[str, dict[str, list[float]]] = {}
    params = {
        "objective": "binary:logistic",
        "eval_metric": ["logloss", "auc"],
        "eta": 1.5,
        "max_depth": 4,
        "nthread": 1,
        "seed": 7,
    }
    xgb.train(
        params,
        train,
        8,
        evals=[(train, "train"), (valid, "valid")],
        evals_result=log,
        verbose_eval=False,
    )
    assert [m["valid-logloss"] for m in run.metrics] == log["valid"]["logloss"]
    assert [m["train-auc"] for m in run.metrics] == log["train"]["auc"]


MANY = {"eta": 0.1, "max_depth": 3, "patience": 20}


def test_patience_ends_the_training_and_the_best_reported_round_is_kept(tmp_path: Path) -> None:
    current, shards = small_table("binary")
    cur = current()
    run = run_loop(train_func, MANY, cur, shards, tmp_path)
    metric = cur.metric
    assert metric is not None
    values = [metrics[metric] for metrics in run.metrics]
    best = run.steps[int(np.argmin(values))]
    assert set(run.steps) <= set(reported_rounds(5000)) and len(run.steps) < run.steps[-1]
    assert run.steps[-1] - best >= 20 > run.steps[-2] - best
    (folder,) = run.checkpoints.values()
    assert json.loads((folder / CHECKPOINT_NOTE).read_text()) == {"best_step": best}
    assert load(str(folder)).booster.num_boosted_rounds() == best
    valid = shards["valid"].frame
    predicted = load(str(folder)).predict(valid.drop(columns="y"))
    assert measure("binary", "valid", valid["y"].to_numpy(), predicted)[metric] == (
        pytest.approx(min(values), rel=1e-5)
    )
    assert "train-logloss" in run.final
    done = run_loop(train_func, MANY, current(), shards, tmp_path, resume=folder)
    assert done.steps == [], "patience had ended this trial"


def test_a_resumed_long_trial_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    current, shards = small_table("binary")
    params = MANY | {"patience": 300, "subsample": 0.7, "colsample_bytree": 0.8}
    whole = run_loop(train_func, params, current(checkpoint_interval=0.0), shards, tmp_path)
    assert len(whole.checkpoints) >= 4
    for number in list(whole.checkpoints)[1:4]:
        rest = run_loop(
            train_func, params, current(), shards, tmp_path, resume=whole.checkpoints[number]
        )
        assert (rest.steps, rest.metrics) == (whole.steps[number:], whole.metrics[number:])


@pytest.mark.parametrize(("method", "large"), [("auto", False), ("approx", True), ("exact", True)])
def test_resumed_equals_uninterrupted_where_rows_and_columns_are_sampled(
    method: str, large: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if large:
        monkeypatch.setattr(_booster, "LARGE", 1)
    current, shards = small_table("binary")
    rounds, steps = (25, [3, 10, 20]) if large else (120, [50, 100])
    params = {
        "num_boost_round": rounds,
        "max_depth": 4,
        "subsample": 0.7,
        "colsample_bytree": 0.8,
        "tree_method": method,
    }
    if method != "exact":
        params["colsample_bynode"] = 0.8
    whole = run_loop(train_func, params, current(checkpoint_interval=0.0), shards, tmp_path)
    assert list(whole.checkpoints) == (list(range(1, 26)) if large else [*steps, 120])
    for step in steps:
        rest = run_loop(
            train_func, params, current(), shards, tmp_path, resume=whole.checkpoints[step]
        )
        assert rest.metrics == whole.metrics[step:]


def varied(frame: pd.DataFrame) -> pd.DataFrame:
    """Add missing values, integers and a categorical column to a frame of `small_table`."""
    x = frame["x0"]
    frame = frame.assign(
        x1=frame["x1"].where(frame["x1"] < 1.5),
        n=(4 * x).round().astype("int64"),
        narrow=x.astype("float32"),
    )
    return frame.assign(
        c=pd.Categorical.from_codes((x > 0).astype(int) + (x > 1).astype(int), list("abc"))
    )


@pytest.mark.parametrize("booster", ["dart", "gblinear"])
def test_boosters_that_cannot_be_sliced(booster: str, tmp_path: Path) -> None:
    current, shards = small_table("binary")
    cur = current(checkpoint_interval=0.0)
    params = {"num_boost_round": 9, "booster": booster, "eta": 1.2} | (
        {"rate_drop": 0.4} if booster == "dart" else {"updater": "coord_descent"}
    )
    run = run_loop(train_func, params, cur, shards, tmp_path)
    best = json.loads((run.checkpoints[9] / "sweeps.json").read_text())["best_step"]
    predicted = load(str(run.checkpoints[9])).predict(cur.check)
    np.testing.assert_array_equal(predicted, np.load(run.checkpoints[9] / "check.npy"))
    np.testing.assert_array_equal(predicted, np.load(run.checkpoints[best] / "check.npy"))


@pytest.mark.parametrize(
    ("params", "asked", "metrics", "splits", "final"),
    [
        ({}, ("valid-logloss",), ["logloss"], ["valid"], ["logloss", "error", "auc"]),
        ({}, ("valid-aucpr",), ["aucpr"], ["valid"], ["logloss", "error", "auc", "aucpr"]),
        ({}, ("train-auc",), ["auc"], ["train"], ["logloss", "error", "auc"]),
        ({}, ("valid-auc", "train-auc"), ["auc"], ["valid", "train"], ["logloss", "error", "auc"]),
        (
            {"eval_metric": "aucpr"},
            ("valid-accuracy",),
            ["error", "aucpr"],
            ["valid"],
            ["aucpr", "error"],
        ),
    ],
)
def test_a_round_measures_what_is_asked_for(
    params: Any, asked: Any, metrics: Any, splits: Any, final: Any
) -> None:
    current, _ = small_table("binary")
    requested = RequestedMetrics(
        params,
        current(metric=asked[0], asked=asked),
        METRICS,
        functools.partial(metric_name, "binary"),
    )
    assert (requested.framework_metrics(requested.reported), requested.splits) == (metrics, splits)
    assert requested.framework_metrics(requested.final) == final
    assert requested.lead == asked[0]


def test_a_model_reads_categories_by_their_codes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["Ä", "Äb", "éé", "ß"]
    current, shards = small_table("binary", rows=300)
    for shard in shards.values():
        codes = np.digitize(shard.frame["x0"], [-0.7, 0, 0.7])
        codes[::11] = -1
        city = pd.Categorical.from_codes(codes, names)
        shard.frame = shard.frame.assign(city=city, x0=0.0)
    check = shards["valid"].frame.drop(columns="y").iloc[:32]
    params = PARAMS | {"max_cat_to_onehot": 1}
    run = run_loop(train_func, params, current(check=check), shards, tmp_path)
    folder = str(run.checkpoints[8])
    few, expected = load(folder).predict(check), np.load(run.checkpoints[8] / "check.npy")
    assert few.tobytes() == expected.tobytes()
    monkeypatch.setattr(xgboost, "FEW", -1)
    many = load(folder).predict(check)
    assert many.tobytes() == expected.tobytes()
    gone = check.assign(city=pd.Categorical.from_codes([-1] * 32, names))
    assert (load(folder).predict(gone) != expected).any(), "the column matters"
    other = check.assign(city=check["city"].cat.rename_categories([*"abcd"]))
    assert load(folder).predict(other).tobytes() == expected.tobytes()


@pytest.mark.parametrize("name, value", [("tree_method", "exact"), ("booster", "gblinear")])
def test_a_model_that_cannot_read_categories_is_refused(
    name: str, value: str, tmp_path: Path
) -> None:
    current, shards = small_table("binary")
    for shard in shards.values():
        shard.frame = varied(shard.frame)
    with pytest.raises(ValueError, match=f"params.{name} is {value}, which cannot read categories"):
        run_loop(train_func, {name: value}, current(), shards, tmp_path)


@pytest.mark.parametrize(
    "constraints",
    [
        {"monotone_constraints": {"w [kg]": -1}},
        {"interaction_constraints": [["w [kg]", "x2"], ["w <kg]"]]},
    ],
)
def test_constraints_name_columns_that_xgboost_knows_by_other_names(
    constraints: Any, tmp_path: Path
) -> None:
    current, shards = small_table("binary")
    plain = json.loads(
        json.dumps(constraints).replace("w [kg]", "x0").replace("w <kg]", "x1").replace("x2", "x2")
    )
    wanted = run_loop(train_func, PARAMS | plain, current(), shards, tmp_path).metrics
    names = {"x0": "w [kg]", "x1": "w <kg]"}
    for shard in shards.values():
        shard.frame = shard.frame.rename(columns=names)
    cur = current(check=shards["valid"].frame.drop(columns="y").iloc[:32], _cached_objects={})
    run = run_loop(train_func, PARAMS | constraints, cur, shards, tmp_path)
    assert run.metrics == wanted
    assert wanted != run_loop(train_func, PARAMS, cur, shards, tmp_path).metrics
    with pytest.raises(ValueError, match=r"`w_kg`; the prepared data has: w \[kg\], w <kg\], x2"):
        run_loop(train_func, PARAMS | {"monotone_constraints": {"w_kg": 1}}, cur, shards, tmp_path)


def test_the_checkpoint_has_the_best_round_that_satisfies_the_constraints(tmp_path: Path) -> None:
    """The loss on train falls in each round, so a lower bound for it ends the rounds that count."""
    current, shards = small_table("binary")
    params = PARAMS | {"eta": 0.3}
    asked = ("valid-logloss", "train-logloss")
    for name in ("free", "bound", "again"):
        (tmp_path / name).mkdir()
    free = run_loop(train_func, params, current(asked=asked), shards, tmp_path / "free")
    bound = free.metrics[2]["train-logloss"]
    limit = (Constraint("train-logloss", ">=", bound),)
    cur = current(constraints=limit, asked=asked, checkpoint_interval=0.0)
    run = run_loop(train_func, params, cur, shards, tmp_path / "bound")
    assert min(free.metrics, key=lambda m: m["valid-logloss"]) not in free.metrics[:3]
    last = run.checkpoints[8]
    assert json.loads((last / CHECKPOINT_NOTE).read_text())["best_step"] == 3
    assert load(str(last)).booster.num_boosted_rounds() == 3
    resumed = run_loop(
        train_func, params, cur, shards, tmp_path / "again", resume=run.checkpoints[5]
    )
    assert (
        json.loads((resumed.checkpoints[max(resumed.checkpoints)] / CHECKPOINT_NOTE).read_text())[
            "best_step"
        ]
        == 3
    )


@pytest.mark.parametrize("value", [float("-inf"), 1e300])
def test_an_infinite_value_is_reported_without_a_stack_of_c(value: Any) -> None:
    rows = pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, value], "y": [0, 1]})
    with pytest.raises(ValueError, match=r"^the column `b` holds an infinite value.*data\.drop$"):
        matrix(rows, "y")
    matrix(rows.assign(b=[float("nan"), 2.0]), "y")
