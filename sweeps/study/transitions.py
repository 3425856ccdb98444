"""Compute the state of a trial after an event. Pure functions, no I/O."""

import math
from collections.abc import Iterable
from dataclasses import replace

from sweeps.core.best_step import UNKNOWN
from sweeps.core.trial import Report, State

from .events import (
    AttemptFailed,
    AttemptStarted,
    Perturbation,
    TrialDecided,
    TrialEnded,
    TrialEvent,
    TrialPaused,
    TrialReported,
    TrialResized,
    TrialStarted,
)
from .log import Log
from .objectives import Objectives
from .states import TrialState


def initial_state(event: TrialStarted, objectives: Objectives) -> TrialState:
    """Return the state of a trial after its first event.

    Args:
        event: The start of the trial.
        objectives: Objectives and constraints of the sweep.
    """
    log: Log[Report] = Log()
    return TrialState(
        trial=event.trial,
        keys=event.keys,
        started=event,
        objectives=objectives,
        own_reports=log,
        reports=log,
        state=State.RUNNING if event.given is None else State.COMPLETE,
        ended_at=None if event.given is None else event.time,
    )


def apply_all(state: TrialState, events: Iterable[TrialEvent]) -> TrialState:
    """Return the state of a trial after these events, in their order; see `apply`."""
    for event in events:
        state = apply(state, event)
    return state


def apply(state: TrialState, event: TrialEvent) -> TrialState:
    """Return the state of a trial after an event.

    Reports of steps that are known already are ignored. After the end of a trial, and for an event
    of an unknown type, the state stays the same.
    """
    if state.has_ended:
        return state
    match event:
        case TrialReported():
            return _add_reported(state, event)
        case AttemptStarted():
            return state.changed(attempt=event.attempt, places=event.places)
        case AttemptFailed():
            failed = (*state.failed_attempts, event)
            return state.changed(failed_attempts=failed, failures=event.counts)
        case TrialResized():
            return state.changed(sizes=(*state.sizes, event.size))
        case TrialDecided(perturbation=Perturbation() as change):
            return _perturb(state, change, event.lineage)
        case TrialDecided():
            return state.changed(decided_rung=event.rung, paused_at=None)
        case TrialPaused():
            return state.changed(paused_at=event.step)
        case TrialEnded():
            return _end(state, event)
        case _:
            return state


def new_reports(state: TrialState, reports: Iterable[Report]) -> tuple[Report, ...]:
    """Return the reports whose steps come after the last step of a trial."""
    last = state.steps
    new = []
    for report in reports:
        if report.step > last:
            last = report.step
            new.append(report)
    return tuple(new)


def _add_reported(state: TrialState, event: TrialReported) -> TrialState:
    """Return the state after a report. Reports of steps that are known already are ignored."""
    if new := new_reports(state, event.reports):
        own = state.own_reports.with_more(new)
        shared = state.reports is state.own_reports
        reports = own if shared else state.reports.with_more(new)
        failures = replace(state.failures, blameless=0)
        state = _add_reports(state, reports, new).changed(own_reports=own, failures=failures)
    return state.changed(
        checkpoint=event.checkpoint or state.checkpoint,
        best=event.best or state.best,
        seconds=event.seconds,
        worker_seconds=event.worker_seconds,
    )


def _add_reports(state: TrialState, reports: Log[Report], new: Iterable[Report]) -> TrialState:
    """Return the state with other reports.

    Args:
        state: The state.
        reports: All reports of the trial's model.
        new: The last of them, which are not in `state` yet.
    """
    key = state.best_key
    place = state.best_place
    metrics = dict(state.metrics)
    order = state.objectives.order
    sign = 1 if state.objectives.minimize else -1
    compared = []
    for i, report in enumerate(new, len(state.reports)):
        # A metric that is missing keeps its latest value, as in `Objectives.step_metrics`.
        metrics |= report.metrics
        step_key = order.key(metrics)
        if step_key < key:
            key = step_key
            place = i
        value = report.metrics.get(order.metric or "", math.nan)
        if order.constraints and key[0] == 0:  # a step has satisfied the constraints
            value = sign * key[1]
        compared.append((report.step, value))
    return state.changed(
        reports=reports,
        compared=state.compared.with_more(compared),
        best_key=key,
        best_place=place,
        metrics=metrics,
    )


def _perturb(state: TrialState, change: Perturbation, lineage: str) -> TrialState:
    """Return the state of a trial that continues from a copy of a donor's checkpoint."""
    # Preprocessor, data and shape stay the same under a perturbation; see `exploit_donor`.
    trial = replace(state.trial, params=change.params, labels=change.labels, lineage=lineage)
    before = state.changed(reports=Log(), best_key=UNKNOWN, best_place=None, metrics={})
    copied = _add_reports(before, Log(change.reports), change.reports)
    return copied.changed(
        compared=state.compared,  # Schedulers compare what the trial itself has reported.
        trial=trial,
        keys=change.keys,
        lineage=(*state.lineage, change),
        decided_rung=change.step,
        checkpoint=change.checkpoint,
        best=change.checkpoint,
    )


def _end(state: TrialState, event: TrialEnded) -> TrialState:
    result = event.result
    if result.state is State.RUNNING:
        return state
    return state.changed(
        state=result.state,
        error=result.error,
        reason=result.reason,
        final=result.final,
        ended_at=event.time,
        paused_at=None,
    )
