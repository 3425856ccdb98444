"""The trainer `keras`, on the framework that the environment variable KERAS_BACKEND names, and on
PyTorch by default.

A process can use Keras with one framework only. `test_keras_grid.py` therefore runs these tests
with TensorFlow in another process.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from sweeps.testing.fake_session import FakeShard, run_loop, small_table
from sweeps.testing.pytest_trainers import TrainerTests
from sweeps.trainers import keras as trainer
from sweeps.trainers._metrics import measure

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(120)]

FRAMEWORK = os.environ.get("KERAS_BACKEND", "torch")
MODELS = "tests.frameworks.keras_models"


def keras_options(model: str, **more: Any) -> dict[str, Any]:
    return {
        "model": f"{MODELS}:{model}",
        "framework": FRAMEWORK,
        "standardize_target": True,
        **more,
    }


def run(
    folder: Path,
    model: str,
    params: dict[str, Any],
    task: str = "binary",
    resume: Path | None = None,
    more: dict[str, Any] | None = None,
    **changed: Any,
) -> Any:
    """Run the loop once in this process."""
    current, shards = small_table(task)
    folder.mkdir(exist_ok=True)
    cur = current(options=keras_options(model, **more or {}), checkpoint_interval=0.0, **changed)
    return run_loop(trainer.train_func, params, cur, shards, folder, resume=resume)


class TestBinary(TrainerTests):
    module = "sweeps.trainers.keras"
    options: ClassVar = keras_options("compiled")
    params: ClassVar = {"epochs": 3, "units": 8, "learning_rate": 0.02}


@pytest.mark.parametrize(
    ("model", "task"),
    [("compiled", "regression"), ("not_compiled", "multiclass"), ("own", "binary")],
)
def test_the_loaded_model_has_the_metrics_of_the_best_epoch(
    tmp_path: Path, model: str, task: str
) -> None:
    loop_run = run(
        tmp_path,
        model,
        {"epochs": 12, "learning_rate": 0.03, "units": 16}
        if model == "compiled"
        else {"epochs": 12},
        task,
    )
    current, shards = small_table(task)
    metric = current().metric
    values = [metrics[metric] for metrics in loop_run.metrics]
    assert min(values) < 0.9 * values[0], "the model learns"
    valid = shards["valid"].frame
    loaded = trainer.load(str(loop_run.checkpoints[12]))
    scores = measure(task, "valid", valid["y"].to_numpy(), loaded.predict(valid.drop(columns="y")))
    assert metric is not None
    assert scores[metric] == pytest.approx(min(values), rel=1e-5)
    assert {name: loop_run.final[name] for name in scores if name != metric} == pytest.approx(
        {name: value for name, value in scores.items() if name != metric}, rel=1e-4
    )
    assert (
        json.loads((loop_run.checkpoints[12] / "sweeps.json").read_text())["best_step"]
        == values.index(min(values)) + 1
    )


def test_metrics_of_the_compiled_model_are_reported(tmp_path: Path) -> None:
    asked = (
        "valid-AUC",
        "train-AUC",
        "valid-loss",
        "train-loss",
        "valid-balanced_accuracy",
        "valid-logloss",
    )
    loop_run = run(
        tmp_path, "compiled", {"epochs": 2}, metric="valid-AUC", goal="maximize", asked=asked
    )
    assert all(tuple(metrics) == asked for metrics in loop_run.metrics)
    last = loop_run.metrics[-1]
    assert last["valid-loss"] == pytest.approx(last["valid-logloss"], rel=1e-4)
    assert 0.5 < last["valid-AUC"] < 1 and 0.5 < last["valid-balanced_accuracy"] < 1


def test_a_loaded_model_predicts_a_row_alone_as_among_others(tmp_path: Path) -> None:
    loaded = trainer.load(str(run(tmp_path, "compiled", {"epochs": 1}).checkpoints[1]))
    rows = small_table("binary")[1]["valid"].frame.drop(columns="y")
    together = loaded.predict(rows)
    np.testing.assert_array_equal(
        [loaded.predict(rows.iloc[[i]])[0] for i in range(len(rows))], together
    )
    assert loaded.predict(rows.iloc[:0]).shape == (0,)


def test_a_weight_is_the_number_of_times_that_a_row_occurs(tmp_path: Path) -> None:
    task = "regression"
    current, shards = small_table(task)
    train = shards["train"].frame
    weights = np.random.default_rng(1).integers(0, 4, len(train))
    tables = {
        "weighted": train.assign(sample_weight=weights.astype(float)),
        "repeated": train.iloc[np.repeat(np.arange(len(train)), weights)].reset_index(drop=True),
        "plain": train,
    }
    runs = {}
    for name, frame in tables.items():
        (tmp_path / name).mkdir()
        weight = "sample_weight" if "sample_weight" in frame else None
        cur = current(options=keras_options("not_compiled"), weight=weight, _cached_objects={})
        params = {"epochs": 3, "batch_size": 10_000, "learning_rate": 0.02}
        runs[name] = run_loop(
            trainer.train_func, params, cur, {**shards, "train": FakeShard(frame)}, tmp_path / name
        ).metrics
    for first, second in zip(runs["weighted"], runs["repeated"], strict=True):
        assert first == pytest.approx(second, rel=1e-4)
    assert runs["plain"][-1] != pytest.approx(runs["weighted"][-1], rel=1e-3), "weights count"


def test_parameters_reach_the_function_and_the_optimizer(tmp_path: Path) -> None:
    slow = run(tmp_path / "a", "compiled", {"epochs": 1, "learning_rate": 1e-9})
    fast = run(tmp_path / "b", "compiled", {"epochs": 1, "learning_rate": 0.05})
    assert slow.metrics[0]["valid-logloss"] > fast.metrics[0]["valid-logloss"]
    held = run(
        tmp_path / "c", "not_compiled", {"epochs": 1, "optimizer": "sgd", "learning_rate": 1e-9}
    )
    moved = run(
        tmp_path / "d",
        "not_compiled",
        {
            "epochs": 1,
            "optimizer": "sgd",
            "learning_rate": 0.5,
            "weight_decay": 0.01,
            "clipnorm": 1.0,
        },
    )
    assert held.metrics[0]["valid-logloss"] > moved.metrics[0]["valid-logloss"]


def test_a_resumed_trial_takes_a_changed_learning_rate(tmp_path: Path) -> None:
    first = run(tmp_path / "first", "not_compiled", {"epochs": 1, "learning_rate": 0.02})
    same = run(
        tmp_path / "same",
        "not_compiled",
        {"epochs": 2, "learning_rate": 0.02},
        resume=first.checkpoints[1],
    )
    still = run(
        tmp_path / "still",
        "not_compiled",
        {"epochs": 2, "learning_rate": 1e-9},
        resume=first.checkpoints[1],
    )
    assert same.metrics != still.metrics
    assert still.metrics[0]["valid-logloss"] == pytest.approx(
        first.metrics[0]["valid-logloss"], rel=1e-5
    )


def test_a_checkpoint_of_another_shape_is_refused(tmp_path: Path) -> None:
    first = run(tmp_path / "first", "not_compiled", {"epochs": 1, "units": 4})
    with pytest.raises(
        ValueError, match="under pbt, arguments that change the shapes must be constants"
    ):
        run(
            tmp_path / "second",
            "not_compiled",
            {"epochs": 2, "units": 5},
            resume=first.checkpoints[1],
        )


def test_the_target_can_keep_its_unit(tmp_path: Path) -> None:
    asked = ("valid-rmse", "valid-loss")
    scaled = run(tmp_path / "a", "not_compiled", {"epochs": 1}, "regression", asked=asked).metrics[
        0
    ]
    kept = run(
        tmp_path / "b",
        "not_compiled",
        {"epochs": 1},
        "regression",
        more={"standardize_target": False},
        asked=asked,
    ).metrics[0]
    assert kept["valid-loss"] == pytest.approx(kept["valid-rmse"] ** 2, rel=1e-4)
    assert scaled["valid-loss"] < 10 and scaled["valid-rmse"] < kept["valid-rmse"]


@pytest.mark.parametrize(
    ("model", "params", "message"),
    [
        ("compiled", {"unit": 3}, "params.unit is unknown"),
        (
            "compiled",
            {"optimizer": "sgd"},
            "params.optimizer has no effect, because .*:compiled` compiles its model",
        ),
        (
            "with_lambda",
            {},
            "Keras cannot load the model of .*:with_lambda` from the file that it wrote",
        ),
        (
            "forgetful",
            {},
            "of .*:forgetful` predicts other values after Keras has saved and loaded it",
        ),
        ("no_probabilities", {}, "are not probabilities; end the model with sigmoid or softmax"),
        ("three_outputs", {}, "has 3 outputs, but this label needs 1 or 2"),
        ("no_model", {}, "returned a int, but must return a keras.Model"),
    ],
)
def test_mistakes(tmp_path: Path, model: str, params: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run(tmp_path, model, params)
