"""Properties that both built-in trainers have, for each task: reports, resuming, the best step,
determinism, and stopping.
"""

from __future__ import annotations

import json
import os
import tempfile

import numpy as np
import pytest

from sweeps.core.metrics import score
from sweeps.space.trainer_definition import definition_of
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
@each_task
def test_reports_every_step_and_learns(name, task, tmp_path):
    module, params = TRAINERS[name]
    current, shards = small_table(task, missing=True)
    gentle = params | ({"eta": 0.3} if name == "xgboost" else {"lr": 0.01, "dropout": 0.0})
    metrics = run_loop(module.train_func, gentle, current(), shards, tmp_path).metrics
    assert len(metrics) == 12
    metric = current().metric
    assert metrics[-1][metric] < 0.8 * metrics[0][metric]
    assert all(isinstance(v, float) for v in metrics[0].values())


OF_VALID = {
    "binary": {"valid-logloss", "valid-error", "valid-accuracy", "valid-auc"},
    "multiclass": {"valid-mlogloss", "valid-merror", "valid-accuracy"},
    "regression": {"valid-rmse", "valid-mae"},
}


@every
@each_task
def test_a_step_reports_what_objectives_and_constraints_name_and_no_more(name, task, tmp_path):
    module, params = TRAINERS[name]
    current, shards = small_table(task)
    metric = current().metric
    run = run_loop(module.train_func, params, current(), shards, tmp_path)
    assert {frozenset(m) for m in run.metrics} == {frozenset({metric})}
    more = sorted(OF_VALID[task] - {metric})[0]
    asked = run_loop(module.train_func, params, current(asked=(metric, more)), shards, tmp_path)
    assert {frozenset(m) for m in asked.metrics} == {frozenset({metric, more})}
    everything = run_loop(
        module.train_func, params | {"report": "all"}, current(), shards, tmp_path
    )
    assert all(set(m) > OF_VALID[task] for m in everything.metrics) and everything.final == {}
    for few in (run, asked):
        assert few.metrics == [
            {k: v for k, v in m.items() if k in few.metrics[0]} for m in everything.metrics
        ]


@every
@each_task
@pytest.mark.parametrize("best_is_last", [False, True])
def test_the_other_metrics_are_those_of_the_model_of_the_best_step(
    name, task, best_is_last, tmp_path
):
    module, params = TRAINERS[name]
    steps = "num_boost_round" if name == "xgboost" else "epochs"
    current, shards = small_table(task)
    cur = current()
    run = run_loop(
        module.train_func, params | ({steps: 1} if best_is_last else {}), cur, shards, tmp_path
    )
    model = module.load(str(run.checkpoints[len(run.metrics)]))
    found = {}
    for split in ("train", "valid"):
        frame = shards[split].frame
        found |= measure(task, split, frame["y"].to_numpy(), model.predict(frame.drop(columns="y")))
    wanted = {
        k: v
        for k, v in found.items()
        if k != cur.metric and (k != "train-accuracy" or name != "xgboost")
    }
    assert run.final == pytest.approx(wanted, rel=1e-4)


@every
def test_a_trial_that_is_stopped_has_no_other_metrics(name, tmp_path):
    module, params = TRAINERS[name]
    current, shards = small_table("binary")
    assert run_loop(module.train_func, params, current(), shards, tmp_path, stop_at=11).final == {}
    assert run_loop(
        module.train_func, params, current(max_t=5), shards, tmp_path, stop_at=5
    ).final, "it came to its end"


@every
def test_what_is_reported_is_one_of_two(name, tmp_path):
    module, params = TRAINERS[name]
    current, shards = small_table("binary")
    with pytest.raises(ValueError, match=r"params\.report is 'some'.*asked(,| or) all"):
        run_loop(module.train_func, params | {"report": "some"}, current(), shards, tmp_path)


@every
@each_task
def test_the_checkpoint_holds_the_best_step_to_the_bit(name, task, tmp_path):
    module, params = TRAINERS[name]
    current, shards = small_table(task)
    cur = current()
    run = run_loop(module.train_func, params, cur, shards, tmp_path)
    values = [m[cur.metric] for m in run.metrics]
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
    assert measure(task, "valid", valid["y"].to_numpy(), full)[cur.metric] == pytest.approx(
        values[best - 1], rel=1e-5
    )


@every
@each_task
def test_resumed_equals_uninterrupted(name, task, tmp_path):
    module, params = TRAINERS[name]
    current, shards = small_table(task)
    whole = run_loop(module.train_func, params, current(checkpoint_interval=0.0), shards, tmp_path)
    assert list(whole.checkpoints) == list(range(1, 13))
    for step in (1, 5, 11):
        rest = run_loop(
            module.train_func, params, current(), shards, tmp_path, resume=whole.checkpoints[step]
        )
        assert rest.metrics == whole.metrics[step:]
        last, resumed = whole.checkpoints[12], rest.checkpoints[12 - step]
        np.testing.assert_array_equal(np.load(last / "check.npy"), np.load(resumed / "check.npy"))
        assert (last / "sweeps.json").read_text() == (resumed / "sweeps.json").read_text()
    finished = run_loop(
        module.train_func, params, current(), shards, tmp_path, resume=whole.checkpoints[12]
    )
    assert finished.metrics == []


@every
def test_the_same_first_and_later_in_a_warm_process(name, tmp_path):
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
def test_a_stop_leaves_nothing_behind(name, tmp_path, monkeypatch):
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
def test_steps_follow_max_t(name, tmp_path):
    module, _ = TRAINERS[name]
    current, shards = small_table("regression")
    run = run_loop(module.train_func, {}, current(max_t=3), shards, tmp_path)
    assert len(run.metrics) == 3 and list(run.checkpoints) == [3]


@every
def test_text_columns_are_named_with_what_helps(name, tmp_path):
    module, params = TRAINERS[name]
    current, shards = small_table("binary")
    for shard in shards.values():
        shard.frame = shard.frame.assign(city="Paris", street="Rue")
    with pytest.raises(
        ValueError, match=r"not numeric after preprocessing: city, street;.*`columns` of an encoder"
    ):
        run_loop(module.train_func, params, current(), shards, tmp_path)


@every
def test_an_objective_that_is_not_reported(name, tmp_path):
    module, params = TRAINERS[name]
    current, shards = small_table("binary")
    for wrong in ("valid-logless", "logloss"):
        with pytest.raises(
            ValueError, match=rf"objective\.metric is `{wrong}`.*did you mean `valid-logloss`\?"
        ):
            run_loop(module.train_func, params, current(metric=wrong), shards, tmp_path)


OTHERS = {
    "binary": ("valid-balanced_accuracy", "valid-neg_log_loss", "valid-f1"),
    "multiclass": (
        "valid-neg_log_loss",
        "valid-roc_auc_ovr",
        "valid-f1_macro",
        "valid-logloss",
        "valid-error",
    ),
    "regression": ("valid-r2", "valid-neg_median_absolute_error"),
}


@every
@each_task
def test_a_scorer_of_scikit_learn_decides_the_best_step(name, task, tmp_path):
    module, params = TRAINERS[name]
    current, shards = small_table(task)
    lead = OTHERS[task][0]
    cur = current(metric=lead, asked=OTHERS[task], goal="maximize")
    run = run_loop(module.train_func, params, cur, shards, tmp_path)
    assert {frozenset(m) for m in run.metrics} == {frozenset(OTHERS[task])}
    values = [m[lead] for m in run.metrics]
    folder = run.checkpoints[12]
    assert json.loads((folder / "sweeps.json").read_text()) == {
        "best_step": int(np.argmax(values)) + 1
    }
    valid = shards["valid"].frame
    predictions = module.load(str(folder)).predict(valid.drop(columns="y"))
    for metric in OTHERS[task]:
        wanted = score(metric, task, valid["y"].to_numpy(), predictions)
        assert run.metrics[int(np.argmax(values))][metric] == pytest.approx(wanted, rel=1e-4), (
            metric
        )
    more = run_loop(
        module.train_func,
        params | {"report": "all"},
        current(asked=(current().metric, lead)),
        shards,
        tmp_path,
    )
    assert [m[lead] for m in more.metrics] == values and set(more.metrics[0]) > {
        lead,
        *OF_VALID[task],
    }


@every
def test_a_scorer_for_another_task_is_refused(name, tmp_path):
    module, params = TRAINERS[name]
    current, shards = small_table("regression")
    for wrong in ("valid-neg_log_loss", "valid-rand_score", "train-r2"):
        with pytest.raises(
            ValueError, match=rf"objective\.metric is `{wrong}`, which this trainer does not report"
        ):
            run_loop(module.train_func, params, current(metric=wrong), shards, tmp_path)


@every
def test_a_trial_without_a_label(name, tmp_path):
    module, params = TRAINERS[name]
    current, shards = small_table("binary")
    with pytest.raises(ValueError, match=r"data\.label is missing"):
        run_loop(module.train_func, params, current(task=None, label=None), shards, tmp_path)


@every
def test_goal_maximize(name, tmp_path):
    module, params = TRAINERS[name]
    current, shards = small_table("binary")
    run = run_loop(
        module.train_func, params, current(metric="valid-auc", goal="maximize"), shards, tmp_path
    )
    best = int(np.argmax([m["valid-auc"] for m in run.metrics])) + 1
    assert json.loads((run.checkpoints[12] / "sweeps.json").read_text()) == {"best_step": best}


@every
def test_the_backend_is_known_without_an_import(name):
    assert (
        definition_of(f"sweeps.trainers.{name}").backend
        == {"xgboost": "xgboost", "torch_tabular": "torch"}[name]
    )
