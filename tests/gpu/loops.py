"""Training loops of the tests on GPUs.

Each trial appends a line of JSON to the file `config["file"]`.
"""

from __future__ import annotations

import json
import os
from typing import Any

HUGE = 1 << 50  # bytes; no GPU has a pebibyte


def note(config: dict[str, Any], **facts: Any) -> None:
    """Write facts about a trial."""
    with open(config["file"], "a") as file:
        file.write(json.dumps({"pid": os.getpid(), **facts}) + "\n")


def fills(config: dict[str, Any]) -> None:
    """Allocate `config["bytes"]` bytes on the GPU, and write down the process."""
    import ray.train
    import torch

    held = torch.empty(int(config["bytes"]), dtype=torch.uint8, device="cuda")
    note(config)
    ray.train.report({"loss": float(held.numel())})


def sums(config: dict[str, Any]) -> None:
    """Report the sum of all ranks, made by a collective operation on the GPU, and write down
    whether NCCL made it.
    """
    import ray.train
    import ray.train.torch
    import torch
    import torch.distributed as dist

    context = ray.train.get_context()
    device = ray.train.torch.get_device()
    assert device.type == "cuda"
    value = torch.full((1024,), 1.0 + context.get_world_rank(), device=device)
    dist.all_reduce(value)
    note(
        config,
        nccl="nccl"
        in str(dist.distributed_c10d._get_default_group()._get_backend(device).name()).lower(),
    )
    ray.train.report({"loss": float(value.mean())})


def remembers(config: dict[str, Any]) -> None:
    """Train a small network, and write down the memory of the GPU that is in use before the trial,
    in bytes.
    """
    import ray.train
    import torch

    free, total = torch.cuda.mem_get_info()
    network = torch.nn.Sequential(
        torch.nn.Linear(512, config["width"]), torch.nn.ReLU(), torch.nn.Linear(config["width"], 1)
    ).cuda()
    optimizer = torch.optim.Adam(network.parameters())
    for _ in range(5):
        optimizer.zero_grad()
        loss = network(torch.randn(4096, 512, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
    note(config, used=total - free)
    ray.train.report({"loss": loss.item()})
