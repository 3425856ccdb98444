"""The taxi tutorial with the network: Dask on Ray reads and cleans the trips, and two workers train
the network.

The original's loss is computed on rounded predictions. `torch.round` has no gradient, so the
original's network does not learn. One port keeps this line. The other port leaves the rounding out,
so that its metric can be compared.
"""

from __future__ import annotations

import functools
from typing import Any

from benchmarks.tutorials.tutorial import Port, Tutorial, fit_on_two_workers, params_of

LABEL = "is_big_tip"


def train_loop(config: dict[str, Any]) -> None:
    """Train on this worker, as the tutorial does."""
    import ray.train
    import ray.train.torch
    import torch
    from torch import nn

    batch_size, rounded = config["batch_size"], config["rounded"]
    train, valid = ray.train.get_dataset_shard("train"), ray.train.get_dataset_shard("valid")
    model = ray.train.torch.prepare_model(_network())
    loss_fn = nn.SmoothL1Loss()
    optimizer = torch.optim.Adam(model.parameters(), lr=config["lr"])
    for _ in range(config["epochs"]):
        model.train()
        for features, labels in _batches(train, batch_size, shuffle=True):
            predictions = model(features)
            loss = loss_fn(torch.round(predictions) if rounded else predictions, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            outputs = [
                (model(features), labels) for features, labels in _batches(valid, batch_size)
            ]
        _report(model, [torch.cat(part) for part in zip(*outputs, strict=True)])


def _network() -> Any:
    """Return the tutorial's network."""
    from torch import nn

    from search_spaces.tutorials.fare_predictor import FarePredictor

    return nn.Sequential(FarePredictor(6), nn.Sigmoid())


def _batches(shard: Any, batch_size: int, shuffle: bool = False) -> Any:
    """Yield the features, shape (batch, 6), and the labels, shape (batch, 1), of each batch."""
    import torch

    options = {"local_shuffle_buffer_size": 10 * batch_size} if shuffle else {}
    for batch in shard.iter_torch_batches(batch_size=batch_size, dtypes=torch.float32, **options):
        labels = batch.pop(LABEL)
        yield torch.stack(list(batch.values()), dim=1), labels.unsqueeze(1)


def _report(model: Any, outputs: list[Any]) -> None:
    """Report the loss and the AUC on valid, and save the network."""
    import tempfile
    from pathlib import Path

    import ray.train
    import torch
    from sklearn.metrics import roc_auc_score

    predictions, labels = outputs
    metrics = {"loss": torch.nn.functional.smooth_l1_loss(predictions, labels).item()}
    metrics["valid-auc"] = float(roc_auc_score(labels.numpy(), predictions.numpy()))
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = None
        if ray.train.get_context().get_world_rank() == 0:
            torch.save(getattr(model, "module", model).state_dict(), Path(folder, "model.pt"))
            checkpoint = ray.train.Checkpoint.from_directory(folder)
        ray.train.report(metrics, checkpoint=checkpoint)


def driver(config: dict[str, Any], data: Any, rounded: bool) -> None:
    """Train one configuration."""
    from search_spaces.tutorials import big_tip

    train, valid = (big_tip.features(frame).assign(**{LABEL: frame[LABEL]}) for frame in data)
    fit_on_two_workers(
        train_loop, {"epochs": 3, "rounded": rounded, **params_of(config["point"])}, train, valid
    )


TUTORIALS = (
    Tutorial(
        "taxi_network",
        "3. taxi, network",
        "valid-auc",
        False,
        [{"params.lr": lr, "params.batch_size": 64} for lr in (1e-2, 3e-3)],
        [
            Port("TorchTrainer in Tune, as printed", functools.partial(driver, rounded=True)),
            Port(
                "TorchTrainer in Tune, without rounding", functools.partial(driver, rounded=False)
            ),
        ],
        ('data.train={"big_tip:load": {reader: dask}}', "space.preprocessor=[big_tip:features]"),
    ),
)
