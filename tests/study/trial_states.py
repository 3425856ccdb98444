"""Trials as a study has them, for tests that read what is known of a trial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sweeps.core.resources import shape_of
from sweeps.core.trial import (
    Checkpoint,
    GangSizePeriod,
    Report,
    Result,
    State,
    Trial,
)
from sweeps.space.sections.search_models import Objective
from sweeps.study import transitions
from sweeps.study.events import TrialEnded, TrialReported, TrialStarted
from sweeps.study.objectives import Objectives
from sweeps.study.states import TrialState

LOSS = Objectives((Objective("loss", "minimize"),))


def new_trial(trial: Trial, objectives: Objectives = LOSS) -> TrialState:
    """Return what is known of a trial that starts."""
    return transitions.initial_state(TrialStarted(0.0, trial.number, trial), objectives)


def resumed_trial(
    curve: Sequence[Mapping[str, float]] = (),
    checkpoint: Checkpoint | None = None,
    best: Checkpoint | None = None,
    attempt: int = 1,
    sizes: Sequence[GangSizePeriod] = (),
) -> TrialState:
    """Return what is known of a trial that is interrupted. The steps of `curve` are 1, 2, ..."""
    state = known_trial(0, LOSS, Result(State.RUNNING), curve)
    return replace(state, checkpoint=checkpoint, best=best, attempt=attempt, sizes=tuple(sizes))


def known_trial(
    number: int,
    objectives: Objectives,
    result: Result,
    curve: Sequence[Mapping[str, float]] = (),
    began: float = 0.0,
    ended: float = 1.0,
    worker_seconds: float | None = None,
    **trial: Any,
) -> TrialState:
    """Return what is known of a trial.

    Args:
        number: The trial's number.
        objectives: Objectives and constraints of the sweep.
        result: Its `state`, `error`, `reason`, `final` and `seconds` count; the rest follows from
            the reports.
        curve: Metrics of the steps 1, 2, ...
        began, ended: Start and end of the trial, in seconds since the epoch.
        worker_seconds: See `TrialReported`; None for those of one worker.
        trial: Attributes of the trial, such as `params`; `scaling` is the section of a space file.
    """
    known: dict[str, Any] = {"params": {}, "labels": {}, "seed": number, "preprocessor": ()}
    shape = shape_of(trial.pop("scaling", {}), "none")
    full_trial = Trial(number=number, shape=shape, **known | trial)
    reports = tuple(Report(step, dict(metrics), began) for step, metrics in enumerate(curve, 1))
    spent = result.seconds if worker_seconds is None else worker_seconds
    reported = TrialReported(ended, number, reports, seconds=result.seconds, worker_seconds=spent)
    state = transitions.initial_state(
        TrialStarted(began, number, full_trial, full_trial.labels), objectives
    )
    state = transitions.apply(state, reported)
    if result.state is State.RUNNING:
        return state
    return transitions.apply(state, TrialEnded(ended, number, result))
