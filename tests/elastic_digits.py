"""A DDP loop on the digits, for tests of elastic gangs. One of three workers kills itself, once, in the folder `config["latch"]`.

The loop ends `config["epochs"]` epochs after a start with `config["until"]` workers from a checkpoint, so after the gang has grown again.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from pathlib import Path

EPOCHS = 3000  # The loop ends long before.


def train_func(config: dict) -> None:
    """Train a linear model on the rank's part of the digits, with a checkpoint in every second epoch."""
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
        start = state["epoch"]
    last = start + config["epochs"] if start and world == config["until"] else EPOCHS
    died = Path(config["latch"], "died")
    for epoch in range(start + 1, last + 1):
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        if epoch == 6 and world == 3 and rank == 1 and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        loss.backward()
        optimizer.step()
        time.sleep(config["seconds"])
        with tempfile.TemporaryDirectory() as folder:
            saves = rank == 0 and (epoch % 2 == 0 or epoch == last)
            if saves:
                module = getattr(model, "module", model)
                torch.save({"model": module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, Path(folder, "state.pt"))
            metrics = {"loss": float(loss.detach()), "world": world, "rows": len(frame)}
            ray.train.report(metrics, checkpoint=ray.train.Checkpoint.from_directory(folder) if saves else None)
