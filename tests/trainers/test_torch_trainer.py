"""The trainer `torch`: the conformance suite with many settings, equality with a plain loop, and
messages.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from sweeps.testing.fake_session import FakeShard, run_loop, small_table
from sweeps.testing.pytest_trainers import TrainerTests
from sweeps.trainers._metrics import measure
from sweeps.trainers.torch import load, train_func
from tests import networks

NET = {"model": "tests.networks:Net", "loss": None, "dataset": None}


class TestBinary(TrainerTests):
    module = "sweeps.trainers.torch"
    options: ClassVar = {"model": "tests.networks:Net"}
    params: ClassVar = {"epochs": 4, "width": 8, "dropout": 0.2, "batch_size": 48}


class TestMulticlassWithEveryStepOfTheLoop(TestBinary):
    task = "multiclass"
    options: ClassVar = {"model": "tests.networks:Net", "loss": "torch.nn:CrossEntropyLoss"}
    params: ClassVar = {
        "epochs": 4,
        "width": 8,
        "dropout": 0.2,
        "norm": True,
        "loss_args": {"label_smoothing": 0.1, "weight": [1.0, 2.0, 1.0]},
        "batch_size": 16,
        "accumulate": 3,
        "clip_norm": 0.5,
        "optimizer": "torch.optim:SGD",
        "optimizer_args": {"momentum": 0.9},
        "lr": 0.1,
        "schedule": "torch.optim.lr_scheduler:OneCycleLR",
        "schedule_every": "step",
        "warmup_epochs": 1.5,
    }


class TestRegressionOnAPlateau(TestBinary):
    task = "regression"
    params: ClassVar = {
        "epochs": 6,
        "lr": 0.5,
        "schedule": "torch.optim.lr_scheduler:ReduceLROnPlateau",
        "schedule_args": {"patience": 0, "factor": 0.3},
        "shuffle": False,
    }


class TestCosineAndBfloat16(TestBinary):
    params: ClassVar = {
        "epochs": 4,
        "schedule": "torch.optim.lr_scheduler:CosineAnnealingLR",
        "precision": "bf16",
        "clip_norm": 1.0,
    }


class TestDataset(TestBinary):
    options: ClassVar = {
        "model": "tests.networks:Net",
        "dataset": "tests.networks:Noisy",
        "loss": "tests.networks:focal",
    }
    params: ClassVar = {"epochs": 3, "dataset_args": {"noise": 0.3}, "loss_args": {"gamma": 1.0}}

    def test_weights_count(self, tmp_path: Path, definition: Any) -> None:
        """A loss that returns only the mean over the rows is refused."""
        with pytest.raises(
            ValueError, match=r"trainer.loss: weights of rows need a loss with `reduction"
        ):
            super().test_weights_count(tmp_path, definition)


class DatasetInProcesses(TestDataset):
    params: ClassVar = TestDataset.params | {"loader_workers": 2}


@pytest.mark.integration
def test_a_dataset_in_processes_repeats_resumes_and_stops(tmp_path: Path) -> None:
    suite = DatasetInProcesses()
    for test in (
        suite.test_a_resumed_run_equals_an_uninterrupted_one,
        suite.test_a_stop_ends_the_loop,
    ):
        folder = tmp_path / test.__name__
        folder.mkdir()
        test(folder)


def run(
    task: Any, folder: Any, params: Any, options: Any = NET, shards: Any = None, **more: Any
) -> Any:
    """Run the loop on a small table, and return the run and the function that makes a `Current`."""
    make, table = small_table(task)
    resume = more.pop("resume", None)
    current = make(options=NET | options, checkpoint_interval=0.0, **more)
    return run_loop(train_func, params, current, shards or table, folder, resume=resume)


def seeded(*parts: Any) -> None:
    seed = int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0] >> np.uint64(1))
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


def plain_loop(
    task: Any, epochs: Any, rate: Any, size: Any, clip: Any, loss: Any, target: Any
) -> Any:
    """Train as a PyTorch tutorial does, and return the metrics of valid after each epoch."""
    _, shards = small_table(task)
    x, y = (
        torch.tensor(shards["train"].frame.iloc[:, columns].to_numpy()) for columns in (slice(5), 5)
    )
    valid = shards["valid"].frame
    x_valid = torch.tensor(valid.drop(columns="y").to_numpy(np.float32))
    x = x.float()
    seeded(7)
    network = networks.Net(5, 3 if task == "multiclass" else 1)
    optimizer = torch.optim.AdamW(network.parameters(), lr=rate, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    values = []
    for epoch in range(1, epochs + 1):
        seeded(7, epoch, 0)
        network.train()
        for rows in torch.split(torch.randperm(len(x)), size):
            optimizer.zero_grad()
            out = network(x[rows])
            loss(out if task == "multiclass" else out[:, 0], target(y[rows])).backward()
            nn.utils.clip_grad_norm_(network.parameters(), clip)
            optimizer.step()
        schedule.step()
        network.eval()
        with torch.no_grad():
            out = network(x_valid).double()
        p = torch.softmax(out, 1) if task == "multiclass" else torch.sigmoid(out[:, 0])
        values.append(measure(task, "valid", valid["y"].to_numpy(), p.numpy()))
    return values


@pytest.mark.parametrize(
    ("task", "loss", "target"),
    [
        ("binary", nn.BCEWithLogitsLoss(), torch.Tensor.float),
        ("multiclass", nn.CrossEntropyLoss(), torch.Tensor.long),
    ],
)
def test_the_numbers_are_those_of_a_plain_loop(
    task: str, loss: Any, target: Any, tmp_path: Path
) -> None:
    params = {
        "epochs": 5,
        "lr": 0.02,
        "batch_size": 48,
        "clip_norm": 0.7,
        "optimizer_args": {"weight_decay": 0.1},
    }
    params |= {"schedule": "torch.optim.lr_scheduler:CosineAnnealingLR"}
    names = tuple(
        measure(
            task, "valid", np.array([0, 1]), np.full((2, 3) if task == "multiclass" else 2, 1 / 3)
        )
    )
    metrics = run(task, tmp_path, params, metric=names[0], asked=names).metrics
    assert metrics == plain_loop(task, 5, 0.02, 48, 0.7, loss, target)


def weights(run_: Any, step: Any) -> Any:
    return load(str(run_.checkpoints[step])).network.state_dict()


def test_accumulated_batches_make_the_step_of_one_large_batch(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    params = {"epochs": 1, "lr": 0.1, "optimizer": "torch.optim:SGD"}
    whole = run("regression", tmp_path / "a", params | {"batch_size": 160})
    parts = run(
        "regression", tmp_path, params | {"batch_size": 48, "accumulate": 4}
    )  # three batches of 48 rows, and one of 16
    for name, tensor in weights(whole, 1).items():
        torch.testing.assert_close(tensor, weights(parts, 1)[name])


def test_a_new_learning_rate_takes_effect_on_resume(tmp_path: Path) -> None:
    """Under PBT, a trial continues from a checkpoint of another trial with its own rate, which its
    schedule scales.
    """
    params = {
        "epochs": 4,
        "batch_size": 160,
        "optimizer": "torch.optim:SGD",
        "schedule": "torch.optim.lr_scheduler:ExponentialLR",
    }
    params |= {"schedule_args": {"gamma": 0.5}, "dropout": 0.0}
    donor = run("regression", tmp_path, params | {"lr": 0.1})
    steps: dict[float, torch.Tensor] = {}
    for rate in (0.1, 0.2):
        folder = tmp_path / str(rate)
        folder.mkdir()
        went_on = run(
            "regression",
            folder,
            params | {"lr": rate},
            resume=donor.checkpoints[1],
            max_t=None,
        )
        before = torch.load(donor.checkpoints[1] / "latest.pt").get("network") or weights(donor, 1)
        after = torch.load(went_on.checkpoints[1] / "latest.pt").get("network") or weights(
            went_on, 1
        )
        steps[rate] = torch.cat([(after[name] - before[name]).flatten() for name in before])
    torch.testing.assert_close(steps[0.2], 2 * steps[0.1], rtol=1e-3, atol=1e-7)


def test_new_optimizer_starts_fresh_and_new_shape_is_refused(tmp_path: Path) -> None:
    donor = run("binary", tmp_path, {"epochs": 2}).checkpoints[1]
    (tmp_path / "new").mkdir()
    for optimizer in ("torch.optim:SGD", "torch.optim:Adagrad"):
        assert (
            len(
                run(
                    "binary", tmp_path / "new", {"epochs": 2, "optimizer": optimizer}, resume=donor
                ).metrics
            )
            == 1
        )
    with pytest.raises(
        ValueError, match="under pbt, parameters that change the shape must be constants"
    ):
        run("binary", tmp_path, {"epochs": 2, "width": 3}, resume=donor)


def test_patience_ends_the_training_and_a_refit_has_none(tmp_path: Path) -> None:
    params = {"epochs": 30, "lr": 3.0, "patience": 2, "optimizer": "torch.optim:SGD"}
    loop_run = run("regression", tmp_path, params)
    values = [metrics["valid-rmse"] for metrics in loop_run.metrics]
    best = int(np.nanargmin(values)) + 1
    assert len(values) == best + 2 < 30
    assert max(loop_run.checkpoints) == len(values) and "train-rmse" in loop_run.final
    (tmp_path / "refit").mkdir()
    assert (
        len(run("regression", tmp_path / "refit", params | {"epochs": 8}, keep_last=True).metrics)
        == 8
    )


@pytest.mark.parametrize(
    ("options", "params"),
    [
        ({"loss": "torch.nn:CrossEntropyLoss"}, {}),
        ({"loss": "tests.networks:focal"}, {}),
        ({"model": "tests.networks:probability", "loss": "torch.nn:BCELoss"}, {}),
        ({"model": "tests.networks:lazy"}, {}),
        ({"dataset": "tests.networks:two_inputs", "model": "tests.networks:TwoInputs"}, {}),
    ],
)
def test_losses_and_networks_for_two_classes(options: Any, params: Any, tmp_path: Path) -> None:
    loop_run = run(
        "binary",
        tmp_path,
        {"epochs": 12, "lr": 0.03} | params,
        options,
        asked=("valid-logloss", "valid-auc", "valid-loss"),
    )
    assert (
        loop_run.metrics[-1]["valid-auc"] > 0.8
        and loop_run.metrics[-1]["valid-loss"] < loop_run.metrics[0]["valid-loss"]
    )
    assert_loads(loop_run, "binary")


def assert_loads(loop_run: Any, task: Any, shards: Any = None) -> None:
    """Check that the loaded model has the objective's value of the best epoch."""
    metric = {
        "binary": "valid-logloss",
        "multiclass": "valid-mlogloss",
        "regression": "valid-rmse",
    }[task]
    frame = (shards or small_table(task)[1])["valid"].frame
    model = load(str(loop_run.checkpoints[max(loop_run.checkpoints)]))
    predicted = model.predict(frame.drop(columns="y"))
    assert measure(task, "valid", frame["y"].to_numpy(), predicted)[metric] == pytest.approx(
        min(m[metric] for m in loop_run.metrics), rel=1e-5
    )
    assert model.predict(frame.drop(columns="y").iloc[:0]).shape == (0, *predicted.shape[1:])


def images(tensors: bool) -> Any:
    """Return shards whose rows have an image of 8 × 8 pixels as 8-bit integers."""
    from sklearn.datasets import load_digits

    data = load_digits()
    frame = pd.DataFrame(
        {"image": list(data.images.astype(np.uint8)), "y": np.minimum(data.target, 2)}
    )
    if tensors:
        from ray.data.extensions import TensorArray

        frame["image"] = TensorArray(data.images.astype(np.uint8))
    return {
        "train": FakeShard(frame.iloc[:600]),
        "valid": FakeShard(frame.iloc[600:800].reset_index(drop=True)),
    }


def test_a_vision_transformer_reads_a_column_of_images(tmp_path: Path) -> None:
    shards = images(tensors=True)
    check = images(False)["valid"].frame.drop(columns="y").iloc[:32]
    params = {
        "epochs": 4,
        "lr": 0.01,
        "batch_size": 32,
        "depth": 1,
        "optimizer_args": {"weight_decay": 0.05},
    }
    loop_run = run(
        "multiclass",
        tmp_path,
        params,
        {"model": "tests.networks:Attention"},
        shards,
        check=check,
        _cached_objects={},
    )
    assert loop_run.metrics[-1]["valid-mlogloss"] < 0.7 * loop_run.metrics[0]["valid-mlogloss"]
    assert_loads(loop_run, "multiclass", shards)
    model = load(str(loop_run.checkpoints[4]))
    np.testing.assert_array_equal(
        model.predict(check), np.load(loop_run.checkpoints[4] / "check.npy")
    )


@pytest.mark.parametrize("threads", [2, 8])
def test_predictions_do_not_depend_on_threads(threads: int, tmp_path: Path) -> None:
    loop_run = run("binary", tmp_path, {"epochs": 1, "width": 2048})
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        check = small_table("binary")[0]().check
        np.testing.assert_array_equal(
            load(str(loop_run.checkpoints[1])).predict(check),
            np.load(loop_run.checkpoints[1] / "check.npy"),
        )
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("sweep_max_t", [6, None])
def test_a_trial_that_is_trained_again_follows_the_schedule_of_the_sweep(
    tmp_path: Path, sweep_max_t: int | None
) -> None:
    """`export --refit` trains up to the best step, but the schedule was made for all steps of the
    sweep.
    """
    params = {
        "schedule": "torch.optim.lr_scheduler:OneCycleLR",
        "schedule_every": "step",
        "lr": 0.1,
    }
    for name in ("sweep", "again"):
        (tmp_path / name).mkdir()
    trained = run("binary", tmp_path / "sweep", params, max_t=sweep_max_t)
    again = run(
        "binary", tmp_path / "again", params, max_t=2, sweep_max_t=sweep_max_t, keep_last=True
    )
    assert again.metrics == trained.metrics[:2] and max(again.checkpoints) == 2
