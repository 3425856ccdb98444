"""Loops that measure sweeps itself: they sleep, report, wait or note times instead of training."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


def sleep(config: dict[str, Any]) -> None:
    """Sleep and report once, in sweeps or in Ray Train."""
    import ray.train

    time.sleep(config["seconds"])
    ray.train.report({"x": config["x"]})


def sleep_in_steps(config: dict[str, Any]) -> None:
    """Sleep four times, each time with a sum over all ranks, and report once.

    Each rank writes when and where it ran.
    """
    import ray
    import ray.train

    from sweeps import trial

    began, rank = time.time(), ray.train.get_context().get_world_rank()
    for _ in range(4):
        time.sleep(0.5)
        sum_of_ranks()
    name = trial.current().trial
    place = {
        "trial": name,
        "node": ray.get_runtime_context().get_node_id(),
        "pid": os.getpid(),
        "began": began,
        "ended": time.time(),
    }
    Path(config["folder"], f"rank-{name}-{rank}.json").write_text(json.dumps(place))
    ray.train.report({"x": 1.0})


def sum_of_ranks() -> float:
    """Return the number of ranks, summed over all of them."""
    import torch
    import torch.distributed as dist

    one = torch.ones(1)
    if dist.is_initialized():
        dist.all_reduce(one)
    return float(one)


def report_once(config: dict[str, Any]) -> None:
    """Report once."""
    import ray.train

    ray.train.report({"x": 1.0})


def report_often(config: dict[str, Any]) -> None:
    """Report 20 times, each time after a sum over all ranks, and write the times of the reports.

    Each rank writes its process id.
    """
    import ray.train

    rank = ray.train.get_context().get_world_rank()
    Path(config["folder"], f"at-{rank}-{os.getpid()}").touch()
    for _ in range(20):
        time.sleep(0.05)
        ray.train.report({"x": sum_of_ranks()})
        if rank == 0:
            with open(Path(config["folder"], "reports.txt"), "a") as file:
                file.write(f"{time.time()!r}\n")


def _hold(folder: Path, name: str, values: dict[str, Any]) -> None:
    """Write a file that says that the trial has reached this point, and wait until the file `go`
    appears, at most 300 s.
    """
    part = folder / f".{name}"
    part.write_text(json.dumps(values))
    part.rename(folder / f"ready-{name}")
    give_up = time.monotonic() + 300
    while not (folder / "go").exists() and time.monotonic() < give_up:
        time.sleep(0.02)


def _table() -> tuple[Any, Any]:
    import ray.train

    return tuple(
        ray.train.get_dataset_shard(name).materialize().to_pandas() for name in ("train", "valid")
    )


def latched_table(config: dict[str, Any]) -> None:
    """Read every value of the prepared table in sweeps, and wait while the table is in memory."""
    import ray.train

    from sweeps import trial

    tables = _table()
    size = sum(int(t.memory_usage(index=False, deep=True).sum()) for t in tables)
    total = float(sum(t[c].to_numpy().sum() for t in tables for c in t.columns))
    _hold(Path(config["latch"]), trial.current().trial, {"bytes": size, "read": total})
    ray.train.report({"valid-logloss": 0.5, "rows": len(tables[0])})


def latched_trainer(config: dict[str, Any]) -> None:
    """Run the built-in XGBoost trainer in sweeps, and wait before its third report.

    The matrices and some trees are then in memory.
    """
    import ray.train

    from sweeps import trial
    from sweeps.trainers import xgboost

    config, name, report, count = dict(config), trial.current().trial, ray.train.report, 0
    latch = Path(config.pop("latch"))

    def held(*args: Any, **kwargs: Any) -> None:
        nonlocal count
        count += 1
        if count == 3:
            _hold(latch, name, {})
        report(*args, **kwargs)

    _with(ray.train, "report", held, lambda: xgboost.train_func(config))


def first_step(config: dict[str, Any]) -> None:
    """Write the time of the first step to a file, and report once."""
    import ray.train

    Path(config["mark"]).write_text(repr(time.time()))
    ray.train.report({"x": 1.0})


def one_row() -> Any:
    """Return eight rows of data, for sweeps that do not need data."""
    import pandas as pd

    return pd.DataFrame({"x": np.arange(8.0), "y": [0, 1] * 4})


def timed(config: dict[str, Any]) -> None:
    """Run the loop that `config` names.

    Rank 0 appends a line with the trial and the times of its start and end to a file.
    """
    import ray.train

    from sweeps import trial
    from sweeps.core.plugins import references

    began, config = time.time(), dict(config)
    if mark := config.pop("mark", None):
        Path(mark).write_text(repr(began))
    into, loop = Path(config.pop("times")), references.resolve(config.pop("loop"))
    try:
        loop(config)
    finally:
        if ray.train.get_context().get_world_rank() == 0:
            with open(into, "a") as file:
                file.write(json.dumps([trial.current().trial, began, time.time()]) + "\n")


def _with(module: Any, name: str, value: Any, action: Callable[[], None]) -> None:
    """Call a function while an attribute of a module is replaced."""
    old = getattr(module, name)
    setattr(module, name, value)
    try:
        action()
    finally:
        setattr(module, name, old)
