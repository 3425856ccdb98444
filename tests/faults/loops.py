"""Loops that misbehave."""

from __future__ import annotations

import os
import signal
import sys


def kills_itself(config):
    os.kill(os.getpid(), signal.SIGKILL)


def raises_on_one_rank(config):
    import ray.train
    import torch

    if ray.train.get_context().get_world_rank() == 1:
        raise ValueError("only rank 1")
    torch.distributed.all_reduce(torch.ones(1))  # waits for rank 1 for ever


def raises_everywhere(config):
    raise ValueError("every rank")


def exits(config):
    sys.exit(3)


def destroys_the_group(config):
    import ray.train
    import torch

    total = torch.ones(1)
    torch.distributed.all_reduce(total)
    ray.train.report({"loss": float(total)})
    if config["destroy"]:
        torch.distributed.destroy_process_group()
