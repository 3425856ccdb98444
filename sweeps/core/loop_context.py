"""The context of a training loop: information about its trial, from the function `current()`.

This module is public as `sweeps.trial`. An ordinary Ray Train loop works without it. A loop calls
`current()` if it needs the name of the label column, the task or the seed. With `Current.cached`, a
loop reuses an object that an earlier trial on the same worker has built.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .best_step import Constraint, StepOrder

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
        predictions: The predictions that the loop has passed to `report_predictions`.
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
    predictions: np.ndarray | None = None
    _folder: Path | None = field(default=None, repr=False)
    _cached_objects: dict[str, Any] = field(default_factory=dict, repr=False)
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
        later = a if isinstance(a, Mapping) else {self.metric: a}
        if b is None:
            b = math.nan
        earlier = b if isinstance(b, Mapping) else {self.metric: b}
        return self.keep_last or order.key(later) < order.key(earlier)

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
        if name not in self._cached_objects:
            self._cached_objects[name] = build()
        return self._cached_objects[name]

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
        is_last = last or step == self.max_t
        has_waited = now - self._last_checkpoint >= self.checkpoint_interval
        is_due = is_last or step in self.milestones or has_waited
        if is_due:
            self._last_checkpoint = now
        return is_due

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


def report_predictions(predictions: Any) -> None:
    """Report what the trial's best model predicts for the rows of valid.

    This is optional. Averages of models are chosen with these predictions. Call this function
    before the report whose checkpoint holds the model. A later call replaces the predictions. Only
    those of rank 0 count. The built-in trainers need no such call.

    Args:
        predictions: One prediction for each row of the shard `valid`, in its order. For classes,
            the probabilities of all classes, shape (n, k), or that of the second class, shape (n,).
            For a regression, numbers, shape (n,). For several label columns, shape (n, columns).

    Raises:
        RuntimeError: No training loop that sweeps started runs in this process.
        TypeError: The predictions are no array of numbers with one or two dimensions.
    """
    import numpy as np

    array = np.asarray(predictions)
    if array.dtype.kind not in "biuf" or array.ndim not in (1, 2):
        raise TypeError(
            "`report_predictions` takes an array of numbers with the shape (n,) or (n, k), one row "
            f"for each row of valid, but got shape {array.shape} of {array.dtype}"
        )
    current().predictions = array


def take_step(latest: int) -> int:
    """Return the step of the report that the loop makes now.

    This is the step that the loop has passed to `Current.report_due`, or else the next step.

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
