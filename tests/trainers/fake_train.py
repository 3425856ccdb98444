"""A Ray Train around one loop, without a cluster: shards from pandas, reports kept in a list."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from ray.train import Checkpoint
from ray.train.v2._internal.execution.train_fn_utils import LocalTrainFnUtils, set_train_fn_utils

from sweeps.core.trial import Current, set_current


class Stopped(BaseException):
    """What `report` raises when a trial is to end, as the real seam does."""


class Shard:
    """What `get_dataset_shard` answers; counts how often it was read."""

    def __init__(self, frame: pd.DataFrame):
        self.frame, self.reads = frame, 0

    def materialize(self) -> Shard:
        return self

    def to_pandas(self) -> pd.DataFrame:
        self.reads += 1
        return self.frame


@dataclass
class Run:
    """What a loop did.

    Attributes:
        metrics: of every report, in order.
        checkpoints: report number (1 for the first) -> a copy of the folder that came with it.
        final: metrics of the finished model.
    """

    metrics: list[dict[str, float]] = field(default_factory=list)
    checkpoints: dict[int, Path] = field(default_factory=dict)
    final: dict[str, float] = field(default_factory=dict)


class FakeTrain(LocalTrainFnUtils):
    def __init__(self, shards: dict[str, Shard], keep: Path, resume: Path | None, stop_at: int | None, rank: int, world: int):
        super().__init__("fake", shards, world_size=world, world_rank=rank)  # type: ignore[arg-type]
        self.keep, self.resume, self.stop_at, self.run = keep, resume, stop_at, Run()

    def get_checkpoint(self):
        return Checkpoint.from_directory(self.resume) if self.resume else None

    def report(self, metrics, checkpoint=None, *args, **kwargs):
        self.run.metrics.append(metrics)
        step = len(self.run.metrics)
        if checkpoint:
            with checkpoint.as_directory() as folder:
                self.run.checkpoints[step] = Path(shutil.copytree(folder, self.keep / str(len(list(self.keep.iterdir())))))
        if step == self.stop_at:
            raise Stopped


def run(
    loop: Callable[[dict[str, Any]], None],
    config: dict[str, Any],
    cur: Current,
    shards: dict[str, Shard],
    keep: Path,
    *,
    resume: Path | None = None,
    stop_at: int | None = None,
    rank: int = 0,
    world: int = 1,
) -> Run:
    """Run a loop to its end, or until its `stop_at`th report.

    Args:
        keep: an existing folder for copies of the checkpoints.
        resume: the checkpoint that `get_checkpoint` answers.
    """
    utils = FakeTrain(shards, keep, resume, stop_at, rank, world)
    set_train_fn_utils(utils)
    set_current(cur)
    try:
        loop(config)
    except Stopped:
        pass
    finally:
        set_train_fn_utils(None)
        set_current(None)
    utils.run.final = cur.final
    return utils.run


def make(task: str, rows: int = 160, missing: bool = False) -> tuple[Callable[..., Current], dict[str, Shard]]:
    """A small table of a task: a maker of `Current` (keyword arguments override), and its shards."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows + 80, 5))
    signal = x[:, 0] - 2 * x[:, 1] + 0.5 * x[:, 2] ** 2 + rng.normal(0, 0.5, rows + 80)
    if task == "regression":
        y: np.ndarray = 1000 + 50 * signal
    else:
        y = np.digitize(signal, [0.3] if task == "binary" else [-1, 1]).astype(np.int64)
    frame = pd.DataFrame(x, columns=[f"x{i}" for i in range(5)]).assign(y=y)
    if missing:
        frame.loc[::7, "x3"] = np.nan
    valid = frame.iloc[rows:].reset_index(drop=True)
    kept: dict[str, Any] = {}
    metric = {"binary": "valid-logloss", "multiclass": "valid-mlogloss", "regression": "valid-rmse"}[task]
    classes = {"binary": ("no", "yes"), "multiclass": ("a", "b", "c"), "regression": None}[task]

    def current(**changed: Any) -> Current:
        given: dict[str, Any] = {
            "trial": "0000",
            "seed": 7,
            "label": "y",
            "task": task,
            "classes": classes,
            "metric": metric,
            "goal": "minimize",
            "max_t": None,
            "threads": 1,
            "check": valid.drop(columns="y").iloc[:32],
            "_kept": kept,
        }
        return Current(**given | changed)

    return current, {"train": Shard(frame.iloc[:rows].reset_index(drop=True)), "valid": Shard(valid)}
