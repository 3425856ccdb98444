"""The trainer `transformers`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

pytest.importorskip("transformers")

from sweeps.testing.fake_session import FakeShard, run_loop, small_table
from sweeps.testing.pytest_trainers import TrainerTests
from sweeps.trainers import transformers
from sweeps.trainers._metrics import measure
from sweeps.trainers._transformers_model import load

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(120)]
MODELS = "tests.frameworks.user_models"
BERT = {
    "model": f"{MODELS}:bert",
    "tokenizer": None,
    "dataset": f"{MODELS}:bins",
    "standardize_target": True,
}
PARAMS = {"num_train_epochs": 4, "per_device_train_batch_size": 33, "learning_rate": 0.01}


def run(
    task: Any,
    folder: Any,
    params: Any = PARAMS,
    *,
    resume: Any = None,
    stop_at: Any = None,
    options: Any = BERT,
    shards: Any = None,
    **changed: Any,
) -> Any:
    current, table = small_table(task)
    shards = shards or table
    cur = current(
        **{
            "metric": "valid-loss",
            "asked": ("valid-loss",),
            "checkpoint_interval": 0.0,
            "options": options,
        }
        | changed
    )
    folder.mkdir(parents=True, exist_ok=True)
    return (
        run_loop(
            transformers.train_func,
            dict(params),
            cur,
            shards,
            folder,
            resume=resume,
            stop_at=stop_at,
        ),
        cur,
        shards,
    )


class TestTransformers(TrainerTests):
    module = "sweeps.trainers.transformers"
    options = BERT
    params = PARAMS | {"num_train_epochs": 3}


@pytest.mark.parametrize("task", ["multiclass", "regression"])
def test_a_checkpoint_has_the_best_step_and_predicts_what_was_measured(
    task: str, tmp_path: Path
) -> None:
    metric = {"multiclass": "valid-neg_log_loss", "regression": "valid-rmse"}[task]
    goal = "maximize" if task == "multiclass" else "minimize"
    params = PARAMS | {"num_train_epochs": 12, "learning_rate": 0.3}
    loop_run, cur, shards = run(task, tmp_path, params, metric=metric, asked=(metric,), goal=goal)
    assert len(loop_run.metrics) == 12 and set(loop_run.metrics[0]) == {
        "train-loss",
        "valid-loss",
        metric,
    }
    values = [metrics[metric] for metrics in loop_run.metrics]
    best = int(np.argmin(values) if goal == "minimize" else np.argmax(values)) + 1
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


SCHEDULES = [
    {"lr_scheduler_type": "cosine", "warmup_steps": 4, "gradient_accumulation_steps": 2},
    {"lr_scheduler_type": "reduce_lr_on_plateau", "optim": "sgd"},
    {
        "eval_strategy": "steps",
        "eval_steps": 3,
        "gradient_accumulation_steps": 2,
        "lr_scheduler_type": "constant",
    },
]


@pytest.mark.parametrize("more", SCHEDULES)
def test_a_resume_from_every_step_equals_an_uninterrupted_run(more: Any, tmp_path: Path) -> None:
    whole, *_ = run("binary", tmp_path / "whole", PARAMS | more)
    steps = len(whole.metrics)
    assert list(whole.checkpoints) == list(range(1, steps + 1)) and steps >= 4
    for step in (1, steps - 1):
        rest, *_ = run(
            "binary", tmp_path / str(step), PARAMS | more, resume=whole.checkpoints[step]
        )
        assert rest.metrics == whole.metrics[step:]
        last, again = whole.checkpoints[steps], rest.checkpoints[steps - step]
        np.testing.assert_array_equal(np.load(last / "check.npy"), np.load(again / "check.npy"))


def test_changed_params_take_effect_on_resume(tmp_path: Path) -> None:
    params = PARAMS | {"lr_scheduler_type": "constant"}
    first, *_ = run("binary", tmp_path / "first", params, stop_at=3)

    def state(name: Any, **changed: Any) -> Any:
        loop_run, *_ = run(
            "binary", tmp_path / name, params | changed, resume=first.checkpoints[2], stop_at=1
        )
        return torch.load(loop_run.checkpoints[1] / "latest" / "optimizer.pt", weights_only=True)

    assert state("same")["param_groups"][0]["lr"] == 0.01
    changed = state("lr", learning_rate=0.002, weight_decay=0.3)["param_groups"][0]
    assert changed["lr"] == 0.002 and changed["weight_decay"] == 0.3


def test_other_batches_after_a_resume_are_refused(tmp_path: Path) -> None:
    first, *_ = run("binary", tmp_path / "first", PARAMS, stop_at=2)
    params = PARAMS | {"per_device_train_batch_size": 16}
    with pytest.raises(ValueError, match="the checkpoint is of a training with other batches"):
        run("binary", tmp_path / "second", params, resume=first.checkpoints[2])


def text_shards(rows: int = 120) -> Any:
    """Return shards with a column of text whose words decide the label."""
    rng = np.random.default_rng(0)
    words = np.array(["good", "bad", "film", "plot", "very", "not", "the", "was"])
    texts = [" ".join(rng.choice(words, rng.integers(2, 9))) for _ in range(rows)]
    labels = [int(text.count("good") > text.count("bad")) for text in texts]
    frame = pd.DataFrame({"text": texts, "y": labels})
    return {
        "train": FakeShard(frame.iloc[:80]),
        "valid": FakeShard(frame.iloc[80:].reset_index(drop=True)),
    }


TEXT = BERT | {"tokenizer": f"{MODELS}:words", "dataset": None}


def test_a_tokenizer_encodes_text(tmp_path: Path) -> None:
    shards = text_shards()
    check = shards["valid"].frame.drop(columns="y").iloc[:32]
    params = PARAMS | {
        "num_train_epochs": 15,
        "dropout": 0.0,
        "max_length": 8,
        "per_device_train_batch_size": 8,
    }
    asked = ("valid-accuracy", "valid-roc_auc")
    given = {
        "metric": asked[0],
        "goal": "maximize",
        "asked": asked,
        "options": TEXT,
        "shards": shards,
        "check": check,
    }
    loop_run, cur, _ = run("binary", tmp_path, params, **given)
    assert max(metrics["valid-accuracy"] for metrics in loop_run.metrics) > 0.85
    folder = loop_run.checkpoints[15]
    model = load(str(folder))
    np.testing.assert_array_equal(model.predict(cur.check), np.load(folder / "check.npy"))
    assert model.predict(pd.DataFrame({"text": ["good good film", None]})).shape == (2,)
    assert model.predict(check.iloc[:0]).shape == (0,)
    assert len(model.description.convert(check.iloc[:1], model.tokenizer)["input_ids"][0]) <= 8
    assert (folder / "tokenizer").is_dir() and json.loads((folder / "config.json").read_text())[
        "vocab_size"
    ] == 10
    before = shards["train"].reads
    run(
        "binary",
        tmp_path / "again",
        params,
        stop_at=1,
        **given | {"_cached_objects": cur._cached_objects},
    )
    assert shards["train"].reads == before, "encoded rows are kept"
    run(
        "binary",
        tmp_path / "other",
        params | {"max_length": 4},
        stop_at=1,
        **given | {"_cached_objects": cur._cached_objects},
    )
    assert shards["train"].reads == before + 1, "rows are encoded again with another `max_length`"


def test_a_regression_learns_the_standardized_target(tmp_path: Path) -> None:
    loop_run, _, shards = run(
        "regression",
        tmp_path,
        PARAMS | {"num_train_epochs": 15},
        metric="valid-rmse",
        asked=("valid-rmse",),
    )
    target, valid = shards["train"].frame["y"], shards["valid"].frame
    assert (
        min(metrics["valid-rmse"] for metrics in loop_run.metrics) < 0.7 * target.std()
        and loop_run.metrics[0]["valid-loss"] < 3
    )
    description = load(str(loop_run.checkpoints[15])).description
    assert (description.mean, description.std) == pytest.approx((target.mean(), target.std(ddof=0)))
    same, *_ = run(
        "regression",
        tmp_path / "raw",
        PARAMS,
        options=BERT | {"standardize_target": False},
        stop_at=1,
    )
    assert same.metrics[0]["valid-loss"] == pytest.approx((valid["y"] ** 2).mean(), rel=0.1)


def test_a_model_that_is_no_pretrained_model(tmp_path: Path) -> None:
    task = "multiclass"
    options = BERT | {"model": f"{MODELS}:Linear", "dataset": f"{MODELS}:vectors"}
    loop_run, cur, _ = run(task, tmp_path, PARAMS | {"learning_rate": 0.02}, options=options)
    losses = [metrics["valid-loss"] for metrics in loop_run.metrics]
    assert losses == sorted(losses, reverse=True)
    folder = loop_run.checkpoints[4]
    np.testing.assert_array_equal(
        load(str(folder)).predict(cur.check), np.load(folder / "check.npy")
    )


@pytest.mark.parametrize(
    ("params", "options", "message"),
    [
        ({"save_strategy": "epoch"}, BERT, r"params\.save_strategy cannot be set"),
        (
            {"learning_rat": 3},
            BERT,
            r"params\.learning_rat is unknown .* did you mean `learning_rate`\?",
        ),
        (
            {},
            BERT | {"dataset": None},
            r"needs `trainer\.tokenizer` for text, or `trainer\.dataset`",
        ),
        ({}, TEXT, r"the column `x0` is not text; .* write a function for `trainer\.dataset`"),
    ],
)
def test_a_wrong_parameter_or_option(
    params: Any, options: Any, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        run("binary", tmp_path, params, options=options)
