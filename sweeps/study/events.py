"""The events of a sweep. The events of its trials are the record.

`sweeps.study.states` computes what is known of a trial from its events. `StudyStore` records them,
and the controller passes them to the trackers.

A driver is a process that runs or resumes a sweep.

Events are frozen and can be pickled. An event contains all data that a tracker needs. Later
versions may add event types, so a tracker ignores the types that it does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator

from sweeps.core.json_values import (
    Configuration,
    Count,
    Integer,
    Number,
    Seconds,
    Text,
    Time,
    is_number,
)
from sweeps.core.trial import (
    Action,
    Checkpoint,
    GangSizePeriod,
    Report,
    Result,
    Trial,
    format_trial_id,
)

if TYPE_CHECKING:
    from sweeps.core.result import SweepResult
    from sweeps.space import Space


@dataclass(frozen=True)
class Event:
    """Something that happened in a sweep.

    Attributes:
        time: Time of the event, in seconds since the epoch.
    """

    time: Time


# Events of trials, which the study records


@dataclass(frozen=True)
class TrialEvent(Event):
    """Something that happened to a trial.

    Attributes:
        number: The trial's number in the sweep: 0, 1, ...
    """

    number: Count

    @property
    def trial_id(self) -> str:
        """The trial's id, such as `0007`."""
        return format_trial_id(self.number)


@dataclass(frozen=True)
class Perturbation:
    """One perturbation of PBT.

    The trial received a copy of a donor's checkpoint, and a perturbation of the donor's parameters.

    Attributes:
        step: Step at which the trial was perturbed.
        donor: Id of the trial whose checkpoint was copied.
        donor_step: Step of the donor's checkpoint. The trial continues from this step.
        keys: New key of each active dimension, by the dimension's name; see
            `sweeps.space.Dimension.value`.
        params, labels: The trial's new parameters and labels; see `sweeps.core.trial.Trial`.
        time: Time of the perturbation, in seconds since the epoch.
        checkpoint: The copy of the donor's checkpoint.
        reports: The donor's reports up to the step of the checkpoint. They replace the trial's own
            reports, because the trial's model is a copy of the donor's model.
    """

    step: Count
    donor: Text
    donor_step: Count
    keys: Configuration
    params: Configuration
    labels: Configuration
    time: Time
    checkpoint: Checkpoint
    reports: tuple[Report, ...] = ()

    @property
    def metrics(self) -> dict[str, float]:
        """The new values of the numeric parameters, as metrics for a tracker.

        The metric's name is `pbt.params.NAME`.
        """
        return {
            f"pbt.{name}": float(value)
            for name, value in self.labels.items()
            if name.startswith("params.") and is_number(value)
        }

    @property
    def options(self) -> dict[str, Any]:
        """The new values of the parameters that are not numbers, by name.

        An example is `booster` for the dimension `params.booster`.
        """
        return {
            k.removeprefix("params."): v
            for k, v in self.labels.items()
            if k.startswith("params.") and f"pbt.{k}" not in self.metrics
        }

    def __str__(self) -> str:
        options = ", ".join(f"{name} {value}" for name, value in self.options.items())
        return f"{self.donor} at {self.step}" + (f" ({options})" if options else "")


def _without_steps(trial: Any) -> Any:
    """Return the JSON object of a trial without preprocessing steps; see `TrialStarted.trial`."""
    return {**trial, "preprocessor": ()} if isinstance(trial, dict) else trial


@dataclass(frozen=True)
class TrialStarted(TrialEvent):
    """A trial starts, or an interrupted trial continues. Only the start is recorded.

    Attributes:
        trial: The trial with the parameters that it started with. In an event that was read from
            the study, the trial has no preprocessing steps; its `chain` describes the steps.
        keys: Key of each active dimension, by the dimension's name; see
            `sweeps.space.Dimension.value`.
        bracket: Number of the trial's bracket; None if the scheduler has a single bracket.
        given: Values of the objectives if the trial is an initial point with a known result, which
            is never run; else None.
    """

    trial: Annotated[Trial, BeforeValidator(_without_steps)]
    keys: Configuration = field(default_factory=dict)
    bracket: Integer | None = None
    given: tuple[Number, ...] | None = None


@dataclass(frozen=True)
class RankPlace:
    """Place of one rank of a gang.

    Attributes:
        node: Address of the node.
        gpus: Ids of the GPUs that Ray assigned to the rank.
    """

    node: Text
    gpus: tuple[Text, ...] = ()


@dataclass(frozen=True)
class AttemptStarted(TrialEvent):
    """A gang of workers started to run the training loop, for the first time or again.

    Attributes:
        attempt: Number of the attempt: 1, 2, ...
        places: Place of each rank, in the order of the ranks.
    """

    attempt: Count
    places: tuple[RankPlace, ...] = ()


@dataclass(frozen=True)
class FailureCounts:
    """Failed attempts of a trial.

    Attributes:
        failures: Number of failed attempts that count towards `limits.max_failures`.
        blameless: Number of attempts that failed for a cause outside the trial, counted since the
            trial's latest report.
    """

    failures: Count = 0
    blameless: Count = 0

    @property
    def any(self) -> bool:
        """True if an attempt has failed."""
        return self.failures > 0 or self.blameless > 0


@dataclass(frozen=True)
class AttemptFailed(TrialEvent):
    """An attempt failed, and the trial is tried again.

    Attributes:
        error: Reason why the attempt ended, in one line.
        counts: The failed attempts so far.
    """

    error: Text
    counts: FailureCounts


@dataclass(frozen=True)
class TrialReported(TrialEvent):
    """A trial reported metrics or stored a checkpoint.

    Attributes:
        reports: The new reports in the order of their steps.
        checkpoint: Latest complete checkpoint; None if there is none yet.
        best: Checkpoint with the best model; None without checkpoints.
        seconds: Wall time in seconds that the trial has spent on gangs of workers, summed over all
            attempts.
        worker_seconds: Seconds that workers have spent on the trial, summed over all workers and
            attempts: ten seconds on two workers are 20.
    """

    reports: tuple[Report, ...]
    checkpoint: Checkpoint | None = None
    best: Checkpoint | None = None
    seconds: Seconds = 0.0
    worker_seconds: Seconds = 0.0


def merge_reports(events: Iterable[TrialEvent]) -> tuple[TrialEvent, ...]:
    """Merge successive events `TrialReported` of a trial into one. Other events stay the same."""
    merged: list[TrialEvent] = []
    for event in events:
        last = merged[-1] if merged else None
        if isinstance(event, TrialReported) and isinstance(last, TrialReported):
            merged[-1] = replace(
                event,
                reports=last.reports + event.reports,
                checkpoint=event.checkpoint or last.checkpoint,
                best=event.best or last.best,
            )
        else:
            merged.append(event)
    return tuple(merged)


@dataclass(frozen=True)
class TrialResized(TrialEvent):
    """The gang of an elastic trial has another size, or its first size.

    Attributes:
        size: The new number of workers, and the step from which they continue.
    """

    size: GangSizePeriod


@dataclass(frozen=True)
class TrialDecided(TrialEvent):
    """The scheduler let a trial continue at a rung, with or without a perturbation.

    If the scheduler stops a trial, the trial has `TrialEnded`; if it pauses one, `TrialPaused`.

    Attributes:
        rung: The rung.
        perturbation: The perturbation for EXPLOIT; None for CONTINUE.
        lineage: All perturbations of the trial so far; see `sweeps.core.trial.Trial`.
    """

    rung: Count
    perturbation: Perturbation | None = None
    lineage: Text = ""

    @property
    def action(self) -> Action:
        """CONTINUE or EXPLOIT."""
        return Action.CONTINUE if self.perturbation is None else Action.EXPLOIT


@dataclass(frozen=True)
class TrialPaused(TrialEvent):
    """A scheduler paused a trial, which may continue later.

    Attributes:
        step: The rung at which the trial is paused.
    """

    step: Count


@dataclass(frozen=True)
class TrialEnded(TrialEvent):
    """A trial ended, or was interrupted together with its sweep.

    Attributes:
        result: Result of the trial. The state RUNNING means that the trial was interrupted and can
            be resumed. In an event that was read from the study, the result has only the state,
            `error`, `reason` and `final`.
    """

    result: Result


# Other events


# A function that takes the numbers of the trials to skip. It yields the events of all other trials
# that earlier drivers started.
History = Callable[[Container[int]], Iterator[TrialEvent]]


@dataclass(frozen=True)
class SweepStarted(Event):
    """A driver starts or resumes a sweep. This is the first event of every driver.

    Attributes:
        space: The validated content of the space file.
        folder: The sweep's folder. Its name is the sweep's name.
        fingerprint: Hash of the data.
        git_commit: Git commit of the folder that holds the space file; None if unknown.
        git_dirty: `yes` if the git repository had uncommitted changes or untracked files, else
            `no`; None if unknown.
        history: For a resumed sweep, a function that takes the numbers of the trials to skip. It
            yields the events of all other trials that earlier drivers started. A tracker calls this
            function to recover events that an earlier driver lost. None for a new sweep.
    """

    space: Space
    folder: Path
    fingerprint: str
    git_commit: str | None = None
    git_dirty: str | None = None
    history: History | None = field(default=None, repr=False)

    @property
    def sweep(self) -> str:
        """The sweep's name, such as `quickstart-20261124-101500`."""
        return self.folder.name


@dataclass(frozen=True)
class ArtifactSaved(Event):
    """The driver wrote a text file about the whole sweep, such as `result.json` or `report.md`.

    Attributes:
        name: The file's name.
        text: The file's content.
    """

    name: str
    text: str


@dataclass(frozen=True)
class SweepEnded(Event):
    """A driver ends: the sweep is complete, was interrupted, or failed.

    This is the last event of every driver.

    Attributes:
        result: The result of the sweep; None if the driver failed before there was one.
        best: The best trial. None if no trial has a value, and always None with several objectives.
        report: The report in Markdown; "" if it was not written.
    """

    result: SweepResult | None
    best: Trial | None = None
    report: str = ""
