"""The tutorial of the Vision Transformer with a DataLoader, on 1 worker and on 2 workers with the
same global batch.

On both sides, the network is the one of `search_spaces/tutorials/vit.py`, because the original's
network is in torchvision. The rest of the port is the original's code, with two changes. The
original reads `model.module`, which fails on one worker, where `prepare_model` wraps nothing. And
each worker scores all rows of valid, because the original reports the metrics of the half that rank
0 scores.

The images are those of `tests/fixtures/images`. If the environment variable `SWEEPS_CIFAR10` names
a Parquet file with the columns `path`, `image_jpeg` and `label`, the images are those of this file,
and each trial trains for two epochs.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.tutorials.tutorial import Port, Tutorial, params_of, train_run

METRIC = "valid-mlogloss"
FILE = os.environ.get("SWEEPS_CIFAR10")
SOURCE = {"sweeps.loaders:images": {"path": FILE, "bytes_column": "image_jpeg", "size": [32, 32]}}
FIXED = {
    "patch_size": 4,
    "depth": 2,
    "heads": 4,
    "width": 64,
    "batch_size": 128 if FILE else 32,
    "epochs": 2 if FILE else 9,
}


def train_loop(config: dict[str, Any]) -> None:
    """Train on this worker, as the tutorial does."""
    import ray
    import ray.train
    import ray.train.torch
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    from search_spaces.tutorials.vit import VisionTransformer

    workers = ray.train.get_context().get_world_size()
    train, valid = (
        TensorDataset(*map(torch.as_tensor, arrays)) for arrays in ray.get(config["data"])
    )
    batch_size = config["batch_size"] // workers
    train_loader = ray.train.torch.prepare_data_loader(
        DataLoader(train, batch_size=batch_size, shuffle=True)
    )
    valid_loader = ray.train.torch.prepare_data_loader(
        DataLoader(valid, batch_size=batch_size), add_dist_sampler=False
    )

    shape = {name: config[name] for name in ("patch_size", "depth", "heads", "width", "classes")}
    model = ray.train.torch.prepare_model(VisionTransformer(**shape))
    loss_fn = nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=config["lr"], weight_decay=config["weight_decay"]
    )
    for epoch in range(config["epochs"]):
        if workers > 1:
            train_loader.sampler.set_epoch(epoch)
        model.train()
        for images, labels in train_loader:
            loss = loss_fn(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        total, correct = 0.0, 0
        with torch.no_grad():
            for images, labels in valid_loader:
                logits = model(images)
                total += loss_fn(logits, labels).item() * len(labels)
                correct += (logits.argmax(1) == labels).sum().item()
        with tempfile.TemporaryDirectory() as folder:
            torch.save(getattr(model, "module", model).state_dict(), Path(folder, "model.pt"))
            checkpoint = ray.train.Checkpoint.from_directory(folder)
            ray.train.report(
                {METRIC: total / len(valid), "valid-accuracy": correct / len(valid)},
                checkpoint=checkpoint,
            )


def driver(config: dict[str, Any], data: Any) -> None:
    """Train one configuration."""
    import numpy as np
    import ray
    import ray.train
    from ray.train.torch import TorchTrainer

    arrays = [
        (
            np.stack([np.asarray(image) for image in frame["image"]]),
            frame["label"].to_numpy(np.int64),
        )
        for frame in data
    ]
    params = {
        **FIXED,
        "classes": int(arrays[0][1].max()) + 1,
        **params_of(config["point"]),
        "data": ray.put(arrays),
    }
    with train_run() as run_config:
        TorchTrainer(
            train_loop,
            train_loop_config=params,
            scaling_config=ray.train.ScalingConfig(
                num_workers=config["point"]["scaling.num_workers"], resources_per_worker={"CPU": 1}
            ),
            run_config=run_config,
        ).fit()


TUTORIALS = (
    Tutorial(
        "vit",
        "5. Vision Transformer" + (", CIFAR-10" if FILE else ", 200 images"),
        METRIC,
        True,
        [
            {"params.lr": lr, "params.weight_decay": 1e-2, "scaling.num_workers": workers}
            for lr in (1e-3, 3e-3)
            for workers in (1, 2)
        ],
        [Port("TorchTrainer in Tune", driver)],
        (
            "scheduler={name: none}",
            *(f"space.params.{name}={value}" for name, value in FIXED.items()),
            *([f"data.train={json.dumps(SOURCE)}", "data.drop=[path]"] if FILE else []),
        ),
    ),
)
