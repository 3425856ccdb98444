"""A training loop for `streaming.yaml`: a network that reads its batches from a stream.

No process holds all rows.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import ray.train
import ray.train.torch
import torch
from torch import nn

from sweeps import trial


def network(inputs: int, width: int, outputs: int) -> nn.Module:
    """Return a network with one hidden layer."""
    return nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, outputs))


def features_of(batch: dict[str, torch.Tensor], label: str) -> torch.Tensor:
    """Return the features of a batch, float32 of shape (rows, features)."""
    return torch.stack([values for name, values in batch.items() if name != label], dim=1).to(
        torch.float32
    )


def train_func(config: dict[str, Any]) -> None:
    """Train a network. Report valid's log loss after each epoch."""
    cur, rank = trial.current(), ray.train.get_context().get_world_rank()
    label, outputs = str(cur.label), len(cur.classes or ())
    train, valid = (ray.train.get_dataset_shard(name) for name in ("train", "valid"))
    shape = (
        cur.check.shape[1],
        config["width"],
        outputs,
    )  # `check` has the first rows of valid, without the label
    model = ray.train.torch.prepare_model(network(*shape))
    optimizer = torch.optim.AdamW(model.parameters(), lr=config["lr"])
    loss = nn.CrossEntropyLoss()
    done = 0
    if checkpoint := ray.train.get_checkpoint():
        with checkpoint.as_directory() as folder:
            saved = torch.load(Path(folder, "latest.pt"), map_location="cpu", weights_only=True)
        (model.module if hasattr(model, "module") else model).load_state_dict(saved["weights"])
        optimizer.load_state_dict(saved["optimizer"])
        done = saved["done"]
    for epoch in range(done + 1, config["epochs"] + 1):
        model.train()
        given = {
            "local_shuffle_buffer_size": config["shuffle"],
            "local_shuffle_seed": cur.seed + epoch,
        }
        for batch in train.iter_torch_batches(
            batch_size=config["batch_size"], drop_last=True, **given
        ):
            optimizer.zero_grad()
            loss(model(features_of(batch, label)), batch[label]).backward()
            optimizer.step()
        model.eval()
        total, rows = 0.0, 0
        with torch.no_grad():
            for batch in valid.iter_torch_batches(
                batch_size=256
            ):  # each rank reads all rows of valid
                total += float(loss(model(features_of(batch, label)), batch[label])) * len(
                    batch[label]
                )
                rows += len(batch[label])
        metrics = {"valid-mlogloss": total / rows}
        if rank != 0:
            ray.train.report(metrics)
            continue
        with tempfile.TemporaryDirectory() as folder:
            weights = (model.module if hasattr(model, "module") else model).state_dict()
            state = {
                "weights": weights,
                "optimizer": optimizer.state_dict(),
                "done": epoch,
                "shape": shape,
            }
            torch.save(state, Path(folder, "latest.pt"))
            ray.train.report(metrics, checkpoint=ray.train.Checkpoint.from_directory(folder))


class Model:
    """A trained network."""

    def __init__(self, saved: dict[str, Any]):
        self.network = network(*saved["shape"])
        self.network.load_state_dict(saved["weights"])

    def predict(self, frame: pd.DataFrame) -> np.ndarray:
        """Return the probabilities of all classes, shape (rows, classes)."""
        with torch.no_grad():
            outputs = self.network(torch.as_tensor(frame.to_numpy(np.float32)))
        return torch.softmax(outputs, dim=1).numpy().astype(np.float64)


def load(folder: str) -> Model:
    """Load the model of a checkpoint."""
    return Model(torch.load(Path(folder, "latest.pt"), map_location="cpu", weights_only=True))
