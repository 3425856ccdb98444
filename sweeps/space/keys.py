"""The sections of a space file that are not tuned: their keys, types and rules.

One frozen dataclass a section says it all: pydantic reads its annotations (`checks`), and the rest of a sweep reads its fields.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StrictInt, StrictStr

_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)d)?(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?\Z")


def seconds(value: Any) -> float:
    """A duration in seconds from `90`, `90s`, `30m`, `1h30m` or `2d`.

    Raises:
        ValueError: it is none of these, or not above 0.
    """
    total = math.nan
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        total = float(value)
    elif isinstance(value, str) and value and (found := _DURATION.match(value)):
        total = sum(float(n) * unit for n, unit in zip(found.groups(), (86400, 3600, 60, 1), strict=True) if n)
    if not 0 < total < math.inf:
        raise ValueError("must be a time above 0 such as 90s, 30m, 1h30m or a number of seconds")
    return total


def _auto(value: Any) -> Any:
    if value == "auto" and isinstance(value, str):
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError("must be `auto` or an integer of at least 1")
    return value


def _fraction(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1:
        raise ValueError("must be a fraction above 0 and below 1")
    return float(value)


def _plain_scalar(value: Any) -> Any:
    if isinstance(value, (dict, list)):
        raise ValueError("must be one value of the column")
    return value


Text = Annotated[StrictStr, Field(min_length=1)]
AtLeast0 = Annotated[StrictInt, Field(ge=0)]
AtLeast1 = Annotated[StrictInt, Field(ge=1)]
AtLeast2 = Annotated[StrictInt, Field(ge=2)]
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
    """

    name: str | None
    loop: str
    backend: str
    load: str | None


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
        train: path, glob, URI, `sklearn:NAME` or `module:function`.
        label: the label's column.
        valid: always there.
        test: never seen by the search.
        task: None to infer it from the label.
        base: the folder that relative paths are resolved against; the space file's.
        drop: columns that are no features.
        args: the keyword arguments of a function in `train`.
    """

    train: str
    label: str | None
    valid: Split | None
    test: Split | None
    task: str | None
    base: Path
    drop: tuple[str, ...] = ()
    args: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Objective:
    """The reported metric that the search optimises."""

    metric: Text
    goal: Literal["minimize", "maximize"]


@dataclass(frozen=True)
class Search:
    """How configurations are sampled."""

    algorithm: Literal["tpe", "random", "grid"] = "tpe"
    seed: Annotated[StrictInt, Field(ge=0, lt=2**32)] = 0


@dataclass(frozen=True)
class Scheduler:
    """What stops a trial early; steps are reports of the loop.

    Attributes:
        name: "none" lets every trial end by itself.
        max_t: the step at which a trial ends; ASHA needs it.
        grace_period: no trial is stopped before it.
        reduction_factor: one in so many goes on from a rung.
    """

    name: Literal["none", "asha"] = "none"
    max_t: AtLeast1 | None = None
    grace_period: AtLeast1 = 1
    reduction_factor: AtLeast2 = 3


@dataclass(frozen=True)
class Limits:
    """What a sweep may spend.

    Attributes:
        max_trials: over all cells. 0 only while loading: not given.
        timeout: seconds; None for no limit.
        max_concurrent_trials: None for as many as fit.
        max_failures: retries a trial whose worker processes are lost.
        trial_timeout: seconds that one trial may train, over all attempts; None for no limit.
    """

    max_trials: AtLeast1 = 0
    timeout: Annotated[float | None, BeforeValidator(seconds)] = None
    max_concurrent_trials: Annotated[int | None, BeforeValidator(_auto)] = None
    max_failures: AtLeast0 = 2
    trial_timeout: Annotated[float | None, BeforeValidator(seconds)] = None


@dataclass(frozen=True)
class LoopKeys:
    """`trainer:` as a mapping."""

    loop: Text
    backend: Backend = "none"
    load: Text | None = None


@dataclass(frozen=True)
class DataKeys:
    """`data:` as written; `valid` and `test` are read by their form."""

    train: Text
    valid: Any
    label: Text | None = None
    test: Any = None
    task: Task | None = None
    drop: tuple[Text, ...] = ()


@dataclass(frozen=True)
class ByColumn:
    """`{column: split, value: valid}`."""

    column: Text
    value: Annotated[Any, BeforeValidator(_plain_scalar)]


@dataclass(frozen=True)
class ByTime:
    """`{time: col, last: 0.2}`."""

    time: Text
    last: Annotated[float, BeforeValidator(_fraction)]


@dataclass(frozen=True)
class ByGroup:
    """`{group: col, part: 0.2}`."""

    group: Text
    part: Annotated[float, BeforeValidator(_fraction)]


SPLIT_FORMS = "a fraction such as 0.2, a path, {column: split, value: valid}, {time: col, last: 0.2} or {group: col, part: 0.2}"
# What to say of a required key that is absent.
REQUIRED: dict[tuple[type, str], str] = {
    (DataKeys, "valid"): f"; give {SPLIT_FORMS}",
    (DataKeys, "train"): "; give a path, a glob, a URI, sklearn:NAME or module:function",
    (Objective, "goal"): "; give minimize or maximize",
    (Objective, "metric"): "; give the name of a metric that the trainer reports, such as valid-logloss",
    (LoopKeys, "loop"): "; give a reference `module:attr` to a training loop",
}
