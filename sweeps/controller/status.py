"""Status of a sweep at one moment, for the live view.

The controller publishes a new status a few times a second.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from sweeps.core.resources import Shape, number_text
from sweeps.core.text.durations import format_clock
from sweeps.core.trial import Trial, shorten_chain

from .eta import TimeLeft

STOPPING_GENTLY = "stopping: finished trials are kept and the best one is exported"
# The word for each state of trials in the live view.
STATE_WORDS = {
    "RUNNING": "running",
    "WAITING": "waiting",
    "PAUSED": "paused",
    "COMPLETE": "completed",
    "PRUNED": "pruned",
    "FAIL": "failed",
}
# A short form of a configuration for display: (name, value) pairs.
Pairs = tuple[tuple[str, str], ...]


class BestTrial(NamedTuple):
    """The best value so far: its trial's id and configuration, and the step that reported it."""

    trial: str
    value: float
    step: int
    configuration: Pairs = ()


@dataclass(frozen=True)
class TrialRow:
    """A running trial.

    Attributes:
        trial: The trial's id.
        stage: Current stage of the trial, such as "waiting for workers". From the first report on,
            the stage is "training".
        step: Number of the trial's reports so far.
        max_t: Step at which the scheduler ends the trial; None if there is no such step.
        value: Objective in the latest report; None before the first report.
        best: Best objective among all reports of the trial; None before the first report.
        shape: Number of the trial's workers, and their resources.
        seconds: Seconds since the trial started.
        attempt: Number of the current attempt: 1, 2, ... A new attempt starts, for example, after
            the trial has lost its workers.
        configuration: Names and values of the trial's dimensions, for display; see
            `short_configuration`.
        notice: Text that explains why the trial does not train. It names the resources that the
            cluster lacks. Or it names the ranks that have not reported for a long time, each with
            the line of code that it executes. "" if there is nothing to explain.
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
    notice: str = ""


@dataclass(frozen=True)
class ResourceUse:
    """Use of one resource, such as CPU.

    Attributes:
        name: Ray's name of the resource, such as `CPU`.
        total: Amount that the cluster has.
        busy: Amount that running trials and the fitting of preprocessors use.
        warm: Amount that idle workers hold for the next trial.
    """

    name: str
    total: float
    busy: float = 0.0
    warm: float = 0.0


@dataclass(frozen=True)
class SweepStatus:
    """Status of a sweep at one moment.

    Attributes:
        name: Name of the sweep's folder.
        metric: Metric of the first objective.
        goal: Goal of the first objective: "minimize" or "maximize".
        states: Number of trials by state: COMPLETE, PRUNED, FAIL, RUNNING, PAUSED.
        total: Expected number of trials in the whole sweep. It may change while the sweep runs; see
            `sweeps.study.repeats.known_total`.
        best: The best trial. None before the first value, and always None with several objectives.
        front: Number of trials on the Pareto front; 0 with a single objective.
        failure: Id of the trial that failed last, and the last line of its error. None if no trial
            has failed.
        rows: The running trials, ordered by number.
        use: Use of CPU, GPU and every resource that the sweep requests; empty until the pool has
            reported.
        fits: Number of preprocessing chains fitted so far.
        seconds: Seconds since the sweep started.
        left: Estimated time left; None while it is unknown.
        stage: Current phase of the sweep while no trials run, such as "exporting the winner"; else
            None.
        reason: Reason why the sweep is ending early; None if it is not ending early.
        paused: True if `sweeps pause` keeps new trials from starting.
        messages: Lines to print once above the live view: what the data is, and warnings about it.
    """

    states: Counter[str] = field(default_factory=Counter)
    total: int = 0
    best: BestTrial | None = None
    seconds: float = 0.0
    left: TimeLeft | None = None
    reason: str | None = None
    name: str = ""
    metric: str = "objective"
    goal: str = "minimize"
    failure: tuple[str, str] | None = None
    rows: tuple[TrialRow, ...] = ()
    use: tuple[ResourceUse, ...] = ()
    front: int = 0
    fits: int = 0
    stage: str | None = None
    paused: bool = False
    messages: tuple[str, ...] = ()

    @property
    def ended(self) -> int:
        """Number of trials that have ended."""
        return self.states["COMPLETE"] + self.states["PRUNED"] + self.states["FAIL"]

    @property
    def counts(self) -> dict[str, int]:
        """Number of trials by state, for display.

        Trials that wait for workers are WAITING, not RUNNING.
        """
        waiting = sum(row.stage.startswith("waiting") for row in self.rows)
        numbers = {state: self.states[state] for state in STATE_WORDS}
        numbers["RUNNING"] -= waiting
        numbers["WAITING"] = waiting
        # These two states are shown only if trials have them.
        rare = ("WAITING", "PAUSED")
        return {state: n for state, n in numbers.items() if n or state not in rare}


def status_line(s: SweepStatus) -> str:
    """Format a status as one line: number of trials by state, best value, and time left."""
    parts = [f"{s.ended}/{s.total} trials"]
    if s.paused:
        parts.append("paused")
    parts += [
        f"{number} {STATE_WORDS[state]}"
        for state, number in s.counts.items()
        if state != "COMPLETE" and (number or state in ("RUNNING", "PRUNED"))
    ]
    if s.best:
        parts.append(f"best {s.best.value:.6g} (trial {s.best.trial})")
    if s.reason:
        parts.append(f"ending early: {s.reason}")
    if s.front:
        parts.append(f"{s.front} on the Pareto front")
    clock = format_clock(s.seconds)
    if s.stage:
        parts.append(s.stage)
    elif s.left:
        bound = "at most" if s.left.at_most else "about"
        clock += f", {bound} {format_clock(s.left.seconds)} left"
    parts.append(clock)
    return " · ".join(parts)


def shape_text(shape: Shape) -> str:
    """Return a short text for a shape, such as `2 × 1 CPU` for two workers with 1 CPU each."""
    per_worker = ", ".join(f"{amount:g} {name}" for name, amount in shape.per_worker)
    number = number_text(shape.scaling["num_workers"])
    return f"{number} × {per_worker}" if per_worker else number


def short_configuration(trial: Trial) -> Pairs:
    """Return (name, value) pairs for the trial's preprocessor and for each other dimension.

    The section `scaling` is left out.
    """
    pairs = []
    if trial.preprocessor or "preprocessor" in trial.labels:
        pairs.append(("preprocessor", shorten_chain(trial.chain)))
    for name, value in trial.labels.items():
        if name.partition(".")[0] not in ("preprocessor", "scaling"):
            pairs.append((name.removeprefix("params."), value_text(value)))
    return tuple(pairs)


def value_text(value: object) -> str:
    """Return a short text for the value of a dimension."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
