"""The sections of a space file that are not tuned: their keys, types and rules.

One frozen dataclass a section says it all: pydantic reads its annotations (`checks`), and the rest of a sweep reads its fields.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StrictBool, StrictInt, StrictStr

from sweeps.core.trial import LOST
from sweeps.space import value_types
from sweeps.space.conditions import COMPARISONS

Text = Annotated[StrictStr, Field(min_length=1)]
AtLeast0 = Annotated[StrictInt, Field(ge=0)]
AtLeast1 = Annotated[StrictInt, Field(ge=1)]
AtLeast2 = Annotated[StrictInt, Field(ge=2)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Backend = Literal["torch", "xgboost", "lightgbm", "none"]
Task = Literal["binary", "multiclass", "regression"]


@dataclass(frozen=True)
class TrainerSpec:
    """What trains: ours by name, or a user's loop by reference.

    Attributes:
        name: of the file in `trainers/`; None for a user's.
        loop: `module:attr` of the training loop.
        backend: the process group its ranks need.
        load: `module:attr` of the function that loads a checkpoint's model; None where there is no bundle to be made.
        reuse: "auto" keeps a gang for the next trial; "never" closes it after each trial.
    """

    name: str | None
    loop: str
    backend: str
    load: str | None
    reuse: str = "auto"


@dataclass(frozen=True)
class Split:
    """Where the rows of `valid` or `test` come from.

    Attributes:
        kind: "fraction", "path", "column", "time" or "group".
        fraction: of the whole, for fraction, time (the last) and group.
        path: a path, a URI, `sklearn:NAME` or `module:function`.
        args: the keyword arguments of a function.
        column: the column to split by, for column, time and group.
        value: rows whose column has this value, for column.
    """

    kind: str
    fraction: float | None = None
    path: str | None = None
    column: str | None = None
    value: Any = None
    args: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class DataSpec:
    """The data of a sweep, as written; nothing is opened yet.

    Attributes:
        train: path, glob, URI, `sklearn:NAME` or `module:function`; "" if the space names no data, as its loop reads its own.
        label: the label's column.
        valid: always there, if there is data.
        test: never seen by the search.
        task: None to infer it from the label.
        base: the folder that relative paths are resolved against; the space file's.
        drop: columns that are no features.
        args: the keyword arguments of a function in `train`.
        rows: the part of the train split that is trained on.
        drop_missing_label: leave out the rows that have no label, in place of refusing them.
    """

    train: str
    label: str | None
    valid: Split | None
    test: Split | None
    task: str | None
    base: Path
    drop: tuple[str, ...] = ()
    args: dict[str, Any] = field(default_factory=dict)
    rows: float = 1.0
    drop_missing_label: bool = False

    @property
    def given(self) -> bool:
        """Whether the space names data."""
        return self.train != ""

    @property
    def source(self) -> str:
        """What the rows are read from: equal where `train` and its arguments are."""
        return repr((self.train, self.args))


def variant_of(spec: DataSpec, data: Mapping[str, Any]) -> DataSpec:
    """The data with some of its keys as a trial has them.

    Args:
        spec: the rest.
        data: `train` as text or as `{module:function: arguments}`, `drop` and `rows`, as far as they are tuned.
    """
    given = dict(data)
    if isinstance(call := given.get("train"), Mapping):
        given["train"], given["args"] = next(iter(call.items()))
    elif "train" in given:
        given["args"] = {}
    return replace(spec, **given)


@dataclass(frozen=True)
class Objective:
    """The metric that the search optimizes.

    Attributes:
        metric: The name of a metric that the loop reports; or a cost, which every trial has: `seconds`, `cpu_seconds`, `gpu_seconds`.
        goal: Whether a smaller or a larger value is better.
    """

    metric: Text
    goal: Literal["minimize", "maximize"]


@dataclass(frozen=True)
class Constraint:
    """What a metric of a trial must be for the trial to be feasible.

    Attributes:
        metric: its name.
        sign: "<=", "<", ">=" or ">".
        bound: what it is compared with.
    """

    metric: str
    sign: str
    bound: float

    def holds(self, value: float) -> bool:
        """Whether a value meets it; NaN never does."""
        return COMPARISONS[self.sign](value, self.bound)

    def violation(self, value: float) -> float:
        """By how much a value breaks it, as Optuna wants to know it: 0 or less where it holds, above 0 where it does not."""
        over = value - self.bound if self.sign in ("<", "<=") else self.bound - value
        if self.holds(value):
            return min(over, 0.0)
        return max(over, sys.float_info.min) if over == over else sys.float_info.max

    def __str__(self) -> str:
        return f"{self.metric} {self.sign} {self.bound:g}"


@dataclass(frozen=True)
class InitialPoint:
    """A configuration to begin with.

    Attributes:
        keys: what dimensions are, by name, as keys that a search samples (see `Dimension.value`); the others are sampled.
        values: its known results, one for each objective; None for one that is to be run.
    """

    keys: dict[str, Any]
    values: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Search:
    """How configurations are sampled.

    Attributes:
        algorithm: The sampler. `auto` chooses by the space and the limits; `sweeps plan` says what it chose.
        seed: The seed of the splits, the samples and the trials.
        options: Options of the algorithm, as a mapping.
        initial_points: Configurations to try before anything is sampled, in this order.
    """

    algorithm: Text = "auto"
    seed: Annotated[StrictInt, Field(ge=0, lt=2**32)] = 0
    options: dict[str, Any] | None = None
    initial_points: tuple[Any, ...] = ()


@dataclass(frozen=True)
class SchedulerSpec:
    """The scheduler of a sweep, as the space file names it.

    Attributes:
        name: Name of a built-in scheduler, or the reference `module:attr` of a scheduler class.
        options: Options of the scheduler; those of a built-in one are complete and checked.
    """

    name: str = "none"
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def max_t(self) -> int | None:
        """Step at which a trial ends, or None."""
        value = self.options.get("max_t")
        return value if isinstance(value, int) else None

    @property
    def population(self) -> int | None:
        """Number of trials that train side by side and exchange checkpoints, or None."""
        return self.options.get("population")


@dataclass(frozen=True)
class Repeats:
    """How often each configuration is trained, with distinct seeds.

    Attributes:
        count: The number of trainings of each configuration. `repeats: 3` is short for this key.
        aggregate: How the values of the trainings become the value of the configuration.
    """

    count: AtLeast1 = 1
    aggregate: Literal["mean", "median", "min", "max"] = "mean"


@dataclass(frozen=True)
class Limits:
    """What a sweep may spend, and what ends it.

    Attributes:
        max_trials: The number of trials over all cells, repeats not counted. The default is the number of cells if only grids are tuned, or
            the population of `pbt`; otherwise the key is required.
        timeout: The time of the whole sweep, start-up included. Running trials are then stopped, and become PRUNED.
        max_concurrent_trials: How many trials run at once. `auto` means as many as the machine holds of the smallest shape.
        max_failures: The number of retries of one trial.
        retry_on: What a trial is retried for: `lost` (a worker process was lost), and names of exception classes of the loop.
        trial_timeout: The time that one trial may train, over all its attempts. A trial that exceeds it fails.
        report_timeout: The time that a rank may train without a report. Then its trial fails.
        max_gpu_hours: The hours of GPUs that all trials together may hold. Running trials are then stopped, and become PRUNED.
        target: A value of the objective. A completed trial that reaches it ends the sweep.
        patience: Stop after this many consecutive COMPLETE and PRUNED trials without a new best COMPLETE one.
        max_failures_in_a_row: Stop after this many consecutive failed trials.
    """

    max_trials: AtLeast1 = 0
    timeout: Annotated[float | None, BeforeValidator(value_types.seconds)] = None
    max_concurrent_trials: Annotated[int | None, BeforeValidator(value_types.auto)] = None
    max_failures: AtLeast0 = 2
    retry_on: Annotated[tuple[str, ...], BeforeValidator(value_types.causes)] = (LOST,)
    trial_timeout: Annotated[float | None, BeforeValidator(value_types.seconds)] = None
    report_timeout: Annotated[float | None, BeforeValidator(value_types.seconds)] = None
    max_gpu_hours: Annotated[float | None, BeforeValidator(value_types.above_0)] = None
    target: Annotated[float | None, BeforeValidator(value_types.number)] = None
    patience: AtLeast1 | None = None
    max_failures_in_a_row: AtLeast1 | None = None


@dataclass(frozen=True)
class Checkpoints:
    """Which checkpoints are kept of trials that have ended; see `sweeps.checkpoints.retention`.

    Attributes:
        per_trial: The number of checkpoints that a trial keeps: its best, and its latest ones.
        top: The number of best trials that keep any checkpoint. The default is all.
        max_disk: The disk space of all checkpoints together, such as `500MB` or `10GB`. Those of the worst trials go first.
    """

    per_trial: AtLeast1 = 2
    top: AtLeast1 | None = None
    max_disk: Annotated[int | None, BeforeValidator(value_types.size)] = None

    @property
    def all_stay(self) -> bool:
        """Whether nothing is to be deleted."""
        return self == Checkpoints()


@dataclass(frozen=True)
class LoopKeys:
    """`trainer:` as a mapping.

    Attributes:
        loop: Your training loop, as `module:function`.
        backend: The process group that the ranks of the loop need.
        load: The function that loads a checkpoint's model, as `module:function`. Without it there is no bundle.
        reuse: `auto` keeps workers for the next trial. `never` closes them after each trial, for a framework that cannot start twice in a
            process.
    """

    loop: Text
    backend: Backend = "none"
    load: Text | None = None
    reuse: Literal["auto", "never"] = "auto"


@dataclass(frozen=True)
class DataKeys:
    """`data:` as written; `valid` and `test` are read by their form.

    Attributes:
        train: The source of the rows: a path, a glob, a folder, a URI, `sklearn:NAME`, or `module:function` for your loader.
        valid: The rows that decide the search.
        label: The column to predict. The built-in trainers need it.
        test: The rows that score the winner once. The search never sees them.
        task: What the label is. The default follows from its values: text, booleans and integers with up to 20 values are classes.
        drop: Columns that are not features, such as an id.
        rows: The share of the train rows to train on. `valid` and `test` are unchanged.
        drop_missing_label: Leave out rows without a label. By default such rows are refused.
    """

    train: Text
    valid: Any
    label: Text | None = None
    test: Any = None
    task: Task | None = None
    drop: tuple[Text, ...] = ()
    rows: Annotated[float, BeforeValidator(value_types.share)] = 1.0
    drop_missing_label: StrictBool = False


@dataclass(frozen=True)
class ByColumn:
    """`{column: split, value: valid}`."""

    column: Text
    value: Annotated[Any, BeforeValidator(value_types.plain_scalar)]


@dataclass(frozen=True)
class ByTime:
    """`{time: col, last: 0.2}`."""

    time: Text
    last: Annotated[float, BeforeValidator(value_types.fraction)]


@dataclass(frozen=True)
class ByGroup:
    """`{group: col, part: 0.2}`."""

    group: Text
    part: Annotated[float, BeforeValidator(value_types.fraction)]


SPLIT_FORMS = "a fraction such as 0.2, a path, {column: split, value: valid}, {time: col, last: 0.2} or {group: col, part: 0.2}"
# What to say of a required key that is absent.
REQUIRED: dict[tuple[type, str], str] = {
    (DataKeys, "valid"): f"; give {SPLIT_FORMS}",
    (DataKeys, "train"): "; give a path, a glob, a URI, sklearn:NAME or module:function; a loop that reads its own needs no `data`",
    (Objective, "goal"): "; give minimize or maximize",
    (Objective, "metric"): "; give the name of a metric that the trainer reports, such as valid-logloss",
    (LoopKeys, "loop"): "; give a reference `module:attr` to a training loop",
}
