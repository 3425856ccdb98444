"""The JSON objects of the events of trials in a study. They check what is read.

`event_records` writes and reads these objects.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    InstanceOf,
    Strict,
    TypeAdapter,
    ValidationError,
)

from sweeps.core.json_files import is_deep
from sweeps.core.resources import shape_of
from sweeps.core.trial import (
    Action,
    Checkpoint,
    GangSizePeriod,
    Report,
    Result,
    State,
    Trial,
    format_trial_id,
)
from sweeps.study import events
from sweeps.study.events import TrialEvent


def _shallow(value: dict[str, Any]) -> dict[str, Any]:
    if is_deep(value):
        raise ValueError("is nested too deeply")
    return value


def _name(name: str) -> str:
    if "\0" in name or "/" in name or name in ("", ".", ".."):
        raise ValueError("must name a folder")
    return name


# pydantic's `str` rejects texts that are not valid Unicode, such as some file names.
Text = InstanceOf[str]
Configuration = Annotated[dict[Text, Any], AfterValidator(_shallow)]
Numbers = dict[Text, float]
Count = Annotated[int, Field(ge=0, lt=10**12)]
Workers = Annotated[int, Field(gt=0, lt=10**9)]
Seconds = Annotated[float, Field(gt=-(10**12), lt=10**12)]
# Seconds since the epoch, before the year 9999
Time = Annotated[float, Field(ge=0, lt=253_370_764_800)]
Row = Annotated[tuple[Count, float, Numbers], Strict(False)]  # step, time, metrics
# Name, step and best step
Saved = Annotated[tuple[Annotated[Text, AfterValidator(_name)], int, int], Strict(False)]


class Model(BaseModel, strict=True):
    """A JSON object in a study. Unknown keys are ignored."""


class Elastic(Model, extra="forbid"):
    """The smallest and the largest number of workers of a trial."""

    elastic: Annotated[list[Workers], Field(min_length=2, max_length=2)]


class Scaling(Model):
    """Number of workers of a trial, and resources of each worker."""

    num_workers: Workers | Elastic
    resources_per_worker: Numbers


class _EventModel(Model):
    time: Time


class StartedModel(_EventModel):
    """The event `TrialStarted`. It contains the trial's whole configuration.

    The study can therefore be read without the space file.
    """

    event: Literal["started"]
    id: Text
    seed: int
    preprocessor: Text
    scaling: Scaling
    params: Configuration
    labels: Configuration
    keys: Configuration
    data: Configuration = {}
    bracket: int | None = None
    repeat_of: Count | None = None
    enqueued: bool = False
    given: list[float] | None = None

    def to_event(self, number: int) -> TrialEvent:
        """Return the event of a trial."""
        trial = Trial(
            number=number,
            id=format_trial_id(number),
            params=self.params,
            preprocessor=(),
            shape=shape_of(self.scaling.model_dump(), "none"),
            seed=self.seed,
            labels=self.labels,
            data=self.data,
            repeat_of=self.repeat_of,
            enqueued=self.enqueued,
            chain_text=self.preprocessor,
        )
        given = None if self.given is None else tuple(self.given)
        return events.TrialStarted(self.time, number, trial, self.keys, self.bracket, given)


class AttemptModel(_EventModel):
    """The event `AttemptStarted`."""

    event: Literal["attempt"]
    attempt: Count

    def to_event(self, number: int) -> TrialEvent:
        """Return the event of a trial."""
        return events.AttemptStarted(self.time, number, self.attempt)


class ReportedModel(_EventModel):
    """The event `TrialReported`."""

    event: Literal["reported"]
    reports: list[Row]
    checkpoint: Saved | None = None
    best: Saved | None = None
    seconds: Seconds
    worker_seconds: Seconds

    def to_event(self, number: int) -> TrialEvent:
        """Return the event of a trial."""
        return events.TrialReported(
            self.time,
            number,
            _reports(self.reports),
            self.checkpoint and Checkpoint(*self.checkpoint),
            self.best and Checkpoint(*self.best),
            self.seconds,
            self.worker_seconds,
        )


class ResizedModel(_EventModel):
    """The event `TrialResized`."""

    event: Literal["resized"]
    step: Count
    workers: Workers
    reported: Count

    def to_event(self, number: int) -> TrialEvent:
        """Return the event of a trial."""
        size = GangSizePeriod(self.step, self.workers, self.reported, self.time)
        return events.TrialResized(self.time, number, size)


class PerturbationModel(Model):
    """A perturbation in the event `TrialDecided`."""

    donor: Text
    donor_step: Count
    keys: Configuration
    params: Configuration
    labels: Configuration
    checkpoint: Saved
    reports: list[Row]


class DecidedModel(_EventModel):
    """The event `TrialDecided`."""

    event: Literal["decided"]
    rung: Count
    perturbation: PerturbationModel | None = None

    def to_event(self, number: int) -> TrialEvent:
        """Return the event of a trial."""
        if (change := self.perturbation) is None:
            return events.TrialDecided(self.time, number, self.rung)
        perturbation = events.Perturbation(
            step=self.rung,
            donor=change.donor,
            donor_step=change.donor_step,
            keys=change.keys,
            params=change.params,
            labels=change.labels,
            time=self.time,
            checkpoint=Checkpoint(*change.checkpoint),
            reports=_reports(change.reports),
        )
        return events.TrialDecided(self.time, number, self.rung, Action.EXPLOIT, perturbation)


class PausedModel(_EventModel):
    """The event `TrialPaused`."""

    event: Literal["paused"]
    step: Count

    def to_event(self, number: int) -> TrialEvent:
        """Return the event of a trial."""
        return events.TrialPaused(self.time, number, self.step)


class EndedModel(_EventModel):
    """The event `TrialEnded`."""

    event: Literal["ended"]
    state: Literal["COMPLETE", "PRUNED", "FAIL"]
    error: Text | None = None
    reason: Text | None = None
    final: Numbers = {}

    def to_event(self, number: int) -> TrialEvent:
        """Return the event of a trial."""
        result = Result(State(self.state), error=self.error, reason=self.reason, final=self.final)
        return events.TrialEnded(self.time, number, result)


EventModel = Annotated[
    StartedModel
    | AttemptModel
    | ReportedModel
    | ResizedModel
    | DecidedModel
    | PausedModel
    | EndedModel,
    Field(discriminator="event"),
]


class Batch(Model):
    """A batch of events: an attribute `events.N` of a trial.

    Attributes:
        at: Wall time of the sweep in seconds, summed over all its drivers.
        events: The events.
    """

    at: Seconds
    events: Annotated[list[EventModel], Field(min_length=1)]


BATCH: TypeAdapter[Batch] = TypeAdapter(Batch)


def _reports(rows: Iterable[tuple[int, float, dict[str, float]]]) -> tuple[Report, ...]:
    return tuple(Report(step, metrics, time) for step, time, metrics in rows)


def describe_error(error: ValidationError) -> str:
    """Return the first problem that pydantic found in a record, as text for a message."""
    first = error.errors(include_url=False, include_context=False)[0]
    place, text = ".".join(map(str, first["loc"][1:])), first["msg"].removeprefix("Value error, ")
    return (
        f"is a record with a wrong `{place}`: {text}" if place else f"is not a valid record: {text}"
    )
