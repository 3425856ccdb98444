"""Training loops as Ray's documentation shows them; they know nothing of sweeps."""

from __future__ import annotations

import tempfile
from pathlib import Path


def torch_loop(config):
    """https://docs.ray.io/en/latest/train/getting-started-pytorch.html, on tabular data."""
    import torch
    from ray import train
    from ray.train import Checkpoint, get_checkpoint, get_context, get_dataset_shard, report
    from ray.train.torch import prepare_model

    shard = get_dataset_shard("train")
    model = prepare_model(torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
    start = 0
    checkpoint = get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder:
            state = torch.load(Path(folder, "model.pt"))
            getattr(model, "module", model).load_state_dict(state["model"])
            start = state["epoch"] + 1
    for epoch in range(start, config.get("epochs", 5)):
        for batch in shard.iter_torch_batches(batch_size=64, dtypes=torch.float32):
            x = torch.stack([batch["a"], batch["b"]], 1)
            loss = torch.nn.functional.mse_loss(model(x)[:, 0], batch["y"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        metrics = {"loss": float(loss), "epoch": epoch, "world": get_context().get_world_size()}
        with tempfile.TemporaryDirectory() as folder:
            saved = None
            if get_context().get_world_rank() == 0 and config.get("save"):
                torch.save({"model": getattr(model, "module", model).state_dict(), "epoch": epoch}, Path(folder, "model.pt"))
                saved = Checkpoint.from_directory(folder)
            try:
                report(metrics, checkpoint=saved)
            except Exception:
                print("a loop that swallows exceptions")
    assert train.get_context().get_world_rank() >= 0


def xgboost_loop(config):
    """https://docs.ray.io/en/latest/train/getting-started-xgboost.html"""
    import ray.train
    import xgboost
    from ray.train.xgboost import RayTrainReportCallback

    train_ds, eval_ds = ray.train.get_dataset_shard("train").materialize(), ray.train.get_dataset_shard("valid").materialize()
    train_df, eval_df = train_ds.to_pandas(), eval_ds.to_pandas()
    dtrain = xgboost.DMatrix(train_df.drop("y", axis=1), label=train_df["y"])
    deval = xgboost.DMatrix(eval_df.drop("y", axis=1), label=eval_df["y"])
    params = {"objective": "reg:squarederror", "eta": config["lr"], "max_depth": 3, "nthread": 1}
    xgboost.train(params, dtrain=dtrain, evals=[(deval, "valid")], num_boost_round=5, callbacks=[RayTrainReportCallback()])


def what_it_was_given(config):
    """Reports the resources of its process."""
    import os

    import ray
    from ray.train import get_context, report

    from sweeps.trial import current

    given = ray.get_runtime_context().get_assigned_resources()
    visible = [g for g in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if g]
    report(
        {
            "loss": 0.0,
            "threads": current().threads,
            "omp": int(os.environ.get("OMP_NUM_THREADS", 0)),
            "cpu": given.get("CPU", 0),
            "gpu": given.get("GPU", 0),
            "visible": len(visible),
            "world": get_context().get_world_size(),
        }
    )
