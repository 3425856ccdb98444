"""Training loops of the tests on GPUs."""

from __future__ import annotations

import os
from typing import Any

HUGE = 1 << 50  # bytes; no GPU has a pebibyte


def fills(config: dict[str, Any]) -> None:
    """Report the process, after an allocation of `config["bytes"]` bytes on the GPU."""
    import ray.train
    import torch

    held = torch.empty(int(config["bytes"]), dtype=torch.uint8, device="cuda")
    ray.train.report({"loss": float(held.numel()), "pid": os.getpid()})


def sums(config: dict[str, Any]) -> None:
    """Report the sum of all ranks, made by a collective operation on the GPU, and torch's name of the process group."""
    import ray.train
    import ray.train.torch
    import torch
    import torch.distributed as dist

    context = ray.train.get_context()
    device = ray.train.torch.get_device()
    assert device.type == "cuda"
    value = torch.full((1024,), 1.0 + context.get_world_rank(), device=device)
    dist.all_reduce(value)
    nccl = "nccl" in str(dist.get_backend(dist.distributed_c10d._get_default_group()))
    ray.train.report({"loss": float(value.mean()), "nccl": float(nccl), "gpus": torch.cuda.device_count()})


def remembers(config: dict[str, Any]) -> None:
    """Train a small network, and report the memory of the GPU that is in use before the trial, in bytes."""
    import ray.train
    import torch

    free, total = torch.cuda.mem_get_info()
    network = torch.nn.Sequential(torch.nn.Linear(512, config["width"]), torch.nn.ReLU(), torch.nn.Linear(config["width"], 1)).cuda()
    optimizer = torch.optim.Adam(network.parameters())
    for _ in range(5):
        optimizer.zero_grad()
        loss = network(torch.randn(4096, 512, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
    ray.train.report({"loss": loss.item(), "used": float(total - free), "pid": os.getpid()})
