"""Loops on the digits, for tests of elastic gangs: DDP.

One of three workers kills itself in step 6, once for each folder `config["latch"]`. A loop ends
`config["more"]` steps after a start with `config["until"]` workers from a checkpoint, so after the
gang has grown again.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

STEPS = 3000  # A loop ends long before.


def last_step(config: dict[str, Any], start: int, world: int) -> int:
    """Return the step after which a loop ends that continues from the step `start`."""
    return start + config["more"] if start and world == config["until"] else STEPS


def maybe_die(config: dict[str, Any], step: int, rank: int, world: int) -> None:
    """Kill this process if this is the step, and no process has been killed yet."""
    died = Path(config["latch"], "died")
    if step == 6 and world == 3 and rank == 1 and not died.exists():
        died.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def train_func(config: dict[str, Any]) -> None:
    """Train a linear model on the rank's part of the digits, with a checkpoint in every second
    step.
    """
    import ray.train
    import ray.train.torch
    import torch

    context = ray.train.get_context()
    rank, world = context.get_world_rank(), context.get_world_size()
    frame = ray.train.get_dataset_shard("train").materialize().to_pandas()
    x = torch.tensor(frame.drop(columns="target").to_numpy(), dtype=torch.float32)
    y = torch.tensor(frame["target"].to_numpy())
    model = ray.train.torch.prepare_model(torch.nn.Linear(x.shape[1], 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"], momentum=0.9)
    start = 0
    if checkpoint := ray.train.get_checkpoint():
        state = torch.load(Path(checkpoint.path, "state.pt"))
        getattr(model, "module", model).load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        start = state["step"]
    last = last_step(config, start, world)
    for step in range(start + 1, last + 1):
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        maybe_die(config, step, rank, world)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        time.sleep(config["seconds"])
        with tempfile.TemporaryDirectory() as folder:
            saves = rank == 0 and (step % 2 == 0 or step == last)
            if saves:
                module = getattr(model, "module", model)
                torch.save(
                    {
                        "model": module.state_dict(),
                        "optimizer": optimizer.state_dict(),
                        "step": step,
                    },
                    Path(folder, "state.pt"),
                )
            metrics = {"loss": float(loss.detach()), "world": world, "rows": len(frame)}
            ray.train.report(
                metrics, checkpoint=ray.train.Checkpoint.from_directory(folder) if saves else None
            )
