"""Write the events of trials to a study as JSON objects, and read them.

A batch of events is one user attribute of the trial in Optuna's storage: `events.0`, `events.1`,
and so on. The fields of an event's class say what its JSON object has; pydantic writes and checks
them. A field with its default value is left out, and unknown fields are ignored.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Discriminator, Field, Tag, TypeAdapter, ValidationError

from sweeps.core.errors import DamagedStudy, Problem
from sweeps.core.json_values import Seconds
from sweeps.core.trial import State, format_trial_id

from . import transitions
from .events import (
    AttemptFailed,
    AttemptStarted,
    TrialDecided,
    TrialEnded,
    TrialEvent,
    TrialPaused,
    TrialReported,
    TrialResized,
    TrialStarted,
)
from .objectives import Objectives
from .states import TrialState

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
# Attribute of a trial that samplers read: the rung at which the trial is paused. The value of the
# attribute becomes None when the trial continues.
PAUSED = "paused"
# Attribute of the study: True while `sweeps pause` keeps the sweep from starting trials.
SWEEP_PAUSED = "paused"
# Attribute of the study: the objectives and the constraints of the sweep.
OBJECTIVES_ATTRIBUTE = "judged"


class Fault(ValueError):
    """Raised when a record is invalid. The message says why."""


# Value of `event` in the JSON object of each type of event
KINDS: dict[type[TrialEvent], str] = {
    TrialStarted: "started",
    AttemptStarted: "attempt",
    AttemptFailed: "failed",
    TrialReported: "reported",
    TrialResized: "resized",
    TrialDecided: "decided",
    TrialPaused: "paused",
    TrialEnded: "ended",
}
_WRITERS: dict[type[TrialEvent], TypeAdapter[TrialEvent]] = {
    kind: TypeAdapter(kind) for kind in KINDS
}


def _kind(content: Any) -> Any:
    return content.get("event") if isinstance(content, dict) else None


_Event = Annotated[
    Annotated[TrialStarted, Tag("started")]
    | Annotated[AttemptStarted, Tag("attempt")]
    | Annotated[AttemptFailed, Tag("failed")]
    | Annotated[TrialReported, Tag("reported")]
    | Annotated[TrialResized, Tag("resized")]
    | Annotated[TrialDecided, Tag("decided")]
    | Annotated[TrialPaused, Tag("paused")]
    | Annotated[TrialEnded, Tag("ended")],
    Discriminator(_kind),
]


@dataclass(frozen=True)
class EventBatch:
    """A batch of events of one trial: an attribute `events.N`.

    Attributes:
        at: Wall time of the sweep in seconds, summed over all its drivers.
        events: The events, in order.
    """

    at: Seconds
    events: Annotated[tuple[_Event, ...], Field(min_length=1)]


_BATCH: TypeAdapter[EventBatch] = TypeAdapter(EventBatch)


def batch_of(events: Iterable[TrialEvent], at: float) -> dict[str, Any]:
    """Return a batch of events as a JSON object.

    Args:
        events: Events of one trial, in order.
        at: Wall time of the sweep in seconds, summed over all its drivers.
    """
    return {"at": round(at, 2), "events": [_content(event) for event in events]}


def _content(event: TrialEvent) -> dict[str, Any]:
    """Return the JSON object of an event."""
    if isinstance(event, TrialStarted):
        # The record has the text of the preprocessing steps, not the steps.
        trial = replace(event.trial, preprocessor=(), chain_text=event.trial.chain)
        event = replace(event, trial=trial)
    # The mode "json" would replace infinite numbers, and characters that are not valid Unicode.
    fields = _WRITERS[type(event)].dump_python(event, exclude_defaults=True)
    return {"event": KINDS[type(event)], **fields}


def read_batch(number: int, batch: Any) -> EventBatch:
    """Check a batch of events, and return it.

    Args:
        number: Number of the trial.
        batch: The JSON object of the batch.

    Raises:
        Fault, pydantic.ValidationError: The batch is damaged, or belongs to another trial.
    """
    content = _BATCH.validate_python(batch)
    for event in content.events:
        if event.number != number:
            raise Fault(f"has an event of trial {format_trial_id(event.number)}")
        if isinstance(event, TrialStarted) and event.trial.number != number:
            raise Fault(f"starts trial {event.trial.id}")
        if isinstance(event, TrialEnded) and event.result.state is State.RUNNING:
            raise Fault("ends a trial in the state RUNNING")
    return content


def describe_error(error: Fault | ValidationError) -> str:
    """Return the first problem of a record, as text for a message."""
    if isinstance(error, Fault):
        return str(error)
    first = error.errors(include_url=False, include_context=False)[0]
    # The first part of the location is `events` for a batch. In `journal_rules`, it is the
    # `op_code` of the journal's record.
    place = ".".join(map(str, first["loc"][1:]))
    text = first["msg"].removeprefix("Value error, ")
    if place:
        return f"is a record with a wrong `{place}`: {text}"
    return f"is not a valid record: {text}"


def is_given(t: FrozenTrial) -> bool:
    """Return True if a trial is an initial point with a known result. Such a trial is never run."""
    batch = t.user_attrs.get(f"{EVENTS_PREFIX}0")
    return batch is not None and batch["events"][0].get("given") is not None


def has_started(t: FrozenTrial) -> bool:
    """Return True if the start of a trial is recorded. Optuna's trial is created before it."""
    return f"{EVENTS_PREFIX}0" in t.user_attrs


def has_ended(t: FrozenTrial) -> bool:
    """Return True if the end of a trial is recorded, also if Optuna's trial is still open."""
    batches = batches_of(t.user_attrs)
    return is_given(t) or any(batch["events"][-1]["event"] == "ended" for batch in batches)


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
        content = read_batch(number, batch)
    except (Fault, ValidationError) as e:
        place = f"trial {format_trial_id(number)}"
        raise DamagedStudy(Problem(place, f"in the study {describe_error(e)}")) from None
    events = iter(content.events)
    if state is None:
        first = next(events)
        assert isinstance(first, TrialStarted), first
        state = transitions.initial_state(first, objectives)
    state = transitions.apply_all(state, events)
    return state.changed(at=content.at, batches=state.batches + 1)
