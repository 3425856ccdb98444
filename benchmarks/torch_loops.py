"""A bare loop of PyTorch, which runs beside the trainer `torch` in one trial."""

from __future__ import annotations

import copy
import dataclasses
import itertools
from typing import Any

import numpy as np
import ray.train
import ray.train.torch
import torch
from torch import nn

from benchmarks.loops import in_turn
from sweeps import trial
from sweeps.trainers._metrics import measure
from sweeps.trainers._torch_loop import set_seeds

Tensors = tuple[torch.Tensor, torch.Tensor]
ROWS_AT_ONCE = 65_536


class Network(nn.Sequential):
    """A network with three hidden layers for two classes."""

    def __init__(self, in_features: int, width: int = 128):
        sizes = [in_features, width, width, width]
        hidden = [
            layer for a, b in itertools.pairwise(sizes) for layer in (nn.Linear(a, b), nn.ReLU())
        ]
        super().__init__(*hidden, nn.Linear(width, 1))


def bare(
    seed: int, epochs: int, batch_size: int, train: Tensors, valid: Tensors
) -> dict[str, float]:
    """Train with DistributedDataParallel, measure the logloss on valid after each epoch, and then
    all metrics of the best epoch's model.

    Args:
        seed: The trial's seed. Both sides train the same model.
        epochs: Number of epochs.
        batch_size: Number of rows in a batch of a worker.
        train: Features and labels of train on this rank.
        valid: Features and labels of valid.
    """
    context = ray.train.get_context()
    rank, world = context.get_world_rank(), context.get_world_size()
    set_seeds(seed)
    network = Network(train[0].shape[1])
    model = ray.train.torch.prepare_model(
        network
    )  # moves the network to the worker's GPU, if there is one
    optimizer, loss_of = torch.optim.AdamW(model.parameters(), lr=1e-3), nn.BCEWithLogitsLoss()
    targets, best, kept = train[1].float(), np.inf, {}
    for epoch in range(1, epochs + 1):
        set_seeds(seed, epoch, rank)
        model.train()
        for rows in torch.randperm(len(targets)).to(targets.device).split(batch_size):
            optimizer.zero_grad()
            loss_of(model(train[0][rows])[:, 0], targets[rows]).backward()
            optimizer.step()
        loss = measure(
            "binary",
            "valid",
            valid[1].cpu().numpy(),
            _shared(network, valid[0], rank, world),
            ["valid-logloss"],
        )["valid-logloss"]
        if loss < best:
            best, kept = loss, copy.deepcopy(network.state_dict())
    network.load_state_dict(kept)
    measured = measure(
        "binary", "valid", valid[1].cpu().numpy(), _shared(network, valid[0], rank, world)
    )
    labels, predictions = _gather(train[1], world), _gather(_predict(network, train[0]), world)
    return measured | measure("binary", "train", labels.cpu().numpy(), predictions.cpu().numpy())


def _predict(network: nn.Module, features: torch.Tensor) -> torch.Tensor:
    network.eval()
    with torch.inference_mode():
        return torch.sigmoid(
            torch.cat([network(part)[:, 0] for part in features.split(ROWS_AT_ONCE)]).double()
        )


def _shared(network: nn.Module, features: torch.Tensor, rank: int, world: int) -> np.ndarray:
    """Return the predictions for rows that all ranks have. Each rank predicts a part of them."""
    size = -(-len(features) // world)
    return (
        _gather(_predict(network, features[rank * size : (rank + 1) * size]), world).cpu().numpy()
    )


def _gather(values: torch.Tensor, world: int) -> torch.Tensor:
    if world == 1:
        return values
    parts: list[Any] = [None] * world
    torch.distributed.all_gather_object(parts, values)
    return torch.cat(parts)


def paired_torch(config: dict[str, Any]) -> None:
    """Run the trainer `torch` and the bare loop in one trial; see `in_turn`."""
    from sweeps.trainers import torch as trainer

    options = {"model": f"{__name__}:Network", "loss": None, "dataset": None}
    current = dataclasses.replace(trial.current(), options=options)
    trial.set_current(current)
    config = dict(config)
    times, _ = config.pop("times"), config.pop("seed")

    def tensors(name: str) -> Tensors:
        frame = ray.train.get_dataset_shard(name).materialize().to_pandas()
        arrays = (
            frame.drop(columns=current.label).to_numpy(np.float32),
            frame[current.label].to_numpy(np.int64),
        )
        return tuple(torch.tensor(array, device=ray.train.torch.get_device()) for array in arrays)

    def run_bare() -> dict[str, float]:
        torch.set_num_threads(current.threads)
        train, valid = (
            current.cached(f"bare.{name}", lambda name=name: tensors(name))
            for name in ("train", "valid")
        )
        return bare(current.seed, config["epochs"], config["batch_size"], train, valid)

    in_turn(times, lambda: trainer.train_func(config), run_bare)
