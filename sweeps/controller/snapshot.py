"""How a sweep stands at a moment, for whoever shows it. Plain data, made by the conductor a few times a second."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from sweeps.controller.eta import Left
from sweeps.core.resources import Shape

if TYPE_CHECKING:
    from sweeps.core.trial import Trial
    from sweeps.space import Space

# A configuration in short: names and values as they are shown.
Pairs = tuple[tuple[str, str], ...]


class Best(NamedTuple):
    """The best value so far: the trial's id, the value, the step that had it, and the trial's configuration."""

    trial: str
    value: float
    step: int
    configuration: Pairs = ()


@dataclass(frozen=True)
class Row:
    """A running trial.

    Attributes:
        trial: its id.
        stage: what it is at, in words, such as "waiting for workers"; "training" from its first report on.
        step: reports so far; 0 before the first.
        max_t: the step at which it will be ended; None for no bound.
        value, best: the objective in its latest report, and the best of them; None before the first.
        shape: the workers it runs on.
        seconds: since it was begun.
        attempt: above 1 if workers were lost under it.
        configuration: its values of all that is tuned, but for the workers.
        silent: which ranks have not reported for long, and where they stand; "" if none.
    """

    trial: str
    stage: str
    step: int
    max_t: int | None
    value: float | None
    best: float | None
    shape: Shape
    seconds: float
    attempt: int = 1
    configuration: Pairs = ()
    silent: str = ""


@dataclass(frozen=True)
class Use:
    """How much there is of a resource, how much of it works, and how much is held by workers that are kept warm for the next trial."""

    name: str
    total: float
    busy: float = 0.0
    warm: float = 0.0


@dataclass(frozen=True)
class Snapshot:
    """How a sweep stands.

    Attributes:
        name: the sweep's folder's name.
        metric, goal: the objective.
        states: trials by state: COMPLETE, PRUNED, FAIL, RUNNING.
        total: trials that there will be, as far as it is known; see `sweeps.study.repeats.total`.
        best: None before the first value, and with several objectives.
        front: with several objectives the trials that no other dominates.
        failure: the trial that failed last, and its error in a line.
        rows: the running trials, by number.
        use: the resources that the sweep asks for, and CPU and GPU; empty until the pool has told.
        fits: preprocessors fitted so far.
        seconds: since the sweep began.
        left: the time it will still take; None as long as nobody can tell.
        stage: what is going on other than trials, such as "exporting the winner".
        reason: why it is ending early; None if it is not.
    """

    states: Counter = field(default_factory=Counter)
    total: int = 0
    best: Best | None = None
    seconds: float = 0.0
    left: Left | None = None
    reason: str | None = None
    name: str = ""
    metric: str = "objective"
    goal: str = "minimize"
    failure: tuple[str, str] | None = None
    rows: tuple[Row, ...] = ()
    use: tuple[Use, ...] = ()
    front: int = 0
    fits: int = 0
    stage: str | None = None

    @property
    def ended(self) -> int:
        """Trials that have ended."""
        return self.states["COMPLETE"] + self.states["PRUNED"] + self.states["FAIL"]


def opening(space: Space, total: int, name: str, began: float, stage: str) -> Snapshot:
    """A sweep that has not begun its first trial yet.

    Args:
        space: what it will search.
        total: trials that there will be.
        name: its folder's.
        began: when it did, seconds since the epoch.
        stage: what is going on, such as "reading the data".
    """
    objective, seconds = space.objective, time.time() - began
    return Snapshot(total=total, seconds=seconds, name=name, metric=objective.metric, goal=objective.goal, stage=stage)


def workers(shape: Shape) -> str:
    """A shape in the fewest words: `2 × 1 CPU`."""
    each = ", ".join(f"{amount:g} {name}" for name, amount in shape.per_worker)
    return f"{shape.workers} × {each}" if each else str(shape.workers)


def configuration(trial: Trial) -> Pairs:
    """What a trial was given of all that is tuned, but for its workers; and its preprocessor, if there is one."""
    pairs = [("preprocessor", trial.chain)] if trial.preprocessor or "preprocessor" in trial.labels else []
    for name, value in trial.labels.items():
        section, _, rest = name.partition(".")
        if section not in ("preprocessor", "scaling"):
            pairs.append((rest if section == "params" and rest else name, _say(value)))
    return tuple(pairs)


def _say(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
