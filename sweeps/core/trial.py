"""The nouns that travel: Trial, Report, Action, Result; and what a training loop may ask of the trial it runs in.

A loop needs none of this: it is an ordinary Ray Train loop. One that wants to know the label, the task or what a warm
worker still holds calls `current()`.
"""

from __future__ import annotations

import enum
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from sweeps.core.resources import Shape

CHECKPOINT_NOTE = "sweeps.json"
CHECK_PREDICTIONS = "check.npy"
# In `limits.retry_on`: a worker process was lost.
LOST = "lost"


def format_trial_id(number: int) -> str:
    """Return the id of a trial, as users see and type it.

    >>> format_trial_id(7)
    '0007'
    """
    return f"{number:04d}"


class Action(enum.Enum):
    """What a scheduler does with a trial at a rung.

    EXPLOIT means that the trial continues from another trial's checkpoint, as in Population Based Training.
    """

    CONTINUE = "CONTINUE"
    STOP = "STOP"
    PAUSE = "PAUSE"
    EXPLOIT = "EXPLOIT"


class State(enum.Enum):
    """Where a trial stands. RUNNING in the record of a sweep that nobody drives means: interrupted, resumable."""

    RUNNING = "RUNNING"
    COMPLETE = "COMPLETE"
    PRUNED = "PRUNED"
    FAIL = "FAIL"


@dataclass(frozen=True)
class Report:
    """One `ray.train.report` of rank 0.

    Attributes:
        step: 1 for the first report of the trial, counting on over retries and resumes.
        metrics: what the loop reported; numbers only, the rest is dropped.
        time: seconds since the epoch.
    """

    step: int
    metrics: dict[str, float]
    time: float


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that was persisted.

    Attributes:
        path: the folder (a path or URI every worker can read).
        step: the last report that it covers; a loop that goes on from it reports step + 1 next.
        best_step: the step whose model it holds, which is `step` unless the loop noted another (`note_checkpoint`).
    """

    path: str
    step: int
    best_step: int


@dataclass(frozen=True)
class Trial:
    """One sampled configuration.

    Attributes:
        number: 0, 1, ... in the sweep; the number of the Optuna trial.
        id: the name a user sees and types, `0007`.
        params: what the loop gets as its `config`, nothing else.
        preprocessor: the chain of steps as plain data (see `sweeps.space`), `()` for none.
        shape: the workers it runs on.
        seed: set in every worker before the loop starts.
        labels: each dimension's name and its value in short, for people and for MLflow; those that are active.
        data: what is tuned of the data, see `sweeps.space.Space.variant`; {} where nothing is.
        origin: the number of the trial whose configuration this one repeats with another seed; None for a configuration's first.
        lineage: whose checkpoints it has taken over under PBT, as `0003 at 8, 0001 at 12`; "" for a trial that is its own.
    """

    number: int
    id: str
    params: dict[str, Any]
    preprocessor: tuple[Any, ...]
    shape: Shape
    seed: int
    labels: dict[str, Any]
    data: dict[str, Any] = field(default_factory=dict)
    origin: int | None = None
    lineage: str = ""

    @property
    def chain(self) -> str:
        """The preprocessor in short: its label where it is a dimension, else its steps' names; with what is tuned inside it."""
        label = self.labels.get("preprocessor") or "+".join(step.name for step in self.preprocessor) or "none"
        inside = {name.rsplit(".", 1)[-1]: value for name, value in self.labels.items() if name.startswith("preprocessor.")}
        return label + (f" ({', '.join(f'{k}={v}' for k, v in inside.items())})" if inside else "")


@dataclass(frozen=True)
class Result:
    """How a trial ended.

    Attributes:
        state: COMPLETE, PRUNED, FAIL; RUNNING if it was interrupted and can be resumed.
        value: of the objective, or of the first; the best of its reports. None without one.
        best_step: the step that had it.
        steps: reports in all.
        checkpoint: the one that holds the model of the best step; None if the loop reported none.
        error: the traceback of a FAIL.
        seconds: wall time in a gang, over all attempts.
        values: of all objectives, in their order; None for one that is not known.
        metrics: its costs, and at `best_step` the metrics of objectives and constraints.
        feasible: it keeps every constraint.
        given: it was not run; its values were given with the space file.
        final: metrics of the finished model, which belong to no step (`Current.report_final`); only of a COMPLETE trial.
    """

    state: State
    value: float | None = None
    best_step: int | None = None
    steps: int = 0
    checkpoint: Checkpoint | None = None
    error: str | None = None
    seconds: float = 0.0
    values: tuple[float | None, ...] = ()
    metrics: dict[str, float] = field(default_factory=dict)
    feasible: bool = True
    given: bool = False
    final: dict[str, float] = field(default_factory=dict)


@dataclass
class Current:
    """What a loop may know of the trial it runs in; see `current`.

    Attributes:
        trial: the trial's id.
        seed: already set for `random`, NumPy and torch.
        label: the label column's name in the shards; None if the space names none.
        task: "binary", "multiclass" or "regression"; None without a label.
        classes: the labels' original values, in the order of the codes 0, 1, ... that stand in the label column;
            None for a regression.
        metric: the objective's name, which the loop must report: of several the first that is no cost. Where costs alone are asked for,
            it is the metric of a constraint, or None.
        goal: "minimize" or "maximize".
        max_t: the step at which the scheduler ends the trial; None if nothing does.
        threads: CPUs this worker was given, at least 1.
        check: up to 32 prepared rows of `valid`, without the label. A bundle is written only if it answers for
            their raw counterparts what `note_checkpoint` was told the model in training answers. None if the space names no data.
        asked: every metric that objectives and constraints name, but for costs.
        milestones: steps whose report has to carry a checkpoint; none but under PBT.
        keep_last: the model that counts is the last step's: the trial is trained once more on all rows, and `valid` says nothing.
        final: what `report_final` was given.
        folder: the trial's folder for other files, such as traces of a profiler; see the property.
    """

    trial: str
    seed: int
    label: str | None
    task: str | None
    classes: tuple[Any, ...] | None
    metric: str | None
    goal: str
    max_t: int | None
    threads: int
    check: pd.DataFrame | None
    checkpoint_interval: float = 10.0
    asked: tuple[str, ...] = ()
    milestones: range | frozenset[int] = range(0)
    keep_last: bool = False
    final: dict[str, float] = field(default_factory=dict)
    _folder: Path | None = field(default=None, repr=False)
    _kept: dict[str, Any] = field(default_factory=dict, repr=False)
    _last_checkpoint: float = field(default_factory=time.monotonic, repr=False)

    @property
    def folder(self) -> Path:
        """A folder for what the loop wants to keep beside checkpoints: traces of a profiler, TensorBoard's files, figures.

        It is there when it is asked for, and the same on every rank and in every attempt. When the trial has ended, however it did, its
        files are logged as artifacts of the trial's run in MLflow. An empty folder is removed.

        Raises:
            RuntimeError: the trial has no folder, as in a test that made this object itself.
        """
        if self._folder is None:
            raise RuntimeError("this trial has no folder; sweeps gives each trial one that it runs itself")
        self._folder.mkdir(parents=True, exist_ok=True)
        return self._folder

    def better(self, a: float, b: float | None) -> bool:
        """Whether value `a`, the later one, beats `b` under the objective's goal. NaN never wins; anything but NaN beats None.

        With `keep_last` it always does.
        """
        if self.keep_last:
            return True
        if a != a:
            return False
        if b is None or b != b:
            return True
        return a < b if self.goal == "minimize" else a > b

    def cached(self, name: str, build: Callable[[], Any]) -> Any:
        """What an earlier trial of this worker built from the same prepared data under this name, else `build()`.

        Use it for what is expensive to make from a shard: a `DMatrix`, a tensor. All ranks keep and drop the same,
        so call it on every rank alike.
        """
        if name not in self._kept:
            self._kept[name] = build()
        return self._kept[name]

    def checkpoint_due(self, step: int, last: bool = False) -> bool:
        """Whether a report should carry a checkpoint: it is the last one or a milestone, or the last checkpoint is some seconds old.

        Args:
            step: the step about to be reported, 1 for the first.
            last: the loop ends after it.
        """
        now = time.monotonic()
        if not (last or step == self.max_t or step in self.milestones or now - self._last_checkpoint >= self.checkpoint_interval):
            return False
        self._last_checkpoint = now
        return True

    def report_final(self, metrics: Mapping[str, float]) -> None:
        """Record metrics of the finished model, which belong to no step.

        Call it before the last report. They are kept with a trial that completes, and logged to MLflow as `final/NAME`. The values
        of rank 0 count.

        Args:
            metrics: names and numbers; a later call adds to an earlier one.
        """
        self.final.update({str(name): float(value) for name, value in metrics.items()})

    def note_checkpoint(self, folder: str | Path, best_step: int, predictions: np.ndarray | None = None) -> None:
        """Write beside a checkpoint what it holds, before it is reported.

        Args:
            folder: the checkpoint's folder.
            best_step: the step whose model the trainer's `load` will return, when it is not the reported one.
            predictions: what the model in memory predicts for `check`.
        """
        Path(folder, CHECKPOINT_NOTE).write_text(json.dumps({"best_step": best_step}))
        if predictions is not None:
            import numpy as np

            np.save(Path(folder, CHECK_PREDICTIONS), np.asarray(predictions))


_current: Current | None = None


def current() -> Current:
    """The trial this training loop runs in.

    Raises:
        RuntimeError: called outside a training loop.
    """
    if _current is None:
        raise RuntimeError("sweeps.trial.current() is only known inside a training loop that sweeps runs")
    return _current


def set_current(value: Current | None) -> None:
    """Make `value` what `current()` answers in this process; for the loop of a rank and for tests of trainers."""
    global _current
    _current = value
