"""Training loops as in Ray's documentation. Most of them do not use sweeps."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def named(config: Any) -> Any:
    """Run the loop of this file that `config["loop"]` names. One gang can run many loops."""
    config = dict(config)
    return globals()[config.pop("loop")](config)


def torch_loop(config: Any) -> None:
    """Train on tabular data, as in
    https://docs.ray.io/en/latest/train/getting-started-pytorch.html.
    """
    import torch
    from ray import train
    from ray.train import Checkpoint, get_checkpoint, get_context, get_dataset_shard, report
    from ray.train.torch import prepare_model

    shard = get_dataset_shard("train")
    model = prepare_model(
        torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    )
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
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        metrics = {"loss": float(loss), "epoch": epoch, "world": get_context().get_world_size()}
        with tempfile.TemporaryDirectory() as folder:
            saved = None
            if get_context().get_world_rank() == 0 and config.get("save"):
                torch.save(
                    {"model": getattr(model, "module", model).state_dict(), "epoch": epoch},
                    Path(folder, "model.pt"),
                )
                saved = Checkpoint.from_directory(folder)
            try:
                report(metrics, checkpoint=saved)
            except Exception:
                print("a loop that swallows exceptions")
    assert train.get_context().get_world_rank() >= 0


def xgboost_loop(config: Any) -> None:
    """Train as in https://docs.ray.io/en/latest/train/getting-started-xgboost.html."""
    import ray.train
    import xgboost
    from ray.train.xgboost import RayTrainReportCallback

    train_ds, eval_ds = (
        ray.train.get_dataset_shard("train").materialize(),
        ray.train.get_dataset_shard("valid").materialize(),
    )
    train_df, eval_df = train_ds.to_pandas(), eval_ds.to_pandas()
    dtrain = xgboost.DMatrix(train_df.drop("y", axis=1), label=train_df["y"])
    deval = xgboost.DMatrix(eval_df.drop("y", axis=1), label=eval_df["y"])
    params = {"objective": "reg:squarederror", "eta": config["lr"], "max_depth": 3, "nthread": 1}
    xgboost.train(
        params,
        dtrain=dtrain,
        evals=[(deval, "valid")],
        num_boost_round=5,
        callbacks=[RayTrainReportCallback()],
    )


def reads(config: Any) -> None:
    """Read the shard in every possible way.

    Fail if Ray Data starts an executor or the actor for its statistics.
    """
    import ray.train
    from ray.data._internal import stats
    from ray.data._internal.execution.streaming_executor import StreamingExecutor

    def never(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("Ray Data starts an actor")

    for owner, name in ((stats, "get_or_create_stats_actor"), (StreamingExecutor, "__init__")):
        setattr(owner, name, never)
    shard = ray.train.get_dataset_shard("train")
    rows = len(shard.materialize().to_pandas())
    assert (
        shard.materialize().count()
        == rows
        == sum(len(batch["y"]) for batch in shard.iter_batches(batch_size=100))
    )
    assert shard is ray.train.get_dataset_shard("train")
    shuffled = shard.iter_batches(
        batch_size=100, local_shuffle_buffer_size=1000, local_shuffle_seed=0
    )
    order = [value for batch in shuffled for value in batch["y"].tolist()]
    plain = [value for batch in shard.iter_batches(batch_size=100) for value in batch["y"].tolist()]
    assert order != plain and sorted(order) == sorted(plain)
    by_torch = shard.iter_torch_batches(batch_size=100, local_shuffle_buffer_size=1000)
    assert sum(len(batch["y"]) for batch in by_torch) == rows
    ray.train.report({"loss": float(rows)})


def loads_and_stores(config: Any) -> None:
    """Use `prepare_data_loader` and `get_context().get_storage()`, which are imported by name, as
    in Ray's tutorials.
    """
    import torch
    from ray.train import get_context, get_dataset_shard, report
    from ray.train.torch import prepare_data_loader

    frame = get_dataset_shard("valid").materialize().to_pandas()
    rows = torch.utils.data.TensorDataset(torch.arange(len(frame)))
    loader = prepare_data_loader(torch.utils.data.DataLoader(rows, batch_size=16, shuffle=True))
    seen = torch.cat([batch[0] for batch in loader])
    context = get_context()
    storage, file = (
        context.get_storage(),
        f"seen-{context.get_trial_name()}-{context.get_world_rank()}",
    )
    Path(storage.storage_fs_path, storage.experiment_dir_name, file).write_text(
        " ".join(map(str, seen.tolist()))
    )
    total = torch.ones(1)
    torch.distributed.all_reduce(total)
    report({"loss": float(len(seen)), "world": float(total)})


def reads_late(config: Any) -> None:
    """Wait for the file `go`, then report the number of rows.

    The first attempt raises what Ray raises if the owner of the data has died.

    Ray itself would raise it or not, depending on where it has put the rows.
    """
    import ray.exceptions
    import ray.train

    folder = Path(config["folder"])
    (folder / "begun").touch()
    wait_for(folder / "go")
    if not (folder / "raised").exists():
        (folder / "raised").touch()
        raise ray.exceptions.OwnerDiedError("00ff", None, "")
    rows = sum(
        len(batch["y"])
        for batch in ray.train.get_dataset_shard("train").iter_batches(batch_size=64)
    )
    ray.train.report({"loss": float(rows)})


def three_steps(config: Any) -> None:
    import ray.train

    for step in range(1, 4):
        ray.train.report({"loss": 1.0 / step})


def returns_early(config: Any) -> None:
    """Report on both ranks, return on rank 1, and sum over both ranks on rank 0."""
    import ray.train
    import torch

    ray.train.report({"loss": 1.0})
    if ray.train.get_context().get_world_rank() == 0:
        torch.distributed.all_reduce(torch.ones(1))
        ray.train.report({"loss": 0.5})


def fails_once(config: Any) -> None:
    """Report five steps with a checkpoint each.

    Raise at step `config["at"]` on rank `config["rank"]`, in the first attempt only.
    """
    import json

    import ray.train

    rank, mark = ray.train.get_context().get_world_rank(), Path(config["folder"], "failed")
    start = 0
    if (checkpoint := ray.train.get_checkpoint()) is not None:
        start = json.loads(Path(checkpoint.path, "state.json").read_text())
    for step in range(start + 1, 6):
        if step == config["at"] and rank == config.get("rank", 0) and not mark.exists():
            if config.get("once", True):
                mark.touch()
            raise ConnectionResetError("the feature store hung up")
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "state.json").write_text(json.dumps(step))
            ray.train.report(
                {"loss": 1.0 / step},
                checkpoint=ray.train.Checkpoint.from_directory(folder) if rank == 0 else None,
            )


def yields_metrics(config: Any) -> Iterator[Any]:
    """Yield four reports, and write the number of the last step to a file."""
    steps = 0
    try:
        for steps in range(1, 5):
            yield {"loss": config["x"] / steps}
    finally:
        Path(config["folder"], "closed").write_text(str(steps))


def tune_function(config: Any) -> None:
    """Use the functions of Ray Tune, imported by name: report, save and load checkpoints, and read
    the context.
    """
    from ray import tune
    from ray.tune import Checkpoint, get_checkpoint, get_context, report

    start = 0
    if (checkpoint := get_checkpoint()) is not None:
        with checkpoint.as_directory() as folder:
            start = int(Path(folder, "step").read_text())
    context = get_context()
    named = (
        context.get_trial_id() == context.get_trial_name()
        and Path(context.get_trial_dir()).is_dir()
    )
    for step in range(start + 1, 4):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "step").write_text(str(step))
            metrics = {
                "loss": config["x"] / step,
                "start": start,
                "named": float(named),
                "world": context.get_world_size(),
                "cpus": context.get_trial_resources().required_resources["CPU"],
            }
            (report if step % 2 else tune.report)(
                metrics, checkpoint=Checkpoint.from_directory(folder)
            )
        if step == 2 and start == 0 and "latch" in config:
            Path(config["latch"]).write_text(str(os.getpid()))
            wait_for(Path(config["latch"] + ".go"))


def boosts_for_tune(config: Any) -> None:
    """Train as in Ray Tune's XGBoost example, with Tune's callback."""
    import ray.train
    import xgboost
    from ray.tune.integration.xgboost import TuneReportCheckpointCallback

    frame = ray.train.get_dataset_shard("train").materialize().to_pandas()
    data = xgboost.DMatrix(frame.drop(columns="y"), label=frame["y"])
    xgboost.train(
        {"objective": "reg:squarederror", "eta": config["lr"], "nthread": 1},
        data,
        evals=[(data, "train")],
        num_boost_round=4,
        callbacks=[TuneReportCheckpointCallback(metrics={"loss": "train-rmse"}, frequency=1)],
    )


def reports_at_each_latch(config: Any) -> None:
    """Report the process, then again as soon as the file `go` exists."""
    import ray.train

    folder = Path(config["folder"])
    ray.train.report({"loss": 1.0, "pid": os.getpid()})
    wait_for(folder / "go")
    ray.train.report({"loss": 0.5, "pid": os.getpid()})


def wait_for(latch: Path, seconds: float = 60.0) -> None:
    """Wait until a file exists."""
    deadline = time.monotonic() + seconds
    while not latch.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"no {latch}")
        time.sleep(0.02)


def elastic(config: Any) -> None:
    """Sums ones over all ranks in each step, with a checkpoint every `every` steps.

    Holds at step `hold` while `config["folder"]` has the file `hold`. Ends at step `steps`, or four
    steps after a start with `until` ranks from a checkpoint.
    """
    import json

    import torch
    import torch.distributed as dist
    from ray.train import Checkpoint, get_checkpoint, get_context, get_dataset_shard, report

    context, latches = get_context(), Path(config["folder"])
    rank, world, start = context.get_world_rank(), context.get_world_size(), 0
    if checkpoint := get_checkpoint():
        start = json.loads(Path(checkpoint.path, "state.json").read_text())["step"]
    rows = len(get_dataset_shard("train").materialize().to_pandas())
    last = (
        min(start + 4, config["steps"]) if start and world == config["until"] else config["steps"]
    )
    for step in range(start + 1, last + 1):
        ones = torch.ones(1)
        if step == config["hold"]:
            (latches / f"held-{rank}-{os.getpid()}").touch()
            deadline = time.monotonic() + 60
            while (latches / "hold").exists() and time.monotonic() < deadline:
                time.sleep(0.01)
        if dist.is_initialized():
            dist.all_reduce(ones)
        time.sleep(config.get("seconds", 0.0))
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "state.json").write_text(json.dumps({"step": step}))
            saves = rank == 0 and (step % config["every"] == 0 or step == last)
            report(
                {"loss": 1 / step, "world": world, "sum": float(ones), "rows": rows},
                checkpoint=Checkpoint.from_directory(folder) if saves else None,
            )
