"""Training loops of the benchmark of PyTorch's DDP on scikit-learn's digits."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.loops import Arrays, toy

EPOCHS = 5


BATCH = 64


def ddp_trial(
    config: dict[str, Any],
    data: Arrays,
    rank: int,
    world: int,
    prepare: Callable[[Any], Any],
    report: Callable[[Any], Any],
) -> None:
    """Train with the DDP loop of Ray's documentation: two hidden layers of 64 units, five epochs,
    one report for each epoch.
    """
    import torch
    from torch import nn

    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows = len(data[0]) // world  # the same number on every rank
    x, y = (
        torch.as_tensor(data[0][rank::world][:rows] / 16, dtype=torch.float32),
        torch.as_tensor(data[2][rank::world][:rows]),
    )
    x_valid, y_valid = torch.as_tensor(data[1] / 16, dtype=torch.float32), torch.as_tensor(data[3])
    network = nn.Sequential(
        nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)
    )
    model = prepare(network)
    optimizer = torch.optim.Adam(
        model.parameters(), lr=config["lr"], weight_decay=config["weight_decay"]
    )
    loss_of = nn.CrossEntropyLoss()
    for _ in range(EPOCHS):
        order = torch.randperm(len(x))
        for inputs, wanted in zip(x[order].split(BATCH), y[order].split(BATCH), strict=True):
            optimizer.zero_grad()
            loss_of(model(inputs), wanted).backward()
            optimizer.step()
        with torch.inference_mode():
            report({"valid-mlogloss": float(loss_of(network(x_valid), y_valid))})


def _ddp_in_ray(config: dict[str, Any], data: Arrays) -> None:
    import ray.train
    import ray.train.torch

    context = ray.train.get_context()
    ddp_trial(
        config,
        data,
        context.get_world_rank(),
        context.get_world_size(),
        ray.train.torch.prepare_model,
        ray.train.report,
    )


def ddp_train_loop(config: dict[str, Any]) -> None:
    """Run `ddp_trial` in Ray Train. `config` contains the data."""
    _ddp_in_ray(config, config["data"])


def ddp_our_loop(config: dict[str, Any]) -> None:
    """Run `ddp_trial` in sweeps.

    Each worker caches all rows and trains on the rows of its rank, as in Ray Train.
    """
    from sweeps import trial

    _ddp_in_ray(config, trial.current().cached("digits", lambda: toy("digits")))


def ddp_bare(rank: int, world: int, folder: str, configs: list[dict[str, float]]) -> None:
    """Run `ddp_trial` without Ray, for all configurations in one process group.

    Rank 0 writes the time at which each trial ended.
    """
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=world
    )
    data, ends, nothing = toy("digits"), [], lambda metrics: None
    for config in configs:
        ddp_trial(config, data, rank, world, DistributedDataParallel, nothing)
        ends.append(time.time())
    if rank == 0:
        Path(folder, "ends.json").write_text(json.dumps(ends))
    dist.destroy_process_group()
