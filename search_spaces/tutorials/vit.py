"""A Vision Transformer in torch, for `vit.yaml` and `vit_ray_data.yaml`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import ray.train
import ray.train.torch
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from sweeps import trial

TRAINER = {"needs_label": True, "resume_files": ["optimizer.pt"]}
SIZE = 32  # height and width of an image
VALID_BATCH = 256
BUFFER = 4096  # images among which Ray Data's shuffle draws

Batch = tuple[
    torch.Tensor, torch.Tensor
]  # images, shape (batch, 32, 32, 3), and class codes, shape (batch,)


class VisionTransformer(nn.Module):
    """Classify images of 32 × 32 pixels.

    Args:
        patch_size: Height and width of a patch. Each patch is a token.
        depth: Number of transformer blocks.
        heads: Number of attention heads of each block.
        width: Length of a token. It must be a multiple of `heads`.
        classes: Number of classes.
    """

    def __init__(self, patch_size: int, depth: int, heads: int, width: int, classes: int):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch_size, stride=patch_size)
        self.position = nn.Parameter(0.02 * torch.randn((SIZE // patch_size) ** 2, width))
        block = {
            "dim_feedforward": 2 * width,
            "dropout": 0.0,
            "activation": "gelu",
            "batch_first": True,
            "norm_first": True,
        }
        self.blocks = nn.Sequential(
            *(nn.TransformerEncoderLayer(width, heads, **block) for _ in range(depth))
        )
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, classes))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the logits, shape (batch, classes), of uint8 images, shape (batch, 32, 32, 3)."""
        pixels = images.permute(0, 3, 1, 2).float() / 127.5 - 1
        tokens = self.patches(pixels).flatten(2).transpose(1, 2) + self.position
        return self.head(self.blocks(tokens).mean(dim=1))


def train_func(config: dict[str, Any]) -> None:
    """Train on this worker's images. Report the loss and the accuracy on valid after each epoch."""
    current, context, device = (
        trial.current(),
        ray.train.get_context(),
        ray.train.torch.get_device(),
    )
    rank, workers = context.get_world_rank(), context.get_world_size()
    torch.set_num_threads(current.threads)
    shape = {name: config[name] for name in ("patch_size", "depth", "heads", "width")} | {
        "classes": len(current.classes)
    }
    network = VisionTransformer(**shape)
    model = ray.train.torch.prepare_model(
        network
    )  # DistributedDataParallel, if there are several workers
    optimizer = torch.optim.AdamW(
        network.parameters(), lr=config["lr"], weight_decay=config["weight_decay"]
    )
    first = resume(network, optimizer)
    precision = torch.autocast(
        device.type, torch.bfloat16, enabled=config["precision"] == "bfloat16"
    )
    read = {"data_loader": data_loader, "ray_data": RayDataBatches}[
        config.get("reader", "data_loader")
    ]
    train, valid = read("train", config["batch_size"] // workers), read("valid", VALID_BATCH)

    for epoch in range(first, config["epochs"] + 1):
        network.train()
        for images, labels in train:
            with precision:
                loss = cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        network.eval()
        with torch.no_grad(), precision:
            metrics = evaluate(network, valid, rank, workers, device)
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = None
            if rank == 0:  # all ranks have the same weights
                torch.save(
                    {"shape": shape, "weights": network.state_dict()}, Path(folder, "model.pt")
                )
                torch.save(
                    {"optimizer": optimizer.state_dict(), "epoch": epoch},
                    Path(folder, "optimizer.pt"),
                )
                checkpoint = ray.train.Checkpoint.from_directory(folder)
            ray.train.report(metrics, checkpoint=checkpoint)


def resume(network: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Load the trial's last checkpoint, if there is one. Return the number of the next epoch."""
    if (checkpoint := ray.train.get_checkpoint()) is None:
        return 1
    with checkpoint.as_directory() as folder:
        network.load_state_dict(torch.load(Path(folder, "model.pt"), map_location="cpu")["weights"])
        state = torch.load(Path(folder, "optimizer.pt"), map_location="cpu")
    optimizer.load_state_dict(state["optimizer"])
    return state["epoch"] + 1


def evaluate(
    network: nn.Module, batches: Iterable[Batch], rank: int, workers: int, device: torch.device
) -> dict[str, float]:
    """Return the metrics on valid.

    Each rank has all batches of valid, and evaluates its share of them.
    """
    total = torch.zeros(3, device=device)
    for number, (images, labels) in enumerate(batches):
        if number % workers == rank:
            logits = network(images).float()
            correct = (logits.argmax(dim=1) == labels).sum()
            total += torch.stack(
                [
                    cross_entropy(logits, labels, reduction="sum"),
                    correct,
                    torch.tensor(len(labels), device=device),
                ]
            )
    if workers > 1:
        torch.distributed.all_reduce(total)
    loss, correct, rows = total.tolist()
    return {"valid-mlogloss": loss / rows, "valid-accuracy": correct / rows}


# ---- batches


def data_loader(name: str, batch_size: int) -> Iterable[Batch]:
    """Return a DataLoader on a shard's tensors, which later trials on this worker use again."""
    current = trial.current()

    def tensors() -> list[torch.Tensor]:
        shard = ray.train.get_dataset_shard(name)
        parts = [
            (batch["image"], batch[current.label].long())
            for batch in shard.iter_torch_batches(batch_size=4096, device="cpu")
        ]
        return [torch.cat(column) for column in zip(*parts, strict=True)]

    loader = DataLoader(
        TensorDataset(*current.cached(name, tensors)), batch_size, shuffle=name == "train"
    )
    # A shard of train is this rank's part of the rows, so the loader needs no DistributedSampler.
    return ray.train.torch.prepare_data_loader(loader, add_dist_sampler=False)


class RayDataBatches:
    """Batches that Ray Data reads from a shard.

    Each pass over the batches of train has another order.
    """

    def __init__(self, name: str, batch_size: int):
        self.shard, self.label = ray.train.get_dataset_shard(name), trial.current().label
        self.options = {"batch_size": batch_size} | (
            {"local_shuffle_buffer_size": BUFFER} if name == "train" else {}
        )

    def __iter__(self) -> Iterator[Batch]:
        for batch in self.shard.iter_torch_batches(**self.options):
            yield batch["image"], batch[self.label].long()


# ---- the bundle


class Classifier:
    """The trained network, for the bundle."""

    def __init__(self, network: nn.Module):
        self.network = network.eval()

    def predict(self, frame: pd.DataFrame) -> np.ndarray:
        """Return the probability of each class, shape (n, classes), for the column `image`."""
        with torch.no_grad():
            return (
                self.network(torch.as_tensor(np.stack(frame["image"])))
                .softmax(dim=1)
                .double()
                .numpy()
            )


def load(folder: str) -> Classifier:
    """Load the network of a checkpoint."""
    saved = torch.load(Path(folder, "model.pt"), map_location="cpu")
    network = VisionTransformer(**saved["shape"])
    network.load_state_dict(saved["weights"])
    return Classifier(network)
