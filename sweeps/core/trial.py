"""The types that describe a trial, and the function `current()`.

A training loop calls the function to get information about its trial.

This module is public as `sweeps.trial`. An ordinary Ray Train loop works without it. A loop calls
`current()` if it needs the name of the label column, the task or the seed. With `Current.cached`, a
loop reuses an object that an earlier trial on the same worker has built.
"""

from __future__ import annotations

import enum
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import PlainSerializer

from sweeps.core.best_step import Constraint, StepOrder
from sweeps.core.files.safe_names import loop_name
from sweeps.core.json_values import (
    Configuration,
    Count,
    FolderName,
    Integer,
    Numbers,
    Text,
    Time,
    Workers,
)
from sweeps.core.resources import Shape

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

CHECKPOINT_NOTE = "sweeps.json"
CHECK_PREDICTIONS = "check.npy"
# In a cross-validation, the metric with the step at which the loop had its best value, as the mean
# over the folds.
BEST_FOLD_STEP = "best_fold_step"
# If the scheduler counts rows, the metrics with the loop's step whose metrics the trial reports,
# and with the number of train rows.
BEST_LOOP_STEP = "best_loop_step"
TRAIN_ROWS = "train_rows"
# The metric that marks a step whose line of output could not be read. The objective's metric is
# then NaN.
UNREADABLE_LINE = "unreadable_line"
# The entry of `limits.retry_on` that stands for lost worker processes.
LOST = "lost"


def format_trial_id(number: int) -> str:
    """Return the id of a trial: its number with at least four digits. Users see and type this id.

    >>> format_trial_id(7)
    '0007'
    """
    return f"{number:04d}"


def trained_on(refit: Mapping[str, Any]) -> str:
    """Return the rows on which a model was trained again.

    An example is `4,177 rows: train, valid and test`. See `Refitted.facts`.
    """
    *others, last = refit["on"]
    return f"{refit['rows']:,} rows: {', '.join(others)} and {last}"


def without_repetition(chain: str) -> str:
    """Return `Trial.chain` without the values that only repeat the name of a step.

    The record keeps these values.

    >>> without_repetition("OneHotEncoder+PCA (0=OneHotEncoder, n_components=8)")
    'OneHotEncoder+PCA (n_components=8)'
    """
    label, _, inside = chain.partition(" (")
    names = {"none", *label.split("+")}

    def repeats(pair: str) -> bool:
        position, _, value = pair.partition("=")
        return position.isdecimal() and names.issuperset(value.split("+"))

    values = inside.removesuffix(")").split(", ")
    shown = [pair for pair in values if not repeats(pair)]
    if len(shown) == len(values):
        return chain
    return f"{label} ({', '.join(shown)})" if shown else label


def complete_trial_id(typed: str) -> str:
    """Add the missing leading zeros to a trial's id that a user typed.

    A text that is no number is returned unchanged.

    >>> complete_trial_id("7"), complete_trial_id("abc")
    ('0007', 'abc')
    """
    return typed.zfill(4) if typed.isdecimal() else typed


class Action(enum.Enum):
    """Decision of a scheduler about a trial that has reached a rung.

    A rung is a step at which the scheduler compares trials. PAUSE means that the trial gives up its
    workers, and may continue later from its checkpoint. EXPLOIT means that the trial continues from
    another trial's checkpoint, as in Population Based Training.
    """

    CONTINUE = "CONTINUE"
    STOP = "STOP"
    PAUSE = "PAUSE"
    EXPLOIT = "EXPLOIT"


class State(enum.Enum):
    """State of a trial.

    If no process is running the sweep, a RUNNING trial was interrupted and can be resumed.
    """

    RUNNING = "RUNNING"
    COMPLETE = "COMPLETE"
    PRUNED = "PRUNED"
    FAIL = "FAIL"


# Reasons of trials that ended because the time of the sweep was over
TIME_LIMITS = ("limits.timeout", "--minutes")


@dataclass(frozen=True)
class Report:
    """Report of rank 0 of a trial: what one call of `ray.train.report` reported.

    Attributes:
        step: Step of the report. It is one step after the latest report, unless the loop passed
            another step to `Current.report_due`. Retries and resumes continue the count.
        metrics: The reported numbers, by the name of the metric. Reported values that are not
            numbers are left out.
        time: Time of the report, in seconds since the epoch.
    """

    step: Count
    metrics: Numbers
    time: Time

    @property
    def logged(self) -> Report:
        """The report with the names that trackers get; see `loop_name`."""
        return replace(self, metrics={loop_name(k): v for k, v in self.metrics.items()})


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that a loop has reported and that is stored on disk.

    Attributes:
        name: Name of the checkpoint's folder in the folder of the trial's checkpoints; see
            `checkpoint_files.checkpoint_root`.
        step: Step of the report that has this checkpoint. A loop that continues from this
            checkpoint next makes step `step` + 1.
        best_step: The step whose model the checkpoint holds. This is `step`, unless the loop passed
            another step to `note_checkpoint`.
    """

    name: FolderName
    step: Integer
    best_step: Integer


@dataclass(frozen=True)
class GangSizePeriod:
    """Period in which the number of workers of an elastic trial stays the same.

    Each change of the number starts a new period.

    Attributes:
        step: Step of the checkpoint from which the trial continues with these workers; 0 if the
            trial starts from scratch.
        workers: Number of workers in this period.
        reported: Latest step that the trial had reported before this period. It is later than
            `step` if steps after the checkpoint were lost. These steps are then trained again.
        time: Time at which these workers started the loop, in seconds since the epoch.
    """

    step: Count
    workers: Workers
    reported: Count
    time: Time

    @property
    def metrics(self) -> dict[str, float]:
        """The number of workers as a metric for trackers: the value by the metric's name."""
        return {"scaling.num_workers": float(self.workers)}

    def __str__(self) -> str:
        first, last = self.step + 1, self.reported
        again = (
            f" (trained step {first} again)"
            if first == last
            else f" (trained steps {first} to {last} again)"
            if first < last
            else ""
        )
        return f"{self.workers} from step {self.reported + 1}{again}"


@dataclass(frozen=True)
class Trial:
    """One trial: a sampled configuration, and what a worker must know to train it.

    Attributes:
        number: Number of the trial in the sweep, starting with 0. The Optuna trial has the same
            number.
        params: The parameters, which the loop receives as its `config`.
        preprocessor: The preprocessing steps (see `sweeps.space`); `()` for none.
        shape: Number, resources and backend of the workers.
        seed: Seed of the random number generators, which is set in every worker before the loop
            starts.
        labels: Value of each active dimension, by the dimension's name. The values are short, for
            display and for MLflow.
        data: The trial's values of those keys of the section `data` that the sweep samples (see
            `sweeps.space.Space.variant`); {} for none.
        repeat_of: Number of the first trial of this configuration, if this trial repeats the
            configuration with another seed; else None.
        lineage: Under PBT, the trials whose checkpoints this trial has copied, each with the step
            of the copy, such as `0003 at 8, 0001 at 12`. "" if there are none.
        enqueued: True if the command `sweeps enqueue` added this trial.
        chain_text: The text that `chain` returns, if the trial was read without the space file and
            therefore has no preprocessing steps; else "".
    """

    number: Count
    params: Configuration
    preprocessor: tuple[Any, ...]
    shape: Shape
    seed: Integer
    labels: Configuration
    data: Configuration = field(default_factory=dict)
    repeat_of: Count | None = None
    lineage: Text = ""
    enqueued: bool = False
    chain_text: Text = ""

    @property
    def id(self) -> str:
        """The id that users see and type, such as `0007`."""
        return format_trial_id(self.number)

    @property
    def first_trial(self) -> int:
        """Number of the first trial of this configuration."""
        return self.number if self.repeat_of is None else self.repeat_of

    @property
    def chain(self) -> str:
        """Short text for the preprocessor.

        It is a label or the steps, and then the sampled values: `scale+pca (n_components=8)`.
        """
        if self.chain_text:
            return self.chain_text
        label = (
            self.labels.get("preprocessor")
            or "+".join(step.name for step in self.preprocessor)
            or "none"
        )
        inside = {
            name.rsplit(".", 1)[-1]: value
            for name, value in self.labels.items()
            if name.startswith("preprocessor.")
        }
        return label + (f" ({', '.join(f'{k}={v}' for k, v in inside.items())})" if inside else "")


@dataclass(frozen=True)
class Result:
    """How a trial ended.

    Attributes:
        state: COMPLETE, PRUNED or FAIL; RUNNING if the trial was interrupted and can be resumed.
        value: Best reported value of the first objective; None if no value was reported.
        best_step: The step at which `value` was reported; None if there is no such step.
        steps: Number of the trial's reports.
        checkpoint: The stored checkpoint with the best model; None if there is no checkpoint.
        error: The traceback of a failed trial; None for other trials.
        seconds: Wall time in seconds during which the trial had workers, summed over all attempts.
        values: Value of each objective, in the order of the space file; None for an unknown value.
        metrics: The trial's costs, and the metrics of objectives and constraints at `best_step`.
        feasible: True if the trial satisfies every constraint.
        given: True if the trial was not run, because the space file gives its values.
        final: Metrics of the finished model (see `Current.report_final`), which belong to no step.
            Only complete trials have such metrics.
        reason: Why the trial was stopped, such as `asha at step 9`; None if it was not stopped.
        paused: True if the scheduler has paused the trial. Its state is RUNNING, but it holds no
            workers.
    """

    state: Annotated[State, PlainSerializer(lambda state: state.name)]
    value: float | None = None
    best_step: int | None = None
    steps: int = 0
    checkpoint: Checkpoint | None = None
    error: Text | None = None
    seconds: float = 0.0
    values: tuple[float | None, ...] = ()
    metrics: dict[str, float] = field(default_factory=dict)
    feasible: bool = True
    given: bool = False
    final: Numbers = field(default_factory=dict)
    reason: Text | None = None
    paused: bool = False

    @property
    def ended_by_time(self) -> bool:
        """True if only a time limit of the sweep ended the trial.

        Its value then counts like that of a complete trial.
        """
        return self.state is State.PRUNED and self.reason in TIME_LIMITS

    def state_name(self, is_driven: bool) -> str:
        """Return the trial's state for display.

        It is COMPLETE, PRUNED, FAIL, RUNNING, PAUSED, INTERRUPTED or GIVEN.

        Args:
            is_driven: True if a process is running the sweep. Otherwise a RUNNING trial was
                interrupted.
        """
        if self.given:
            return "GIVEN"
        if self.paused:
            return "PAUSED"
        return "INTERRUPTED" if self.state is State.RUNNING and not is_driven else self.state.name


@dataclass
class Current:
    """Information about a trial, for the training loop of this trial; see `current`.

    Attributes:
        trial: The trial's id.
        seed: The trial's seed. It is already set for `random`, NumPy and torch.
        label: Name of the label column in the shards; None if the space names none. If the space
            names several columns, a list of their names. `frame[current.label]` then has one column
            for each.
        task: "binary", "multiclass" or "regression". For several label columns, "multilabel" if
            each has 0 and 1, or "multioutput" if each has numbers. None without a label.
        classes: Original values of the labels, in the order of the codes 0, 1, ... in the label
            column. None for numbers, for several columns, and without a label.
        metric: Name of the metric that the loop must report: the first objective that is not a
            cost. If all objectives are costs, this is the first metric of a constraint that is not
            a cost. None if there is no such metric.
        goal: "minimize" or "maximize". This is the goal for `metric`.
        max_t: The step at which the scheduler ends the trial; None if the scheduler has no such
            step. When a trial is trained again by `sweeps export --refit`, this is the step of the
            trial's best model.
        sweep_max_t: The step at which the scheduler of the sweep ends trials, also when a trial is
            trained again. A loop that divides its training by this number makes the same steps in
            both cases. None if the scheduler has no such step.
        threads: Number of CPUs of this worker, at least 1.
        check: Up to 32 prepared rows of `valid`, without the label; None if the space names no
            data. The loop passes the model's predictions for these rows to `note_checkpoint`. An
            exported bundle must make the same predictions from the raw form of these rows. If the
            predictions differ, the export fails.
        checkpoint_interval: Time in seconds between two checkpoints; see `checkpoint_due`.
        asked: Names of the metrics of all objectives and constraints, without costs such as
            `seconds`.
        milestones: Steps at which the loop must report a checkpoint. Empty unless the scheduler
            needs checkpoints, as `pbt` does.
        required_steps: Steps that the loop must report, because the scheduler compares trials
            there; see `report_due`. If the scheduler compares trials at every report, as `median`
            does, there are no such steps.
        keep_last: True if the loop must keep the model of the last step, not of the best step. It
            is True when a trial is trained again on the rows of train and valid together, because
            the metrics of `valid` are then meaningless.
        options: Options of the trainer from the section `trainer` of the space file, by name, with
            their defaults. See `TRAINER["options"]` in docs/how-to/own-trainer.md.
        roots: Folders in which the files that the space file names are looked up: the folder of the
            space file, then the working directory. If workers have a copy of the user's code, this
            is the copy.
        final: The metrics that `report_final` has recorded.
        weight: Name of the column with the weights of the rows in the shard of train; None if the
            rows have no weights. The column is not a feature. The shard of valid and `check` do not
            have it.
        constraints: Constraints on metrics that the loop reports. `better` uses them.
        train_share: Share of the train rows that the shard of train has, above 0 and at most 1. It
            is 1 unless the scheduler counts rows (`scheduler.resource: data.rows`). The loop then
            runs again on more rows.
        previous_run: Folder with this rank's files of the checkpoint that the loop's run on fewer
            rows reported last; None if there is no such run or checkpoint. A loop that can continue
            from a model of fewer rows starts from this checkpoint. Other loops start from scratch.
            The folder exists until the loop returns.
        folder: The trial's folder for other files, such as profiler traces; see the property.
    """

    trial: str
    seed: int
    label: str | list[str] | None
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
    required_steps: range | frozenset[int] = range(0)
    keep_last: bool = False
    sweep_max_t: int | None = None
    options: dict[str, Any] = field(default_factory=dict)
    roots: tuple[Path, ...] = ()
    final: dict[str, float] = field(default_factory=dict)
    weight: str | None = None
    constraints: tuple[Constraint, ...] = ()
    train_share: float = 1.0
    previous_run: Path | None = None
    _folder: Path | None = field(default=None, repr=False)
    _kept: dict[str, Any] = field(default_factory=dict, repr=False)
    _last_checkpoint: float = field(default_factory=time.monotonic, repr=False)
    _next_step: int | None = field(default=None, repr=False)

    @property
    def folder(self) -> Path:
        """Folder for files other than checkpoints: profiler traces, TensorBoard files, figures.

        The folder is made on first use. It is the same on every rank and in every attempt. When the
        trial has ended, in whatever state, the files are logged as artifacts of the trial's run in
        MLflow. An empty folder is removed.

        Raises:
            RuntimeError: The trial has no folder, because this object was made by a test, for
                example.
        """
        if self._folder is None:
            raise RuntimeError("this trial has no folder; only a trial of a sweep has a folder")
        self._folder.mkdir(parents=True, exist_ok=True)
        return self._folder

    def better(self, a: float | Mapping[Any, float], b: float | Mapping[Any, float] | None) -> bool:
        """Return whether the later step `a` is better than the earlier step `b`.

        NaN is never better. Any other value is better than None and NaN. If `keep_last` is True,
        the later step always counts as better.

        Args:
            a: Metrics of the step, by name. Steps that satisfy the sweep's constraints are better
                than other steps; then the trial's `goal` decides. A number is the value of the
                metric, without regard to constraints.
            b: The same for the earlier step; None if there is no earlier step.
        """
        order = StepOrder(self.metric, self.goal == "minimize", self.constraints)
        later, earlier = (
            order.key(step if isinstance(step, Mapping) else {self.metric: step})
            for step in (a, {} if b is None else b)
        )
        return self.keep_last or later < earlier

    def cached(self, name: str, build: Callable[[], Any]) -> Any:
        """Return an object that an earlier trial on this worker built from the same prepared data.

        If there is none, build the object.

        Use this method for objects that are expensive to make from a shard, such as a `DMatrix` or
        a tensor. If a trial has several ranks, each rank must call this method with the same names,
        so that all ranks keep the same objects.

        Args:
            name: Name of the object. Later trials find the object by this name.
            build: Function that takes no arguments and returns a new object.
        """
        if name not in self._kept:
            self._kept[name] = build()
        return self._kept[name]

    def report_due(self, step: int, wanted: bool = True) -> bool:
        """Return whether the loop must report a step, and give the next report this step.

        A loop that never calls this method reports every step. With this method, a loop with many
        short steps reports only some of them. It must report each step for which this method
        returns True.

        Args:
            step: Number of the step that the loop has just made; the first is 1.
            wanted: True if the loop wants to report this step: `step % 10 == 0 or step == last`.
        """
        self._next_step = step
        return wanted or self._is_required(step)

    def _is_required(self, step: int) -> bool:
        return step == self.max_t or step in self.required_steps or step in self.milestones

    def checkpoint_due(self, step: int, last: bool = False) -> bool:
        """Return whether the loop should report a checkpoint with the next report.

        Return True at the last step and at milestones. Otherwise, return True if
        `checkpoint_interval` seconds have passed since this method last returned True, or since the
        trial started.

        Args:
            step: The step that is reported next; the first is 1.
            last: True if the loop ends after this step.
        """
        now = time.monotonic()
        if not (
            last
            or step == self.max_t
            or step in self.milestones
            or now - self._last_checkpoint >= self.checkpoint_interval
        ):
            return False
        self._last_checkpoint = now
        return True

    def report_final(self, metrics: Mapping[str, float]) -> None:
        """Record metrics of the finished model, which belong to no step.

        Call this method before the last report. If the trial completes, the values that rank 0
        recorded are stored in the study, and are logged to MLflow as `final/NAME`.

        Args:
            metrics: Value of each metric. A later call adds metrics to the metrics of earlier
                calls, and replaces values of the same name.
        """
        self.final.update({str(name): float(value) for name, value in metrics.items()})

    def note_checkpoint(
        self, folder: str | Path, best_step: int, predictions: np.ndarray | None = None
    ) -> None:
        """Write down in a checkpoint's folder which model it holds.

        Call this method before the checkpoint is reported.

        Args:
            folder: The checkpoint's folder.
            best_step: The step whose model the trainer's `load` returns from this checkpoint. It
                may be earlier than the reported step.
            predictions: Predictions of the trained model for the rows of `check`, of shape (n,) or
                (n, k). None to save no predictions.
        """
        Path(folder, CHECKPOINT_NOTE).write_text(json.dumps({"best_step": best_step}))
        if predictions is not None:
            import numpy as np

            np.save(Path(folder, CHECK_PREDICTIONS), np.asarray(predictions))


_current: Current | None = None


def current() -> Current:
    """Return information about the trial to which the calling training loop belongs.

    Raises:
        RuntimeError: No training loop that sweeps started runs in this process.
    """
    if _current is None:
        raise RuntimeError(
            "sweeps.trial.current() can only be called inside the training loop of a sweep"
        )
    return _current


def take_step(latest: int) -> int:
    """Return the step of the report that the loop makes now; see `Current.report_due`.

    Args:
        latest: Step of the loop's latest report; 0 before the first report.

    Raises:
        ValueError: The step is not after the latest one, or the loop left out a required step.
    """
    if _current is None or _current._next_step is None:
        return latest + 1
    step = _current._next_step
    _current._next_step = None
    if step <= latest:
        raise ValueError(f"the loop reports step {step} after step {latest}; steps must increase")
    for between in range(latest + 1, step):
        if _current._is_required(between):
            raise ValueError(
                f"the loop reports step {step} after step {latest}, but the scheduler also needs"
                f" step {between}; report each step for which `Current.report_due` returns True"
            )
    return step


def is_running() -> bool:
    """Return whether a training loop of a sweep runs in this process."""
    return _current is not None


def set_current(value: Current | None) -> None:
    """Set the object that `current()` returns in this process.

    Workers and tests of trainers call this function.
    """
    global _current
    _current = value


def flat(params: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Flatten nested parameters to dotted names.

    A name that another one has already, such as `c.d` and `c: {d: ...}`, gets `#2`.
    """
    out: dict[str, Any] = {}
    for name, value in params.items():
        inner = flat(value, ".") if isinstance(value, dict) and value else [("", value)]
        for rest, part in inner:
            full = f"{prefix}{name}{rest}"
            while full in out:
                full += "#2"
            out[full] = part
    return list(out.items())
