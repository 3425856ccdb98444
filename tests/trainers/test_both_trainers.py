"""Properties that both built-in trainers have, for each task: reports, resuming, the best step,
determinism, and stopping.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sweeps.core.metrics import score
from sweeps.testing.fake_session import run_loop, small_table
from sweeps.trainers import torch_tabular, xgboost
from sweeps.trainers._metrics import measure

TASKS = ("binary", "multiclass", "regression")
# Rates so high that the best step is not the last one.
TRAINERS = {
    "xgboost": (xgboost, {"num_boost_round": 12, "eta": 1.5, "max_depth": 4}),
    "torch_tabular": (
        torch_tabular,
        {"epochs": 12, "lr": 0.1, "width": 32, "batch_size": 33, "dropout": 0.2},
    ),
}
every = pytest.mark.parametrize("name", TRAINERS)
each_task = pytest.mark.parametrize("task", TASKS)


@every
def test_a_step_reports_what_objectives_and_constraints_name_and_no_more(
    name: Any, tmp_path: Path
) -> None:
    module, params = TRAINERS[name]
    current, shards = small_table("binary")
    cur = current(asked=("valid-logloss", "valid-accuracy"))
    run = run_loop(module.train_func, params, cur, shards, tmp_path)
    assert {frozenset(m) for m in run.metrics} == {frozenset(cur.asked)}


@every
@each_task
@pytest.mark.parametrize("best_is_last", [False, True])
def test_the_other_metrics_are_those_of_the_model_of_the_best_step(
    name: Any, task: Any, best_is_last: bool, tmp_path: Path
) -> None:
    module, params = TRAINERS[name]
    steps = "num_boost_round" if name == "xgboost" else "epochs"
    current, shards = small_table(task)
    cur = current()
    run = run_loop(
        module.train_func, params | ({steps: 1} if best_is_last else {}), cur, shards, tmp_path
    )
    model = module.load(str(run.checkpoints[len(run.metrics)]))
    metrics: dict[str, float] = {}
    for split in ("train", "valid"):
        frame = shards[split].frame
        metrics |= measure(
            task, split, frame["y"].to_numpy(), model.predict(frame.drop(columns="y"))
        )
    wanted = {
        k: v
        for k, v in metrics.items()
        if k != cur.metric and (k != "train-accuracy" or name != "xgboost")
    }
    assert run.final == pytest.approx(wanted, rel=1e-4)


@every
def test_a_trial_that_is_stopped_has_no_other_metrics(name: Any, tmp_path: Path) -> None:
    module, params = TRAINERS[name]
    current, shards = small_table("binary")
    assert run_loop(module.train_func, params, current(), shards, tmp_path, stop_at=11).final == {}
    assert run_loop(
        module.train_func, params, current(max_t=5), shards, tmp_path, stop_at=5
    ).final, "it came to its end"


@every
@each_task
def test_the_checkpoint_holds_the_best_step_to_the_bit(
    name: Any, task: Any, tmp_path: Path
) -> None:
    module, params = TRAINERS[name]
    current, shards = small_table(task)
    cur = current()
    run = run_loop(module.train_func, params, cur, shards, tmp_path)
    metric = cur.metric
    assert metric is not None
    values = [m[metric] for m in run.metrics]
    best = int(np.argmin(values)) + 1
    assert best < len(values), "the case should overfit"
    assert list(run.checkpoints) == [12]
    folder = run.checkpoints[12]
    assert json.loads((folder / "sweeps.json").read_text()) == {"best_step": best}
    predicted = module.load(str(folder)).predict(cur.check)
    shape = {"binary": (32,), "multiclass": (32, 3), "regression": (32,)}[task]
    assert predicted.shape == shape and predicted.dtype == np.float64
    np.testing.assert_array_equal(predicted, np.load(folder / "check.npy"))
    # and what it predicts for `valid` scores what was reported
    valid = shards["valid"].frame
    full = module.load(str(folder)).predict(valid.drop(columns="y"))
    assert measure(task, "valid", valid["y"].to_numpy(), full)[metric] == pytest.approx(
        values[best - 1], rel=1e-5
    )


@every
def test_the_same_first_and_later_in_a_warm_process(name: Any, tmp_path: Path) -> None:
    module, params = TRAINERS[name]
    params = params | ({"subsample": 0.7} if name == "xgboost" else {})
    current, shards = small_table("binary")
    first = run_loop(module.train_func, params, current(), shards, tmp_path)
    other = params | (
        {"max_depth": 2, "max_bin": 16} if name == "xgboost" else {"width": 5, "optimizer": "sgd"}
    )
    assert (
        run_loop(module.train_func, other, current(seed=1), shards, tmp_path, stop_at=3).metrics[:3]
        != first.metrics[:3]
    )
    assert run_loop(module.train_func, params, current(), shards, tmp_path).metrics == first.metrics
    assert shards["train"].reads == shards["valid"].reads == 1, (
        "what a warm worker keeps is not built again"
    )
    cold, cold_shards = small_table("binary")
    assert (
        run_loop(module.train_func, params, cold(), cold_shards, tmp_path).metrics == first.metrics
    )
    assert (
        run_loop(module.train_func, params, current(seed=8), shards, tmp_path).metrics
        != first.metrics
    )


@every
def test_a_stop_leaves_nothing_behind(
    name: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, params = TRAINERS[name]
    current, shards = small_table("binary")
    run_loop(
        module.train_func, params, current(), shards, tmp_path / "first", stop_at=1
    )  # torch leaves a folder at its first step
    (tmp_path / "temp").mkdir()
    (tmp_path / "keep").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temp"))
    run = run_loop(
        module.train_func,
        params,
        current(checkpoint_interval=0.0),
        shards,
        tmp_path / "keep",
        stop_at=3,
    )
    assert len(run.metrics) == 3 and 3 in run.checkpoints
    assert os.listdir(tmp_path / "temp") == []


@every
def test_text_columns_are_named_with_what_helps(name: Any, tmp_path: Path) -> None:
    module, params = TRAINERS[name]
    current, shards = small_table("binary")
    for shard in shards.values():
        shard.frame = shard.frame.assign(city="Paris", street="Rue")
    with pytest.raises(
        ValueError, match=r"not numeric after preprocessing: city, street;.*`columns` of an encoder"
    ):
        run_loop(module.train_func, params, current(), shards, tmp_path)


@every
def test_a_metric_that_is_not_reported(name: Any, tmp_path: Path) -> None:
    module, params = TRAINERS[name]
    current, shards = small_table("binary")
    for wrong, hint in (
        ("valid-logless", "did you mean `valid-logloss`"),
        ("valid-rand_score", ""),
        ("train-r2", ""),
    ):
        with pytest.raises(ValueError, match=rf"does not report the metric `{wrong}`; .*{hint}"):
            run_loop(module.train_func, params, current(metric=wrong), shards, tmp_path)
    with pytest.raises(ValueError, match=r"data\.label is missing"):
        run_loop(module.train_func, params, current(task=None, label=None), shards, tmp_path)


OTHERS = {
    "binary": ("valid-balanced_accuracy", "valid-neg_log_loss", "valid-f1"),
    "multiclass": ("valid-neg_log_loss", "valid-roc_auc_ovr", "valid-logloss", "valid-error"),
    "regression": ("valid-r2", "valid-neg_median_absolute_error"),
}


@every
@each_task
def test_a_scorer_of_scikit_learn_decides_the_best_step(
    name: Any, task: Any, tmp_path: Path
) -> None:
    module, params = TRAINERS[name]
    current, shards = small_table(task)
    lead = OTHERS[task][0]
    cur = current(metric=lead, asked=OTHERS[task], goal="maximize")
    run = run_loop(module.train_func, params, cur, shards, tmp_path)
    best = int(np.argmax([m[lead] for m in run.metrics]))
    folder = run.checkpoints[12]
    assert json.loads((folder / "sweeps.json").read_text()) == {"best_step": best + 1}
    valid = shards["valid"].frame
    predictions = module.load(str(folder)).predict(valid.drop(columns="y"))
    wanted = {name: score(name, task, valid["y"].to_numpy(), predictions) for name in OTHERS[task]}
    assert run.metrics[best] == pytest.approx(wanted, rel=1e-4)
