"""Linear regression in torch, for `linear.yaml`; the loop reads batches of a Ray Data shard."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import ray.train
import ray.train.torch
import torch
from torch import nn
from torch.nn.functional import mse_loss

from sweeps import trial

BUFFER = 1024  # rows among which the shuffle draws, here all rows of a worker
PROFILED = 5  # batches in a trace


def line(rows: int, slope: float = 5.0, intercept: float = 10.0) -> pd.DataFrame:
    """Return points on a line: the column `x` from 0 to 1, and `y`."""
    x = np.arange(rows) / rows
    return pd.DataFrame({"x": x, "y": slope * x + intercept})


def train_func(config: dict[str, Any]) -> None:
    """Train on this worker's rows.

    Report the mean squared error on the rows of valid after each epoch.
    """
    current = trial.current()
    train, valid = (ray.train.get_dataset_shard(name) for name in ("train", "valid"))
    layer = nn.Linear(1, 1)
    model = ray.train.torch.prepare_model(
        layer
    )  # DistributedDataParallel, if there are several workers
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
    with profiler(config["profile"], current) as step:
        for epoch in range(config["epochs"]):
            shuffle = {
                "local_shuffle_buffer_size": BUFFER,
                "local_shuffle_seed": current.seed + epoch,
            }  # another order in each epoch
            for batch in train.iter_torch_batches(
                batch_size=config["batch_size"], dtypes=torch.float32, **shuffle
            ):
                loss = mse_loss(model(batch["x"][:, None]), batch["y"][:, None])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                step()
            with torch.no_grad():
                (batch,) = valid.iter_torch_batches(batch_size=None, dtypes=torch.float32)
                error = mse_loss(layer(batch["x"][:, None]), batch["y"][:, None])
            report({"valid-mse": error.item()}, layer)


def report(metrics: dict[str, float], layer: nn.Module) -> None:
    """Report metrics, and the layer's weights as a checkpoint.

    All ranks have the same weights, so rank 0 writes them.
    """
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = None
        if ray.train.get_context().get_world_rank() == 0:
            torch.save(layer.state_dict(), Path(folder, "layer.pt"))
            checkpoint = ray.train.Checkpoint.from_directory(folder)
        ray.train.report(metrics, checkpoint=checkpoint)


@contextlib.contextmanager
def profiler(on: bool, current: trial.Current) -> Iterator[Any]:
    """Profile some batches.

    MLflow shows the trace, because the profiler writes it to the trial's folder for other files.

    Args:
        on: False to profile nothing.
        current: The trial.

    Yields:
        A function to call after each batch.
    """
    if not on:
        yield lambda: None
        return
    rank = ray.train.get_context().get_world_rank()
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        schedule=torch.profiler.schedule(skip_first=1, wait=1, warmup=1, active=PROFILED, repeat=1),
        on_trace_ready=torch.profiler.tensorboard_trace_handler(
            str(current.folder), worker_name=f"rank-{rank}"
        ),
    ) as profile:
        yield profile.step


class Line:
    """The trained line, for the bundle."""

    def __init__(self, layer: nn.Linear):
        self.layer = layer

    def predict(self, frame: pd.DataFrame) -> np.ndarray:
        """Predict `y` for the column `x`, shape (n,)."""
        with torch.no_grad():
            return (
                self.layer(torch.as_tensor(frame[["x"]].to_numpy(np.float32)))
                .double()
                .numpy()[:, 0]
            )


def load(folder: str) -> Line:
    """Load the line of a checkpoint."""
    layer = nn.Linear(1, 1)
    layer.load_state_dict(torch.load(Path(folder, "layer.pt"), map_location="cpu"))
    return Line(layer)
