"""Events on which a driver decides (`DriverEvent`), and its decisions (`DriverCommand`)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sweeps.core.errors import InputError
from sweeps.core.trial import State
from sweeps.execution.messages import TrialUpdate
from sweeps.study.states import TrialState


@dataclass(frozen=True)
class TrialWanted:
    """There is room for another trial."""


@dataclass(frozen=True)
class TrialLeft:
    """An earlier driver ended while this trial ran.

    Attributes:
        state: The trial, without the checkpoints that do not exist.
    """

    state: TrialState


@dataclass(frozen=True)
class LimitsChecked:
    """The driver compares the spent budget with the limits now.

    Attributes:
        time_limit: The time limit that the sweep has reached; None if it has reached none.
        worker_seconds: Worker seconds of each running trial so far, by trial id; see
            `TrialReported`.
    """

    time_limit: str | None = None
    worker_seconds: Mapping[str, float] = field(default_factory=dict)


DriverEvent = TrialWanted | TrialLeft | TrialUpdate | LimitsChecked


@dataclass(frozen=True)
class Ask:
    """Start the next trial of the queue, with parameters from the sampler."""


@dataclass(frozen=True)
class StartLater:
    """Start no trial now. One may start later."""


@dataclass(frozen=True)
class StartNoMore:
    """Start no more trials."""


@dataclass(frozen=True)
class ResumeTrial:
    """Continue an interrupted or paused trial.

    Attributes:
        number: Number of the trial.
        promoted_at: Rung at which a paused trial continues; None for an interrupted trial.
    """

    number: int
    promoted_at: int | None = None


@dataclass(frozen=True)
class Continue:
    """Let a trial that waits at a rung continue.

    Attributes:
        number: Number of the trial.
        rung: The rung.
        is_new: True if the decision must be recorded. False if the trial continues without one.
    """

    number: int
    rung: int
    is_new: bool = True


@dataclass(frozen=True)
class Exploit:
    """Let a trial that waits at a rung continue with other parameters.

    The trial continues from a copy of another trial's checkpoint.

    Attributes:
        number: Number of the trial.
        rung: The rung.
        donor: Number of the trial whose checkpoint is copied.
    """

    number: int
    rung: int
    donor: int


@dataclass(frozen=True)
class PauseTrial:
    """Let a trial give up its workers at a rung. It may continue later.

    Attributes:
        number: Number of the trial.
        rung: The rung.
    """

    number: int
    rung: int


@dataclass(frozen=True)
class End:
    """End a trial.

    Attributes:
        number: Number of the trial.
        state: State of the trial at its end.
        error: Error with which it failed; None if it did not fail.
        reason: Reason why it was stopped; None if it was not stopped.
        final: Metrics of the finished model; empty if there are none.
    """

    number: int
    state: State
    error: str | None = None
    reason: str | None = None
    final: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Refuse:
    """End the sweep, because every trial would fail for the same reason."""

    error: InputError


@dataclass(frozen=True)
class StopSweep:
    """Start no more trials, and end the running trials.

    Attributes:
        reason: Reason why the sweep stops.
        unfinished: See `DriverState`.
    """

    reason: str
    unfinished: State


DriverCommand = (
    Ask
    | StartLater
    | StartNoMore
    | ResumeTrial
    | Continue
    | Exploit
    | PauseTrial
    | End
    | Refuse
    | StopSweep
)
