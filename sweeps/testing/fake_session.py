"""Run a training loop in this process without Ray Train. The loop's shards are pandas frames.

The loop's reports are collected in a list.

current, shards = small_table("binary")
run = run_loop(my_trainer.train_func, {"lr": 0.1}, current(), shards, tmp_path)
assert run.metrics[-1]["valid-logloss"] < run.metrics[0]["valid-logloss"]
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from ray.train import Checkpoint
from ray.train.v2._internal.execution.train_fn_utils import LocalTrainFnUtils, set_train_fn_utils

from sweeps.core.loop_context import Current, current, set_current, take_step

# Number of validation rows of a small table.
VALID_ROWS = 80


class Stopped(BaseException):
    """Raised by `ray.train.report` to stop the loop.

    Like the exception that stops a loop in a real sweep, this one does not inherit from
    `Exception`, so an `except Exception` in the loop does not catch it.
    """


class FakeShard:
    """A shard that `ray.train.get_dataset_shard` returns to the loop.

    Args:
        frame: Prepared rows, with the label column if there is a label.

    Attributes:
        reads: Number of times that the loop has read the rows.
    """

    def __init__(self, frame: pd.DataFrame):
        self.frame = frame
        self.reads = 0

    def materialize(self) -> FakeShard:
        """Return this shard. Its rows are in memory already."""
        return self

    def to_pandas(self) -> pd.DataFrame:
        """Return the rows, and increase `reads` by one."""
        self.reads += 1
        return self.frame


@dataclass
class LoopRun:
    """Reports of a training loop.

    Attributes:
        metrics: Metrics of every report, in order.
        steps: Step of every report; see `Current.report_due`.
        checkpoints: Folder with a copy of each checkpoint, by the number of the report that had the
            checkpoint (1 for the first report).
        final: Metrics of the finished model, which the loop passed to `Current.report_final`.
    """

    metrics: list[dict[str, float]] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    checkpoints: dict[int, Path] = field(default_factory=dict)
    final: dict[str, float] = field(default_factory=dict)


class _FakeSession(LocalTrainFnUtils):
    """Fake of the object to which the functions of Ray Train pass their calls.

    One of these functions is `ray.train.report`.
    """

    def __init__(
        self,
        shards: Mapping[str, FakeShard],
        keep: Path,
        resume: Path | None,
        stop_at: int | None,
        rank: int,
        world: int,
    ):
        data = dict(shards)
        super().__init__("fake", data, world_size=world, world_rank=rank)  # type: ignore[arg-type]
        self.keep = keep
        self.resume = resume
        self.stop_at = stop_at
        self.run = LoopRun()

    def get_checkpoint(self) -> Checkpoint | None:
        return Checkpoint.from_directory(self.resume) if self.resume else None

    def report(
        self,
        metrics: dict[str, Any],
        checkpoint: Checkpoint | None = None,
        *args: object,
        **kwargs: object,
    ) -> None:
        """Record a report and its checkpoint. Raise `Stopped` at the report `stop_at`."""
        latest = self.run.steps[-1] if self.run.steps else 0
        if self.resume and not self.run.steps:  # The step of the checkpoint is not known here.
            latest = (current()._next_step or 1) - 1
        self.run.steps.append(take_step(latest))
        self.run.metrics.append(metrics)
        number = len(self.run.metrics)
        if checkpoint:
            # Several runs may share the folder, so the name is not the number of the report.
            copy = self.keep / str(len(list(self.keep.iterdir())))
            with checkpoint.as_directory() as folder:
                self.run.checkpoints[number] = Path(shutil.copytree(folder, copy))
        if number == self.stop_at:
            raise Stopped


def run_loop(
    loop: Callable[[dict[str, Any]], None],
    config: dict[str, Any],
    current: Current,
    shards: Mapping[str, FakeShard],
    keep: Path,
    *,
    resume: Path | None = None,
    stop_at: int | None = None,
    rank: int = 0,
    world: int = 1,
) -> LoopRun:
    """Run a training loop to its end, or stop it at a report.

    Args:
        loop: The training loop.
        config: The trial's parameters.
        current: Object that `sweeps.trial.current()` returns in the loop.
        shards: Shards by name, "train" and "valid".
        keep: An existing folder. The checkpoints are copied into it.
        resume: Folder of the checkpoint that `ray.train.get_checkpoint` returns; None for a new
            trial.
        stop_at: Number of the report at which the loop is stopped (1 for the first); None lets the
            loop end by itself.
        rank: Rank of this process.
        world: Number of ranks.
    """
    session = _FakeSession(shards, keep, resume, stop_at, rank, world)
    set_train_fn_utils(session)
    set_current(current)
    try:
        loop(config)
    except Stopped:
        pass
    finally:
        set_train_fn_utils(None)
        set_current(None)
    session.run.final = current.final
    return session.run


def small_table(
    task: str, rows: int = 160, missing: bool = False
) -> tuple[Callable[..., Current], dict[str, FakeShard]]:
    """Make a small table that a model can learn.

    Args:
        task: "binary", "multiclass" or "regression".
        rows: Number of training rows. The table also has `VALID_ROWS` validation rows.
        missing: True if one column has missing values.

    Returns:
        (current, shards). `current` is a function that returns a new `Current`. The keyword
        arguments of the function replace attributes of this `Current`. All `Current` objects that
        the function returns share one cache for `Current.cached`, like consecutive trials on one
        worker. `shards` maps "train" and "valid" to shards with five numeric columns and the label
        in column `y`.
    """
    rng = np.random.default_rng(0)
    total = rows + VALID_ROWS
    x = rng.normal(size=(total, 5))
    signal = x[:, 0] - 2 * x[:, 1] + 0.5 * x[:, 2] ** 2 + rng.normal(0, 0.5, total)
    if task == "regression":
        y: np.ndarray = 1000 + 50 * signal
    else:
        y = np.digitize(signal, [0.3] if task == "binary" else [-1, 1]).astype(np.int64)
    frame = pd.DataFrame(x, columns=[f"x{i}" for i in range(5)]).assign(y=y)
    if missing:
        frame.loc[::7, "x3"] = np.nan
    valid = frame.iloc[rows:].reset_index(drop=True)
    cache: dict[str, Any] = {}
    metrics = {
        "binary": "valid-logloss",
        "multiclass": "valid-mlogloss",
        "regression": "valid-rmse",
    }
    classes = {"binary": ("no", "yes"), "multiclass": ("a", "b", "c"), "regression": None}

    def current(**changed: Any) -> Current:
        defaults: dict[str, Any] = {
            "trial": "0000",
            "seed": 7,
            "label": "y",
            "task": task,
            "classes": classes[task],
            "metric": metrics[task],
            "goal": "minimize",
            "max_t": None,
            "threads": 1,
            "check": valid.drop(columns="y").iloc[:32],
            "_cached_objects": cache,
            "sweep_max_t": changed.get("max_t"),
        }
        return Current(**defaults | changed)

    train = frame.iloc[:rows].reset_index(drop=True)
    return current, {"train": FakeShard(train), "valid": FakeShard(valid)}
