"""The trainer `lightning`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("lightning")

from sweeps.testing.fake_session import run_loop, small_table
from sweeps.testing.pytest_trainers import TrainerTests
from sweeps.trainers import lightning
from sweeps.trainers._lightning_model import load
from sweeps.trainers._metrics import measure

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(120)]
MODELS = "tests.frameworks.user_modules"
PARAMS = {"max_epochs": 6, "batch_size": 33, "lr": 0.1}


def run(
    task: Any,
    folder: Any,
    params: Any = PARAMS,
    *,
    resume: Any = None,
    stop_at: Any = None,
    options: Any = None,
    shards: Any = None,
    **changed: Any,
) -> Any:
    current, table = small_table(task)
    shards = shards or table
    given = {
        "module": f"{MODELS}:Net",
        "datamodule": None,
        "output": "logits",
        "strategy": "ddp",
    } | (options or {})
    cur = current(
        **{
            "metric": "valid-loss",
            "asked": ("valid-loss",),
            "checkpoint_interval": 0.0,
            "options": given,
        }
        | changed
    )
    folder.mkdir(parents=True, exist_ok=True)
    return (
        run_loop(
            lightning.train_func, dict(params), cur, shards, folder, resume=resume, stop_at=stop_at
        ),
        cur,
        shards,
    )


class TestLightning(TrainerTests):
    module = "sweeps.trainers.lightning"
    options = {"module": f"{MODELS}:Net"}  # noqa: RUF012
    params = {"max_epochs": 3, "batch_size": 33}  # noqa: RUF012
    metric = "valid-loss"


@pytest.mark.parametrize("task", ["multiclass", "regression"])
def test_a_checkpoint_has_the_best_step_and_predicts_what_was_measured(
    task: str, tmp_path: Path
) -> None:
    metric = {"multiclass": "valid-neg_log_loss", "regression": "valid-r2"}[task]
    loop_run, cur, shards = run(
        task,
        tmp_path,
        PARAMS | {"max_epochs": 12, "lr": 0.3},
        metric=metric,
        asked=(metric,),
        goal="maximize",
    )
    assert len(loop_run.metrics) == 12 and set(loop_run.metrics[0]) == {
        "train-loss",
        "valid-loss",
        metric,
    }
    values = [metrics[metric] for metrics in loop_run.metrics]
    best = int(np.argmax(values)) + 1
    assert best < 12, "the case should overfit"
    folder = loop_run.checkpoints[12]
    assert json.loads((folder / "sweeps.json").read_text()) == {"best_step": best}
    model = load(str(folder))
    np.testing.assert_array_equal(model.predict(cur.check), np.load(folder / "check.npy"))
    scores: dict[str, float] = {}
    for split, shard in shards.items():
        predicted = model.predict(shard.frame.drop(columns="y"))
        for names in (None, (metric,)):
            scores |= measure(task, split, shard.frame["y"].to_numpy(), predicted, names)
    assert scores[metric] == pytest.approx(values[best - 1], rel=1e-4)
    assert loop_run.final == pytest.approx(
        {name: scores[name] for name in loop_run.final}, rel=1e-4
    )
    assert {name.partition("-")[0] for name in loop_run.final} == {"train", "valid"}


@pytest.mark.parametrize(
    ("schedule", "options"),
    [
        (None, {"datamodule": f"{MODELS}:loaders"}),
        ("steps", {}),
        ("plateau", {"datamodule": f"{MODELS}:Shuffled"}),
    ],
)
def test_a_resume_from_every_step_equals_an_uninterrupted_run(
    schedule: str | None, options: Any, tmp_path: Path
) -> None:
    params = PARAMS | {"schedule": schedule, "accumulate_grad_batches": 2}
    whole, *_ = run("binary", tmp_path / "whole", params, options=options)
    assert list(whole.checkpoints) == [1, 2, 3, 4, 5, 6]
    for step in (1, 4):
        rest, *_ = run(
            "binary", tmp_path / str(step), params, options=options, resume=whole.checkpoints[step]
        )
        assert rest.metrics == whole.metrics[step:]
        ends = [
            torch.load(each / "latest.ckpt", weights_only=False)
            for each in (whole.checkpoints[6], rest.checkpoints[6 - step])
        ]
        for name, weights in ends[0]["state_dict"].items():
            assert torch.equal(weights, ends[1]["state_dict"][name])
        again, *_ = run(
            "binary",
            tmp_path / f"{step} again",
            params,
            options=options,
            resume=rest.checkpoints[1],
        )
        assert again.metrics == whole.metrics[step + 1 :], "a second resume"


def test_steps_are_the_epochs_that_lightning_validates(tmp_path: Path) -> None:
    params = PARAMS | {"max_epochs": 7, "check_val_every_n_epoch": 3}
    loop_run, *_ = run("binary", tmp_path / "whole", params)
    every, *_ = run("binary", tmp_path / "every", PARAMS | {"max_epochs": 7})
    assert [metrics["valid-loss"] for metrics in loop_run.metrics] == [
        every.metrics[step]["valid-loss"] for step in (2, 5)
    ]
    assert loop_run.final, "the second step is the last"
    rest, *_ = run("binary", tmp_path / "rest", params, resume=loop_run.checkpoints[1])
    assert rest.metrics == loop_run.metrics[1:]
    assert (
        len(run("binary", tmp_path / "max_t", {"check_val_every_n_epoch": 2}, max_t=3)[0].metrics)
        == 3
    )


def test_a_module_without_validation_reports_computed_metrics(tmp_path: Path) -> None:
    metrics = ("valid-logloss", "valid-balanced_accuracy")
    options = {"module": f"{MODELS}:Probabilities", "output": "probabilities"}
    loop_run, *_ = run("binary", tmp_path, metric=metrics[0], asked=metrics, options=options)
    assert len(loop_run.metrics) == 6 and {frozenset(each) for each in loop_run.metrics} == {
        frozenset({*metrics, "train-loss"})
    }
    logits, *_ = run("binary", tmp_path / "logits", metric=metrics[0], asked=metrics)
    assert [each["valid-logloss"] for each in loop_run.metrics] == pytest.approx(
        [each["valid-logloss"] for each in logits.metrics]
    )
    with pytest.raises(ValueError, match="not probabilities"):
        run(
            "binary",
            tmp_path / "wrong",
            metric=metrics[0],
            asked=metrics,
            options={"output": "probabilities"},
        )


def test_changed_params_take_effect_on_resume(tmp_path: Path) -> None:
    params = PARAMS | {"schedule": "steps"}
    first, *_ = run("binary", tmp_path / "first", params, stop_at=3)
    checkpoint = first.checkpoints[2]

    def groups(name: Any, **changed: Any) -> Any:
        loop_run, *_ = run(
            "binary", tmp_path / name, params | changed, resume=checkpoint, stop_at=1
        )
        (state,) = torch.load(loop_run.checkpoints[1] / "latest.ckpt", weights_only=False)[
            "optimizer_states"
        ]
        return state

    assert groups("same")["param_groups"][0]["lr"] == pytest.approx(0.1 * 0.5**3)
    assert groups("lr", lr=0.01)["param_groups"][0]["lr"] == pytest.approx(0.01 * 0.5**3)
    assert groups("gamma", gamma=0.1)["param_groups"][0]["lr"] == pytest.approx(0.1 * 0.5**2 * 0.1)


@pytest.mark.parametrize("precision", ["bf16-mixed", "64-true"])
def test_computed_metrics_use_the_precision_of_the_training(precision: str, tmp_path: Path) -> None:
    loop_run, _, shards = run(
        "binary",
        tmp_path,
        PARAMS | {"precision": precision},
        metric="valid-logloss",
        asked=("valid-logloss",),
    )
    model = load(str(loop_run.checkpoints[6]))
    valid = shards["valid"].frame
    loss = measure(
        "binary", "valid", valid["y"].to_numpy(), model.predict(valid.drop(columns="y"))
    )["valid-logloss"]
    assert loss == pytest.approx(
        min(metrics["valid-logloss"] for metrics in loop_run.metrics),
        rel=1e-6 if precision == "64-true" else 0.05,
    )
    assert loop_run.metrics[-1]["valid-logloss"] == pytest.approx(
        loop_run.metrics[-1]["valid-loss"], rel=0.02
    )


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"val_check_interval": 0.5}, r"params\.val_check_interval cannot be set"),
        ({"max_epoch": 3}, r"params\.max_epoch is unknown .* did you mean `max_epochs`\?"),
    ],
)
def test_a_wrong_parameter(params: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        run("binary", tmp_path, params)
