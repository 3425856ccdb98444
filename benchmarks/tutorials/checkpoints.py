"""The tutorial of checkpoints: a checkpoint in every tenth epoch, of which three are kept,
accumulated gradients, and resources per worker.

The port is the code of Ray's guide to checkpoints, on images of digits instead of random numbers,
with PyTorch's `no_sync` for accumulated gradients.
"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.tutorials.tutorial import Port, Tutorial, params_of, train_run

METRIC = "valid-mlogloss"
EPOCHS, EVERY, KEEP = 50, 10, 3
CPUS = {1: 2, 2: 1}  # of a worker, by the number of workers


def train_loop(config: dict[str, Any]) -> None:
    """Train on this worker, as the guide does."""
    import ray
    import ray.train
    import ray.train.torch
    import torch
    from torch import nn

    context = ray.train.get_context()
    rank, workers, accumulate = (
        context.get_world_rank(),
        context.get_world_size(),
        config["accumulate"],
    )
    (x, y), (x_valid, y_valid) = (
        [torch.tensor(array) for array in arrays] for arrays in ray.get(config["data"])
    )
    x, y = x[rank::workers], y[rank::workers]
    model = ray.train.torch.prepare_model(
        nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    )
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"], momentum=0.9)
    for epoch in range(1, EPOCHS + 1):
        batches = torch.randperm(len(x)).split(config["batch_size"] // (workers * accumulate))
        for number, batch in enumerate(batches, start=1):
            last = number % accumulate == 0 or number == len(batches)
            with contextlib.nullcontext() if last or workers == 1 else model.no_sync():
                (criterion(model(x[batch]), y[batch]) / accumulate).backward()
            if last:
                optimizer.step()
                optimizer.zero_grad()
        with torch.no_grad():
            loss = criterion(model(x_valid), y_valid)
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = None
            if rank == 0 and epoch % EVERY == 0:
                torch.save(getattr(model, "module", model).state_dict(), Path(folder, "model.pt"))
                torch.save(optimizer.state_dict(), Path(folder, "optimizer.pt"))
                torch.save({"epoch": epoch}, Path(folder, "extra_state.pt"))
                checkpoint = ray.train.Checkpoint.from_directory(folder)
            ray.train.report({METRIC: loss.item()}, checkpoint=checkpoint)


def driver(config: dict[str, Any], data: Any) -> None:
    """Train one configuration."""
    import numpy as np
    import ray
    import ray.data
    import ray.train
    from ray.data.preprocessors import MinMaxScaler
    from ray.train.torch import TorchTrainer

    columns = [name for name in data[0].columns if name != "target"]
    scaler = MinMaxScaler(columns=columns).fit(ray.data.from_pandas(data[0]))
    frames = [scaler.transform_batch(frame) for frame in data]
    arrays = [
        (frame[columns].to_numpy(np.float32), frame["target"].to_numpy(np.int64))
        for frame in frames
    ]
    workers = WORKERS[config["point"]["scaling"]]
    with train_run() as run_config:
        run_config.checkpoint_config = ray.train.CheckpointConfig(num_to_keep=KEEP)
        TorchTrainer(
            train_loop,
            train_loop_config={
                "batch_size": 128,
                **params_of(config["point"]),
                "data": ray.put(arrays),
            },
            scaling_config=ray.train.ScalingConfig(
                num_workers=workers, resources_per_worker={"CPU": CPUS[workers]}
            ),
            run_config=run_config,
        ).fit()


# The names that sweeps gives to the two options of `scaling`, and their numbers of workers.
WORKERS = {
    f"{{num_workers: {n}, resources_per_worker: {{CPU: {cpus}}}}}": n for n, cpus in CPUS.items()
}
TUTORIALS = (
    Tutorial(
        "checkpoints",
        "6. checkpoints",
        METRIC,
        True,
        [
            {"params.lr": 0.03, "params.accumulate": accumulate, "scaling": name}
            for accumulate in (1, 4)
            for name in WORKERS
        ],
        [Port("TorchTrainer in Tune", driver)],
    ),
)
