"""Training loops for tests of whole sweeps.

A latch is a file in the folder `config["latch"]` for which a loop waits.
"""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
from pathlib import Path
from typing import Any


def _report(step: int, loss: float, save: bool = True) -> None:
    import ray.train

    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "state.json").write_text(json.dumps({"step": step, "loss": loss}))
        checkpoint = (
            ray.train.Checkpoint.from_directory(folder)
            if save and ray.train.get_context().get_world_rank() == 0
            else None
        )
        ray.train.report({"loss": loss}, checkpoint=checkpoint)


def _dies_in_a_copy(driver: int) -> None:
    """Replace the function that copies checkpoints: it writes half of the file, and then kills the
    driver and this process.
    """
    import pyarrow.fs

    def copy_files(source: str, target: str, **how: object) -> None:
        text = Path(source, "state.json").read_text()
        Path(target, "state.json").write_text(text[: len(text) // 2])
        for pid in (driver, os.getpid()):
            os.kill(pid, signal.SIGKILL)

    pyarrow.fs.copy_files = copy_files


def _start() -> int:
    import ray.train

    checkpoint = ray.train.get_checkpoint()
    if checkpoint is None:
        return 0
    with checkpoint.as_directory() as folder:
        return int(json.loads(Path(folder, "state.json").read_text())["step"])


def wait_for(*latches: Path, timeout: float = 60) -> None:
    """Wait until one of some files exists."""
    deadline = time.monotonic() + timeout
    while not any(latch.exists() for latch in latches):
        if time.monotonic() > deadline:
            raise TimeoutError(f"none of {', '.join(map(str, latches))}")
        time.sleep(0.02)


def plain(config: Any) -> None:
    """Report five steps that fall towards x.

    `tests.faults.crashing` may kill the driver and this process in the middle of the third step.
    """
    for step in range(_start() + 1, 6):
        if step == 3 and (driver := os.environ.get("DIE_IN_A_COPY")):
            _dies_in_a_copy(int(driver))
        _report(step, config["x"] + 1 / step)


def no_checkpoint(config: Any) -> None:
    import ray.train

    for step in range(1, 4):
        ray.train.report({"loss": config["x"] + 1 / step})


def sized(config: Any) -> None:
    """Report a loss and a size. If one of them falls with x, the other grows."""
    import ray.train

    for step in range(1, 6):
        ray.train.report({"loss": config["x"] + 1 / step, "size": 1 - config["x"]})


def broken(config: Any) -> None:
    raise ZeroDivisionError("the user's own mistake")


def sometimes_broken(config: Any) -> None:
    if config["x"] > 0.5:
        raise ZeroDivisionError("the user's own mistake")
    plain(config)


def unreported(config: Any) -> None:
    import ray.train

    ray.train.report({"accuracy": 1.0, "f1": 0.5})


def reports_unequally(config: Any) -> None:
    import ray.train

    for _ in range(3 if ray.train.get_context().get_world_rank() == 0 else 2):
        ray.train.report({"loss": 1.0})


def held(config: Any) -> None:
    """Report twice, create the file `NAME.two`, and wait for the file `go` or `NAME.go` to report
    again.
    """
    import ray.train

    latch, name = Path(config["latch"]), ray.train.get_context().get_trial_name()
    start = _start()
    Path(
        latch, f"{name}.started-at-{start}.{ray.train.get_context().get_world_rank()}.{os.getpid()}"
    ).touch()
    for step in range(start + 1, 6):
        _report(step, config["x"] + 1 / step)
        if step == 2 and start == 0:
            Path(latch, f"{name}.two").touch()
            wait_for(latch / "go", latch / f"{name}.go")


def heavy(config: Any) -> None:
    """Train like `held`, but with checkpoints of 4 MiB."""
    import ray.train

    latch, name = Path(config["latch"]), ray.train.get_context().get_trial_name()
    for step in range(_start() + 1, 4):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "weights").write_bytes(bytes(4 << 20))
            Path(folder, "state.json").write_text(json.dumps({"step": step}))
            if step == 2:
                Path(latch, f"{name}.two").touch()
                wait_for(latch / "go")
            ray.train.report(
                {"loss": config["x"] + 1 / step},
                checkpoint=ray.train.Checkpoint.from_directory(folder),
            )


def grows(config: Any) -> None:
    """If x is not 0, allocate a gibibyte of memory each second. Then report once."""
    import ray.train

    held: list[bytearray] = []
    while config["x"] and len(held) < 200:
        held.append(bytearray(os.urandom(1 << 20)) * 100)
        time.sleep(0.1)
    ray.train.report({"loss": 1.0})


def load(folder: Any) -> Any:
    """Return a model that predicts the loss in the checkpoint for every row."""
    state = json.loads(Path(folder, "state.json").read_text())

    class Constant:
        def predict(self, frame: Any) -> Any:
            import numpy as np

            return np.full(len(frame), state["loss"])

    return Constant()


def seeded(config: Any) -> None:
    """Report five steps that depend on the trial's random state.

    If the file `changed` exists, the values from the third step on are different.
    """
    import random

    import numpy as np

    for step in range(1, 6):
        noise = random.random() + float(np.random.random())
        if step >= 3 and Path(config["latch"], "changed").exists():
            noise *= 2
        _report(step, config["x"] + noise)


def slow(config: Any) -> None:
    """Train like `plain`, but take a third of a second."""
    for step in range(_start() + 1, 6):
        time.sleep(0.07)
        _report(step, config["x"] + 1 / step)


def falls(config: Any) -> None:
    """Report six steps, each with a loss that is lower by x.

    The first step lowers the loss in the checkpoint.
    """
    import ray.train

    step, loss = 0, 10.0
    if (checkpoint := ray.train.get_checkpoint()) is not None:
        with checkpoint.as_directory() as folder:
            state = json.loads(Path(folder, "state.json").read_text())
        step, loss = state["step"], state["loss"]
    for at in range(step + 1, 7):
        loss -= config["x"]
        _report(at, loss)


def forgets(config: Any) -> None:
    """Save checkpoints, but always start at the first step."""
    for step in range(1, 7):
        _report(step, config["x"] + 1 / step)


def images(kind: str = "dataset", rows: int = 60) -> Any:
    """Return labeled images of 4 × 5 pixels. Images with label 1 are brighter.

    The result is a Ray Dataset with tensors, or a DataFrame with an array in each cell.
    """
    import numpy as np

    rng = np.random.default_rng(0)
    label = np.arange(rows) % 2
    pixels = (rng.random((rows, 4, 5)) + label[:, None, None]).astype("float32")
    if kind == "frame":
        import pandas as pd

        return pd.DataFrame({"image": list(pixels), "width": np.full(rows, 5), "bright": label})
    import ray.data

    return ray.data.from_items(
        [{"image": p, "width": 5, "bright": int(b)} for p, b in zip(pixels, label, strict=True)]
    )


def looks(config: Any) -> None:
    """Train one layer of torch on images, and save the model's predictions for the check rows."""
    import numpy as np
    import ray.train
    import torch

    from sweeps.trial import CHECK_PREDICTIONS, current

    model = torch.nn.Linear(20, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
    shard = ray.train.get_dataset_shard("train")
    for _ in range(3):
        for batch in shard.iter_torch_batches(batch_size=16):
            assert batch["image"].shape[1:] == (4, 5) and batch["image"].dtype == torch.float32
            loss = torch.nn.functional.binary_cross_entropy_with_logits(
                model(batch["image"].flatten(1))[:, 0], batch["bright"].float()
            )
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        with tempfile.TemporaryDirectory() as folder:
            torch.save(model.state_dict(), Path(folder, "model.pt"))
            np.save(Path(folder, CHECK_PREDICTIONS), load_looks(folder).predict(current().check))
            ray.train.report(
                {"loss": float(loss)}, checkpoint=ray.train.Checkpoint.from_directory(folder)
            )


def load_looks(folder: Any) -> Any:
    """Load the model of `looks`. The model checks that each cell of its input is an array."""
    import numpy as np
    import torch

    model = torch.nn.Linear(20, 1)
    model.load_state_dict(torch.load(Path(folder, "model.pt")))

    class Looks:
        def predict(self, frame: Any) -> Any:
            assert all(type(cell) is np.ndarray and cell.shape == (4, 5) for cell in frame["image"])
            with torch.no_grad():
                pixels = torch.from_numpy(np.stack(frame["image"])).flatten(1)
                return torch.cat([torch.sigmoid(model(row[None]))[:, 0] for row in pixels]).numpy()

    return Looks()


def load_named(folder: Any) -> Any:
    """Return a model whose predictions have columns with their own names."""
    loss = json.loads(Path(folder, "state.json").read_text())["loss"]

    class Named:
        def predict(self, frame: Any) -> Any:
            return frame[["word"]].assign(loss=loss, long=frame["word"].str.len() > 3)

    return Named()


def logs_to_mlflow(config: Any) -> None:
    """Report five steps and log them to MLflow, as in a script.

    The loop leaves a run active, and writes a file on every rank. It fails if x is above 0.9.
    """
    import mlflow
    import ray.train

    from sweeps.trial import current

    assert mlflow.active_run() is None
    rank = ray.train.get_context().get_world_rank()
    Path(current().folder, "traces").mkdir(exist_ok=True)
    Path(current().folder, "traces", f"rank-{rank}.json").write_text(json.dumps(config["x"]))
    mlflow.start_run()
    mlflow.log_params({"batch": 32})
    for step in range(1, 6):
        mlflow.log_metric(f"rank-{rank}", config["x"], step=step)
        _report(step, config["x"] + 1 / step)
    if config["x"] > 0.9:
        raise ZeroDivisionError("the user's own mistake")


def asks_for_its_folder(config: Any) -> None:
    """Read the path of the trial's folder, write nothing, and report if MLflow was imported."""
    import sys

    import ray.train

    from sweeps.trial import current

    assert current().folder.is_dir()
    ray.train.report({"loss": config["x"], "imported": float("mlflow" in sys.modules)})
