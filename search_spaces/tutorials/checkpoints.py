"""A small network in torch, for `checkpoints.yaml`.

The loop accumulates gradients, and saves a checkpoint in every tenth epoch.
"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import ray.train
import ray.train.torch
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from sweeps import trial

TRAINER = {"needs_label": True, "reads_numbers": True, "resume_files": ["optimizer.pt"]}


def network() -> nn.Module:
    """Return a network for images of 8 × 8 pixels, with one hidden layer."""
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def train_func(config: dict[str, Any]) -> None:
    """Train on this worker's rows and report each epoch; add a checkpoint to every tenth report."""
    current, workers = trial.current(), ray.train.get_context().get_world_size()
    device = ray.train.torch.get_device()
    torch.set_num_threads(current.threads)  # the CPUs of this worker
    x, y = (tensor.to(device) for tensor in tensors("train"))
    x_valid, y_valid = (tensor.to(device) for tensor in tensors("valid"))
    net = network()
    model = ray.train.torch.prepare_model(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=config["lr"], momentum=0.9)
    first = resume(net, optimizer)
    rows = config["batch_size"] // (workers * config["accumulate"])  # of one batch of this worker

    for epoch in range(first, config["epochs"] + 1):
        batches = torch.randperm(len(x)).split(rows)
        for number, batch in enumerate(batches, start=1):
            last = number % config["accumulate"] == 0 or number == len(
                batches
            )  # of an optimizer step
            # Without `no_sync`, the workers would exchange the gradients of every batch.
            with contextlib.nullcontext() if last or workers == 1 else model.no_sync():
                (cross_entropy(model(x[batch]), y[batch]) / config["accumulate"]).backward()
            if last:
                optimizer.step()
                optimizer.zero_grad()
        with torch.no_grad():
            loss = cross_entropy(net(x_valid), y_valid).item()
        report(
            {"valid-mlogloss": loss},
            net,
            optimizer,
            epoch,
            save=epoch % config["checkpoint_every"] == 0,
        )


def tensors(name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the features and the class codes of a shard.

    Later trials on this worker use the same tensors.
    """
    current = trial.current()

    def read() -> tuple[torch.Tensor, torch.Tensor]:
        frame = ray.train.get_dataset_shard(name).materialize().to_pandas()
        features = frame.drop(columns=current.label)
        return torch.tensor(features.to_numpy(np.float32)), torch.tensor(
            frame[current.label].to_numpy(np.int64)
        )

    return current.cached(name, read)


def report(
    metrics: dict[str, float],
    net: nn.Module,
    optimizer: torch.optim.Optimizer,
    epoch: int,
    save: bool,
) -> None:
    """Report metrics, with a checkpoint if `save` is true.

    All ranks have the same weights, so rank 0 writes them.
    """
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = None
        if save and ray.train.get_context().get_world_rank() == 0:
            torch.save(net.state_dict(), Path(folder, "model.pt"))
            torch.save(
                {"optimizer": optimizer.state_dict(), "epoch": epoch}, Path(folder, "optimizer.pt")
            )
            checkpoint = ray.train.Checkpoint.from_directory(folder)
        ray.train.report(metrics, checkpoint=checkpoint)


def resume(net: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Load the trial's last checkpoint, if there is one. Return the number of the next epoch."""
    if (checkpoint := ray.train.get_checkpoint()) is None:
        return 1
    with checkpoint.as_directory() as folder:
        net.load_state_dict(torch.load(Path(folder, "model.pt"), map_location="cpu"))
        state = torch.load(Path(folder, "optimizer.pt"), map_location="cpu")
    optimizer.load_state_dict(state["optimizer"])
    return state["epoch"] + 1


class Digits:
    """The trained network, for the bundle."""

    def __init__(self, net: nn.Module):
        self.net = net.eval()

    def predict(self, frame: pd.DataFrame) -> np.ndarray:
        """Return the probability of each digit, shape (n, 10)."""
        with torch.no_grad():
            return (
                self.net(torch.as_tensor(frame.to_numpy(np.float32)))
                .softmax(dim=1)
                .double()
                .numpy()
            )


def load(folder: str) -> Digits:
    """Load the network of a checkpoint."""
    net = network()
    net.load_state_dict(torch.load(Path(folder, "model.pt"), map_location="cpu"))
    return Digits(net)
