"""The tutorial of linear regression: `get_dataset_shard`, `iter_torch_batches`, and a shuffle in
every epoch.

The original passes a `DatasetPipeline` with `random_shuffle_each_window` to `ray.train.Trainer`,
and reads it with `to_torch`. Today's Ray has none of the four. The port uses what Ray documents
instead: `TorchTrainer`, `iter_torch_batches`, and `local_shuffle_buffer_size`. A `random_shuffle`
of the Dataset would run in tasks of Ray, and the two workers of a trial hold both CPUs. Tune writes
JSON and TensorBoard's files by default.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from benchmarks.tutorials.tutorial import Port, Tutorial, fit_on_two_workers, params_of

METRIC = "valid-mse"


def train_loop(config: dict[str, Any]) -> None:
    """Train on this worker, as the tutorial does."""
    import ray.train
    import ray.train.torch
    import torch
    from torch import nn

    train, valid = ray.train.get_dataset_shard("train"), ray.train.get_dataset_shard("valid")
    model = ray.train.torch.prepare_model(nn.Linear(1, 1))
    loss_fn = nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])

    def batches(shard: Any, **options: Any) -> Any:
        for batch in shard.iter_torch_batches(
            batch_size=config["batch_size"], dtypes=torch.float32, **options
        ):
            yield batch["x"].unsqueeze(1), batch["y"].unsqueeze(1)

    for _ in range(config["epochs"]):
        model.train()
        for features, labels in batches(train, local_shuffle_buffer_size=1024):
            loss = loss_fn(model(features), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        total, rows = 0.0, 0
        with torch.no_grad():
            for features, labels in batches(valid):
                total += loss_fn(model(features), labels).item() * len(labels)
                rows += len(labels)
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = None
            if ray.train.get_context().get_world_rank() == 0:
                torch.save(model.module.state_dict(), Path(folder, "model.pt"))
                checkpoint = ray.train.Checkpoint.from_directory(folder)
            ray.train.report({METRIC: total / rows}, checkpoint=checkpoint)


def driver(config: dict[str, Any], data: Any) -> None:
    """Train one configuration."""
    fit_on_two_workers(train_loop, {"epochs": 3, **params_of(config["point"])}, *data)


TUTORIALS = (
    Tutorial(
        "linear",
        "4. linear regression",
        METRIC,
        True,
        [{"params.lr": lr, "params.batch_size": 4} for lr in (1e-2, 3e-2, 5e-2, 1e-1)],
        [Port("TorchTrainer in Tune", driver)],
    ),
)
