"""The state of a trial, `TrialState`. It is computed from the trial's events.

Pure functions, no I/O. Everything that asks what is known of a trial reads a `TrialState`.
"""

from __future__ import annotations

import bisect
import datetime
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from sweeps.core.best_step import UNKNOWN
from sweeps.core.resources import costs
from sweeps.core.result import to_json_value
from sweeps.core.trial import (
    Checkpoint,
    GangSizePeriod,
    Report,
    Result,
    State,
    Trial,
    format_trial_id,
)

from .events import AttemptFailed, FailureCounts, Perturbation, RankPlace, TrialStarted
from .log import Log
from .objectives import Objectives


@dataclass(frozen=True)
class TrialState:
    """State of a trial: all facts that its events contain, and what follows from them.

    Attributes:
        trial: The trial, with its current parameters. If the state was read from a study without
            the space file, the trial has no preprocessing steps; see `TrialStarted`.
        keys: Current key of each active dimension, by the dimension's name; see
            `sweeps.space.Dimension.value`.
        started: The start of the trial, with the parameters before any perturbation.
        objectives: Objectives and constraints of the sweep.
        own_reports: The reports that the trial itself made.
        reports: The reports of the trial's model. These are the trial's own reports; after a
            perturbation, the reports of the donor and the trial's own reports since then.
        compared: (step, value) pairs that schedulers compare, one for each of `own_reports`.
            Without constraints, it is the value of the leading metric. With constraints, it is the
            best value so far among the steps that satisfy them; before the first such step, it is
            the step's value.
        checkpoint, best, seconds, worker_seconds: See `TrialReported`.
        attempt: Number of the latest attempt; 0 before the first one.
        places: Place of each rank in the latest attempt.
        failed_attempts: The attempts after which the trial was tried again.
        failures: Numbers of failed attempts.
        sizes: All numbers of workers that an elastic trial has had; () for other trials.
        lineage: Perturbations of the trial, in the order in which they happened. The attributes
            `trial` and `keys` have the values after the last one.
        decided_rung: Last rung at which the scheduler let the trial continue, with or without a
            perturbation; 0 before the first such rung.
        paused_at: Rung at which the trial is paused; None if it is not paused.
        state: State of the trial; RUNNING if the trial is running, is paused or was interrupted.
        error, reason, final: See `sweeps.core.trial.Result`.
        ended_at: End of the trial, in seconds since the epoch; None if it has not ended.
        at: Wall time of the sweep at the trial's last event, in seconds, summed over all drivers.
        batches: Number of batches of events that the study has of the trial.
        best_key: Key of the best step so far; see `StepOrder.key`.
        best_place: Index in `reports` of the best step so far; None before the first value.
        metrics: The latest value of each metric.
    """

    trial: Trial
    keys: Mapping[str, Any]
    started: TrialStarted
    objectives: Objectives
    own_reports: Log[Report] = field(default_factory=Log)
    reports: Log[Report] = field(default_factory=Log)
    compared: Log[tuple[int, float]] = field(default_factory=Log)
    checkpoint: Checkpoint | None = None
    best: Checkpoint | None = None
    attempt: int = 0
    places: tuple[RankPlace, ...] = ()
    failed_attempts: tuple[AttemptFailed, ...] = ()
    failures: FailureCounts = field(default_factory=FailureCounts)
    seconds: float = 0.0
    worker_seconds: float = 0.0
    sizes: tuple[GangSizePeriod, ...] = ()
    lineage: tuple[Perturbation, ...] = ()
    decided_rung: int = 0
    paused_at: int | None = None
    state: State = State.RUNNING
    error: str | None = None
    reason: str | None = None
    final: Mapping[str, float] = field(default_factory=dict)
    ended_at: float | None = None
    at: float = 0.0
    batches: int = 0
    best_key: tuple[int, float] = UNKNOWN
    best_place: int | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)

    def changed(self, **fields: Any) -> TrialState:
        """Return a state with other values of some fields.

        `dataclasses.replace` takes twenty times as long, and a study may have millions of events.
        """
        state = object.__new__(TrialState)
        values = state.__dict__
        values.update(self.__dict__)
        for name in ("curve", "other_curves", "result"):  # These were computed from other values.
            values.pop(name, None)
        values.update(fields)
        return state

    @property
    def number(self) -> int:
        """The trial's number."""
        return self.trial.number

    @property
    def id(self) -> str:
        """The trial's id, such as `0007`."""
        return self.trial.id

    @property
    def params(self) -> dict[str, Any]:
        """Current parameters of the training loop."""
        return self.trial.params

    @property
    def labels(self) -> dict[str, Any]:
        """Short value of each active dimension, by the dimension's name."""
        return self.trial.labels

    @property
    def steps(self) -> int:
        """Step of the last report; 0 before the first report."""
        return self.reports[-1].step if self.reports else 0

    @property
    def best_step(self) -> int | None:
        """The best step so far; None before the first value."""
        return None if self.best_place is None else self.reports[self.best_place].step

    @property
    def best_value(self) -> float | None:
        """Value of the leading metric at the best step so far; None before the first value."""
        if self.best_place is None or self.objectives.metric is None:
            return None
        return self.reports[self.best_place].metrics[self.objectives.metric]

    @property
    def is_elastic(self) -> bool:
        """True if the number of workers may change while the trial runs."""
        return self.trial.shape.most is not None

    @property
    def has_ended(self) -> bool:
        """True if the trial has ended. A paused or interrupted trial has not."""
        return self.state is not State.RUNNING

    @property
    def began(self) -> datetime.datetime:
        """Start of the trial in local time."""
        return datetime.datetime.fromtimestamp(self.started.time)

    @property
    def end_time(self) -> datetime.datetime | None:
        """End of the trial in local time; None if it has not ended."""
        return None if self.ended_at is None else datetime.datetime.fromtimestamp(self.ended_at)

    def curve_of(self, metric: str | None) -> tuple[tuple[int, float], ...]:
        """Return the (step, value) pairs of a metric.

        Without a metric, the value of each step is NaN.
        """
        if metric is None:
            return tuple((report.step, float("nan")) for report in self.reports)
        return tuple(
            (report.step, report.metrics[metric])
            for report in self.reports
            if metric in report.metrics
        )

    @cached_property
    def curve(self) -> tuple[tuple[int, float], ...]:
        """(step, value) pairs of the leading metric (see `Objectives.metric`)."""
        return self.curve_of(self.objectives.metric)

    @cached_property
    def other_curves(self) -> dict[str, tuple[tuple[int, float], ...]]:
        """(step, value) pairs of the other metrics in objectives and constraints, by metric.

        A metric without reports is left out.
        """
        curves = {name: self.curve_of(name) for name in self.objectives.reported_metrics[1:]}
        return {name: curve for name, curve in curves.items() if curve}

    def key_at(self, step: int) -> tuple[int, float]:
        """Return the key of a step, by which steps are compared; see `StepOrder.key`."""
        reports = self.reports
        place = bisect.bisect_left(reports, step, key=lambda report: report.step)
        if place == len(reports) or reports[place].step != step:
            return UNKNOWN
        # A metric that this report lacks has its latest value in an earlier report.
        metrics: dict[str, float] = {}
        missing = set(self.objectives.reported_metrics)
        while missing and place >= 0:
            reported = reports[place].metrics
            for name in missing & reported.keys():
                metrics[name] = reported[name]
            missing -= reported.keys()
            place -= 1
        return self.objectives.order.key(metrics)

    @property
    def costs(self) -> dict[str, float]:
        """Costs of the trial so far, by the names in `sweeps.core.resources.COSTS`."""
        return costs(self.seconds, self.worker_seconds, dict(self.trial.shape.per_worker))

    @cached_property
    def result(self) -> Result:
        """Result of the trial. Its state is RUNNING for a trial that has not ended."""
        if (given := self.started.given) is not None:
            value = given[0] if given else None
            return Result(State.COMPLETE, value, values=given, given=True)
        score = self.objectives.score(
            self.state, self.steps, self.curve, self.other_curves, self.costs, self.final
        )
        return Result(
            state=self.state,
            value=score.values[0],
            best_step=score.step,
            steps=self.steps,
            checkpoint=self.best,
            error=self.error,
            seconds=self.seconds,
            values=score.values,
            metrics=score.metrics,
            feasible=score.feasible,
            final=dict(self.final),
            reason=self.reason,
            paused=self.state is State.RUNNING and self.paused_at is not None,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object that `sweeps show --json` prints for the trial."""
        trial = self.trial
        result = self.result
        facts: dict[str, Any] = {
            "trial": trial.id,
            "state": result.state.name,
            "value": result.value,
            "best_step": result.best_step,
            "steps": result.steps,
            "metrics": result.metrics,
            "values": result.values,
            "feasible": result.feasible,
            "given": result.given,
            "seconds": result.seconds,
            "preprocessor": trial.chain,
            "scaling": trial.shape.scaling,
            "params": trial.params,
            "seed": trial.seed,
            "attempts": self.attempt,
            "curve": self.curve,
            "reason": self.reason,
            "error": self.error,
            "began": self.began.isoformat(timespec="seconds"),
            "ended": self.end_time and self.end_time.isoformat(timespec="seconds"),
        }
        optional = {  # left out if they are empty
            "final": result.final,
            "repeats": None if trial.repeat_of is None else format_trial_id(trial.repeat_of),
            "enqueued": trial.enqueued,
            "trainer": trial.trainer,
            "data": trial.data,
            "failed_attempts": [attempt.error for attempt in self.failed_attempts],
            "places": [asdict(place) for place in self.places],
            "sizes": [asdict(size) for size in self.sizes],
            "lineage": [
                {"step": p.step, "donor": p.donor, "from": p.donor_step, "params": p.params}
                for p in self.lineage
            ],
        }
        facts |= {name: value for name, value in optional.items() if value}
        if self.started.bracket is not None:
            facts["bracket"] = self.started.bracket
        content: dict[str, Any] = to_json_value(facts)
        return content


def lineage_text(lineage: Iterable[Perturbation]) -> str:
    """Return the perturbations of a trial as text.

    Examples are "0003 at 20, 0007 at 40" (donor and step).
    """
    return ", ".join(map(str, lineage))
