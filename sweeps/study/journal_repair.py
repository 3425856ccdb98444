"""Rebuild a damaged journal from its whole trials. Pure functions, no I/O.

A trial is whole if `journal_rules` accepts all its readable lines. A trial that lost lines is
replaced by a trial that has not started, because Optuna numbers trials by the order of their
CREATE_TRIAL records. A resumed sweep samples it again.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from optuna.storages.journal._storage import JournalOperation as Op

from sweeps.core.result import to_json_value
from sweeps.core.trial import format_trial_id
from sweeps.space import Space

from .distributions import distribution_of
from .event_records import EVENTS_PREFIX, OBJECTIVES_ATTRIBUTE, REPEAT_OF
from .journal_records import RECORD, RUNNING, WAITING, is_valid, parse_line
from .journal_rules import Rules
from .objectives import Objectives
from .trial_building import build_trial

# `worker_id` of the records that a repair writes.
WORKER = "sweeps repair"
Record = dict[str, Any]


@dataclass(frozen=True)
class RebuiltJournal:
    """A rebuilt journal, and what happened to each trial.

    Attributes:
        data: Content of the journal.
        ended: Ids of the trials that have ended.
        unfinished: Ids of the started trials without an end. A resumed sweep continues them.
        lost: Ids of the trials that lost records. A resumed sweep samples them again.
    """

    data: bytes
    ended: tuple[str, ...]
    unfinished: tuple[str, ...]
    lost: tuple[str, ...]


def rebuild(data: bytes, space: Space) -> RebuiltJournal:
    """Rebuild a journal, given its content and the search space of the sweep."""
    lines = data.split(b"\n")
    records = [record for record in map(parse_line, lines) if is_valid(RECORD, record)]
    study_records = [record for record in records if "trial_id" not in record]
    records_of: dict[int, list[Record]] = defaultdict(list)  # by the number of the trial
    for record in records:
        # No trial has a number beyond the number of lines: such a number is damaged.
        if record.get("trial_id", len(lines)) < len(lines):
            records_of[record["trial_id"]].append(record)
    created = [number for number, own in records_of.items() if any(map(_creates, own))]
    dimensions = {dimension.name: distribution_of(dimension) for dimension in space.dimensions}
    # If the records about the study lack its objectives, new ones from the space precede them.
    for header in (study_records, [*_study_records(study_records, space), *study_records]):
        rules = Rules(dimensions)
        rebuilt = [record for record in header if rules.apply(record) is None]
        if rules.has_objectives:
            break
    lost: set[int] = set()
    for number in range(max(created, default=-1) + 1):
        own = sorted(records_of[number], key=_creates, reverse=True)  # the creation comes first
        rebuilt += _rebuild_trial(rules, space, own, lost)
    started = [(number, trial) for number, trial in enumerate(rules.trials) if trial.started]
    return RebuiltJournal(
        b"".join(json.dumps(record, separators=(",", ":")).encode() + b"\n" for record in rebuilt),
        ended=_ids(number for number, trial in started if trial.has_ended),
        unfinished=_ids(number for number, trial in started if not trial.has_ended),
        lost=_ids(lost),
    )


def _rebuild_trial(
    rules: Rules, space: Space, own: list[Record], lost: set[int]
) -> Sequence[Record]:
    """Return the records of the next trial, and add them to the rules.

    Args:
        rules: The rules after all trials before this one.
        space: The search space.
        own: All records with the trial's number, its creation first.
        lost: Numbers of the lost trials so far. This function adds the number of this trial if the
            trial lost records or repeats a lost trial.
    """
    number = len(rules.trials)
    whole = _whole_part(rules, own)
    # From the best to the worst: all records of the trial, those that belong to it, the record of
    # its creation, and that of a trial that has not started
    for records in (own, whole, own[:1], [_placeholder(number)]):
        if not records or records[0].get("user_attrs", {}).get(REPEAT_OF) in lost:
            continue
        are_valid = all(rules.apply(record) is None for record in records)
        if are_valid and _has_its_parameters(space, number, records):
            trial = rules.trials[number]
            # A running trial without events has lost the event of its start.
            if records not in (own, whole) or (trial.state == RUNNING and not trial.started):
                lost.add(number)
            return records
        del rules.trials[number:]
    raise AssertionError(f"trial {number} has no placeholder")


def _whole_part(rules: Rules, own: Sequence[Record]) -> list[Record]:
    """Return the records of an ended trial, without those that do not belong to it.

    A damaged record of another trial may have the number of this trial. The batches of a trial are
    numbered, so a trial with an end has lost none. Return [] for any other trial.

    Args:
        rules: The rules after all trials before this one. They do not change.
        own: All records with the trial's number, its creation first.
    """
    number = len(rules.trials)
    valid = [record for record in own if rules.apply(record) is None]
    has_ended = number < len(rules.trials) and rules.trials[number].has_ended
    del rules.trials[number:]
    return valid if has_ended else []


def _has_its_parameters(space: Space, number: int, records: Sequence[Record]) -> bool:
    """Return whether the start of a trial has the parameters that belong to its keys."""
    name = f"{EVENTS_PREFIX}0"
    attributes = [record["user_attr"] for record in records if name in record.get("user_attr", {})]
    if not attributes:
        return True
    start = attributes[0][name]["events"][0]
    try:
        trial = build_trial(space, number, lambda dimension: start["keys"][dimension.name])
    except (KeyError, TypeError, ValueError):
        return False
    expected = {"params": trial.params, "labels": trial.labels, "data": trial.data}
    recorded = start["trial"]
    return all(recorded.get(field, {}) == to_json_value(value) for field, value in expected.items())


def _creates(record: Record) -> bool:
    """Return whether a record creates a trial."""
    return bool(record["op_code"] == Op.CREATE_TRIAL)


def _placeholder(number: int) -> Record:
    """Return the record of a trial that has not started."""
    return {
        "op_code": int(Op.CREATE_TRIAL),
        "worker_id": WORKER,
        "study_id": 0,
        "trial_id": number,
        "datetime_start": None,
        "state": WAITING,
    }


def _study_records(study: Sequence[Record], space: Space) -> list[Record]:
    """Return the records with which a driver begins a study; see `StudyStore`."""
    names = (record["study_name"] for record in study if record["op_code"] == Op.CREATE_STUDY)
    # Optuna's numbers of the two directions
    directions = [1 if objective.goal == "minimize" else 2 for objective in space.objectives]
    objectives = Objectives.from_space(space).to_json()
    return [
        {
            "op_code": int(Op.CREATE_STUDY),
            "worker_id": WORKER,
            "study_name": next(names, space.name),
            "directions": directions,
        },
        {
            "op_code": int(Op.SET_STUDY_USER_ATTR),
            "worker_id": WORKER,
            "study_id": 0,
            "user_attr": {OBJECTIVES_ATTRIBUTE: objectives},
        },
    ]


def _ids(numbers: Iterable[int]) -> tuple[str, ...]:
    """Return the ids of trials, sorted."""
    return tuple(map(format_trial_id, sorted(numbers)))
