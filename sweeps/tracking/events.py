"""Events that the controller publishes and trackers handle.

A driver is a process that runs or resumes a sweep.

Events are frozen and can be pickled. An event contains all data that a tracker needs. Later
versions may add event types, so a tracker ignores the types that it does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from sweeps.core.result import SweepResult
from sweeps.core.trial import Report, Result, Trial, format_trial_id
from sweeps.space import Space


@dataclass(frozen=True)
class Event:
    """Something that happened in a sweep.

    Attributes:
        time: Time of the event, in seconds since the epoch.
    """

    time: float


@dataclass(frozen=True)
class TrialEvent(Event):
    """Something that happened to a trial.

    Attributes:
        number: The trial's number in the sweep: 0, 1, ...
    """

    number: int

    @property
    def trial_id(self) -> str:
        """The trial's id, such as `0007`."""
        return format_trial_id(self.number)


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
class TrialStarted(TrialEvent):
    """A trial starts, or an interrupted trial continues.

    Attributes:
        trial: The trial with the parameters that it started with.
    """

    trial: Trial


@dataclass(frozen=True)
class TrialReported(TrialEvent):
    """A trial reported metrics.

    Attributes:
        reports: The new reports in the order of their steps.
    """

    reports: tuple[Report, ...]


@dataclass(frozen=True)
class TrialChanged(TrialEvent):
    """A running trial changed: PBT replaced its parameters, or its gang has another size.

    Attributes:
        trial: The trial after the change.
        step: The step of the checkpoint from which the trial continues.
        metrics: The change, as metrics: new values of the numeric parameters that PBT changes, or
            the new number of workers.
        workers: New number of workers of an elastic trial; None if the number has not changed.
    """

    trial: Trial
    step: int
    metrics: dict[str, float] = field(default_factory=dict)
    workers: int | None = None


@dataclass(frozen=True)
class TrialPaused(TrialEvent):
    """A scheduler paused a trial, which may continue later.

    Attributes:
        step: The last step that the trial reported before the pause.
    """

    step: int


@dataclass(frozen=True)
class TrialEnded(TrialEvent):
    """A trial ended, or was interrupted together with its sweep.

    Attributes:
        result: How the trial ended. The state RUNNING means that the trial was interrupted and can
            be resumed.
    """

    result: Result


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
