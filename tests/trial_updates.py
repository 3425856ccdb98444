"""Updates that the pool sends to the driver, for tests that run without Ray."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from sweeps.core.trial import Checkpoint, GangSizePeriod, Report, State
from sweeps.execution.messages import Ended, TrialUpdate
from sweeps.study.events import AttemptStarted, RankPlace, TrialEvent, TrialReported, TrialResized


def trial_update(
    trial: str,
    reports: Iterable[Report] = (),
    checkpoint: Checkpoint | None = None,
    best: Checkpoint | None = None,
    rung: int | None = None,
    state: State | None = None,
    *,
    attempt: int | None = 1,
    seconds: float = 0.0,
    worker_seconds: float = 0.0,
    sizes: Iterable[GangSizePeriod] = (),
    error: str | None = None,
    refused: tuple[str, str] | None = None,
    final: Mapping[str, float] | None = None,
) -> TrialUpdate:
    """Return an update of a trial.

    Args:
        trial: The trial's id.
        reports, checkpoint, best, seconds, worker_seconds: See `TrialReported`.
        rung: See `TrialUpdate`.
        state: State in which the trial has ended; None while it runs.
        attempt: Number of the attempt that starts before the reports; None if none starts.
        sizes: The new sizes of an elastic trial.
        error, refused, final: See `Ended`.
    """
    number, now, reports = int(trial), time.time(), tuple(reports)
    events: list[TrialEvent] = []
    if attempt is not None:
        events.append(AttemptStarted(now, number, attempt))
    events += [TrialResized(size.time, number, size) for size in sizes]
    if reports or checkpoint is not None or state is not None:
        at = reports[-1].time if reports else now
        events.append(TrialReported(at, number, reports, checkpoint, best, seconds, worker_seconds))
    ended = None
    if state is not None:
        ended = Ended(0, state, error, refused=refused, final=dict(final or {}))
    return TrialUpdate(trial, tuple(events), rung, ended)


def rank_places(ranks: int) -> list[RankPlace]:
    """Return a place for each of some ranks, for `RunningTrial.begin_attempt`."""
    return [RankPlace("10.0.0.1")] * ranks
