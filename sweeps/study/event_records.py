"""Write the events of trials to a study as JSON objects, and read them.

A batch of events is one user attribute of the trial in Optuna's storage: `events.0`, `events.1`,
and so on. The models of `event_models` check what is read.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from sweeps.core.errors import DamagedStudy, Problem
from sweeps.core.trial import (
    Checkpoint,
    Report,
    format_trial_id,
)
from sweeps.study import states
from sweeps.study.event_models import BATCH, describe_error
from sweeps.study.events import (
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
from sweeps.study.objectives import Objectives
from sweeps.study.states import TrialState

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

# Prefix of the attributes that hold the batches of events of a trial. The number of the batch
# follows; the first has number 0.
EVENTS_PREFIX = "events."
# Attribute of a repeat: the number of the repeated trial. The attribute is set when the repeat is
# enqueued.
REPEAT_OF = "origin"
# Attribute of a trial that `sweeps enqueue` added: the id of the command. The attribute is set when
# the trial is enqueued.
ENQUEUED = "enqueued"


def _rows(reports: Iterable[Report]) -> list[list[Any]]:
    return [[report.step, report.time, report.metrics] for report in reports]


def _saved(checkpoint: Checkpoint | None) -> list[Any] | None:
    if checkpoint is None:
        return None
    return [checkpoint.name, checkpoint.step, checkpoint.best_step]


def _content(event: TrialEvent) -> dict[str, Any]:
    """Return the JSON object of an event, without its time."""
    match event:
        case TrialStarted():
            return _start(event)
        case AttemptStarted():
            return {"event": "attempt", "attempt": event.attempt}
        case TrialReported():
            return {
                "event": "reported",
                "reports": _rows(event.reports),
                "checkpoint": _saved(event.checkpoint),
                "best": _saved(event.best),
                "seconds": round(event.seconds, 4),
                "worker_seconds": round(event.worker_seconds, 4),
            }
        case TrialResized():
            size = event.size
            return {
                "event": "resized",
                "step": size.step,
                "workers": size.workers,
                "reported": size.reported,
            }
        case TrialDecided():
            change = event.perturbation
            return {"event": "decided", "rung": event.rung} | (
                {"perturbation": _perturbation(change)} if change else {}
            )
        case TrialPaused():
            return {"event": "paused", "step": event.step}
        case TrialEnded():
            result = event.result
            known = {"error": result.error, "reason": result.reason, "final": result.final}
            return {"event": "ended", "state": result.state.name} | {
                name: value for name, value in known.items() if value
            }
    raise TypeError(f"{type(event).__name__} is not recorded")


def _start(event: TrialStarted) -> dict[str, Any]:
    trial = event.trial
    rare = {
        "data": trial.data or None,
        "repeat_of": trial.repeat_of,
        "enqueued": trial.enqueued or None,
        "bracket": event.bracket,
        "given": event.given,
    }
    return {
        "event": "started",
        "id": trial.id,
        "seed": trial.seed,
        "preprocessor": trial.chain,
        "scaling": trial.shape.scaling,
        "params": trial.params,
        "labels": trial.labels,
        "keys": dict(event.keys),
    } | {name: value for name, value in rare.items() if value is not None}


def _perturbation(change: Perturbation) -> dict[str, Any]:
    return {
        "donor": change.donor,
        "donor_step": change.donor_step,
        "keys": change.keys,
        "params": change.params,
        "labels": change.labels,
        "checkpoint": _saved(change.checkpoint),
        "reports": _rows(change.reports),
    }


def batch_of(events: Iterable[TrialEvent], at: float) -> dict[str, Any]:
    """Return a batch of events as a JSON object.

    Args:
        events: Events of one trial, in order.
        at: Wall time of the sweep in seconds, summed over all its drivers.
    """
    return {
        "at": round(at, 2),
        "events": [{"time": event.time, **_content(event)} for event in events],
    }


def events_in(number: int, batch: Any) -> tuple[TrialEvent, ...]:
    """Return the events of a batch.

    Args:
        number: Number of the trial.
        batch: The JSON object of the batch.

    Raises:
        pydantic.ValidationError: The batch is damaged.
    """
    return tuple(event.to_event(number) for event in BATCH.validate_python(batch).events)


def is_given(t: FrozenTrial) -> bool:
    """Return True if a trial is an initial point with a known result. Such a trial is never run."""
    batch = t.user_attrs.get(f"{EVENTS_PREFIX}0")
    return batch is not None and batch["events"][0].get("given") is not None


def has_started(t: FrozenTrial) -> bool:
    """Return True if the start of a trial is recorded. Optuna's trial is created before it."""
    return f"{EVENTS_PREFIX}0" in t.user_attrs


def has_ended(t: FrozenTrial) -> bool:
    """Return True if the end of a trial is recorded, also if Optuna's trial is still open."""
    ended = is_given(t)
    for batch in batches_of(t.user_attrs):
        ended = ended or batch["events"][-1]["event"] == "ended"
    return ended


def batches_of(attributes: Mapping[str, Any], first: int = 0) -> Iterator[Any]:
    """Yield the batches of events of a trial in order.

    Args:
        attributes: The trial's user attributes.
        first: Number of the first batch to yield.
    """
    for number in itertools.count(first):
        if (batch := attributes.get(f"{EVENTS_PREFIX}{number}")) is None:
            return
        yield batch


def state_of(t: FrozenTrial, objectives: Objectives) -> TrialState | None:
    """Return what is known of a trial; None if it has not started.

    Args:
        t: The trial as Optuna recorded it.
        objectives: Objectives and constraints of the sweep.
    """
    state: TrialState | None = None
    for batch in batches_of(t.user_attrs):
        state = with_batch(state, t.number, batch, objectives)
    return state


def with_batch(
    state: TrialState | None, number: int, batch: Any, objectives: Objectives
) -> TrialState:
    """Return the state of a trial after one more batch of events; see `state_of`.

    Raises:
        DamagedStudy: The batch is damaged. In a journal, `journal_rules` finds this earlier.
    """
    try:
        content = BATCH.validate_python(batch)
    except ValidationError as e:
        place = f"trial {format_trial_id(number)}"
        raise DamagedStudy(Problem(place, f"in the study {describe_error(e)}")) from None
    events = [event.to_event(number) for event in content.events]
    if state is None:
        first = events.pop(0)
        assert isinstance(first, TrialStarted), first
        state = states.started(first, objectives)
    state = states.applied(state, events)
    return state.changed(at=content.at, batches=state.batches + 1)
