"""Sort the readable lines of a damaged journal by trial, and build the records that a repair inserts. Pure functions, no I/O.

A journal is the file in which Optuna records every change of a study, as one line of JSON each.
"""

from __future__ import annotations

import datetime
import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from optuna.distributions import check_distribution_compatibility, json_to_distribution
from optuna.storages.journal._storage import JournalOperation as Op
from pydantic import TypeAdapter

from sweeps.core.trial import format_trial_id
from sweeps.space import Space
from sweeps.study.distributions import distribution_of
from sweeps.study.journal_records import (
    COMPLETE,
    TRIAL_ATTRIBUTES,
    SetParam,
    SetState,
    is_valid,
    parse_line,
)
from sweeps.study.record import ENQUEUED, PROGRESS_PREFIX

# `worker_id` of the records that a repair inserts.
WORKER = "sweeps repair"
# Largest number of trials in a rebuilt journal. A record with a larger trial number is considered
# damaged.
MAX_TRIALS = 100_000
_STUDY = (Op.CREATE_STUDY, Op.SET_STUDY_USER_ATTR, Op.SET_STUDY_SYSTEM_ATTR)
_PARAM, _STATE = TypeAdapter(SetParam), TypeAdapter(SetState)


@dataclass
class Line:
    """A line of the journal.

    Attributes:
        record: The JSON object in the line: one of Optuna's journal operations.
        index: Index of the line in the damaged journal; -1 for an inserted line.
        raw: Bytes of the line in the damaged journal; None for an inserted line.
    """

    record: dict[str, Any]
    index: int = -1
    raw: bytes | None = None

    @property
    def op(self) -> int:
        """Kind of the record: the number of one of Optuna's `JournalOperation`s."""
        op: int = self.record["op_code"]
        return op

    @property
    def text(self) -> bytes:
        """Bytes of the line in the rebuilt journal, with the line feed."""
        return (
            self.raw
            if self.raw is not None
            else json.dumps(self.record, separators=(",", ":")).encode() + b"\n"
        )

    @property
    def value(self) -> Any:
        """Value of the user attribute that the record sets.

        Use this property only for records of user attributes.
        """
        return next(iter(self.record["user_attr"].values()))


@dataclass
class TrialLines:
    """The lines about one trial: at first only readable lines of the damaged journal, later also the inserted lines.

    Attributes:
        create: Line that creates the trial; None if it is lost.
        params: Lines that set parameters, by parameter name.
        start: Line that sets the user attribute `begun`, which a driver sets when it starts the
            trial; None if this line is lost.
        progress: Lines with progress records (reports and checkpoints), by the number of the
            progress record.
        end: Line that records the end of the trial; None if the trial has not ended or the line is
            lost.
        others: All other lines, such as the change of an enqueued trial to RUNNING.
        lost_reports: True if the trial has ended and some of its reports are lost.
    """

    create: Line | None = None
    params: dict[str, Line] = field(default_factory=dict)
    start: Line | None = None
    progress: dict[int, Line] = field(default_factory=dict)
    end: Line | None = None
    others: list[Line] = field(default_factory=list)
    lost_reports: bool = False

    @property
    def lines(self) -> list[Line]:
        """All lines except `create`, in an order that `journal_rules` allows.

        Lines keep their order where possible.
        """
        starts = [line for line in self.others if line.op == Op.SET_TRIAL_STATE_VALUES]
        others = [
            (line.index, line) for line in self.others if line.op != Op.SET_TRIAL_STATE_VALUES
        ]
        progress = placed([self.progress[n] for n in sorted(self.progress)])
        body = [line for _, line in sorted([*progress, *others], key=lambda pair: pair[0])]
        return [
            line
            for line in (*starts, *self.params.values(), self.start, *body, self.end)
            if line is not None
        ]

    @property
    def given(self) -> bool:
        """True if the trial is an initial point with a known result."""
        return self.create is not None and self.create.record.get("state") == COMPLETE

    @property
    def reports(self) -> list[dict[str, Any]]:
        """The progress records as JSON objects, in order."""
        return [self.progress[n].value for n in sorted(self.progress)]


def placed(lines: Sequence[Line], position: int = -1) -> list[tuple[int, Line]]:
    """Return a (position, line) pair for each line, where the positions never decrease.

    The position is the line's index in the damaged journal. A line whose index is smaller than the
    position before it, such as an inserted line, gets the position of the line before it.

    Args:
        lines: The lines in their final order.
        position: Smallest position that a line may get.
    """
    positions = itertools.accumulate((line.index for line in lines), max, initial=position)
    return list(zip(itertools.islice(positions, 1, None), lines, strict=True))


class JournalLines:
    """Readable lines of a damaged journal.

    Args:
        raw: Lines of the journal, each with its line feed.
        space: The search space.

    Attributes:
        study: Lines about the study.
        trials: Lines about each trial, by trial number. The numbers may have gaps.
        started: Numbers of the trials that certainly started: their `begun` record is readable, or
            at least two other lines about them are readable (the CREATE_TRIAL record is not
            counted).
        limit: Upper bound of the number of trials. A record whose trial number is this number or
            larger is considered damaged.
    """

    def __init__(self, raw: Sequence[bytes], space: Space):
        self.study: list[Line] = []
        self.trials: dict[int, TrialLines] = {}
        self._value_count = len(space.objectives)
        self._distributions = {d.name: distribution_of(d) for d in space.dimensions}
        lines = [
            Line(record, i, text)
            for i, text in enumerate(raw)
            if isinstance(record := parse_line(text), dict)
        ]
        lines = [line for line in lines if type(line.record.get("op_code")) is int]
        repeated = {b.index for a, b in itertools.pairwise(lines) if a.record == b.record}
        creates = [
            line for line in lines if line.op == Op.CREATE_TRIAL and line.index not in repeated
        ]
        limits, points = space.limits, len(space.search.initial_points)
        self.limit = max(
            min(limits.max_trials * space.repeats.count + points, MAX_TRIALS), len(creates)
        )
        for line in lines:
            number = line.record.get("trial_id")
            if line.op in _STUDY:
                self.study.append(line)
            elif type(number) is int and 0 <= number < self.limit:
                self._add(self.trials.setdefault(number, TrialLines()), number, line)
        self.started = {
            n for n, trial in self.trials.items() if trial.start is not None or len(trial.lines) > 1
        }
        self._number(creates)

    def _add(self, trial: TrialLines, number: int, line: Line) -> None:
        """Add a line to the lines of its trial.

        If several lines set the same value of the trial, only the first line is used.

        A line is left out if its parameter, its progress record or its `begun` attribute is not
        valid.
        """
        if (
            line.op == Op.SET_TRIAL_PARAM
            and is_valid(_PARAM, line.record)
            and self._is_param(line.record)
        ):
            trial.params.setdefault(line.record["param_name"], line)
        elif (
            line.op == Op.SET_TRIAL_USER_ATTR
            and isinstance(attribute := line.record.get("user_attr"), dict)
            and len(attribute) == 1
        ):
            ((name, value),) = attribute.items()
            if name.startswith(PROGRESS_PREFIX):
                if name.removeprefix(PROGRESS_PREFIX).isdecimal() and is_valid(
                    TRIAL_ATTRIBUTES[PROGRESS_PREFIX], value
                ):
                    trial.progress.setdefault(int(name.removeprefix(PROGRESS_PREFIX)), line)
            elif name != "begun":
                trial.others.append(line)
            elif is_valid(TRIAL_ATTRIBUTES["begun"], value) and value["id"] == format_trial_id(
                number
            ):
                trial.start = trial.start or line
        elif line.op == Op.SET_TRIAL_STATE_VALUES and self._is_end(line.record):
            trial.end = trial.end or line
        elif line.op in (
            Op.SET_TRIAL_STATE_VALUES,
            Op.SET_TRIAL_INTERMEDIATE_VALUE,
            Op.SET_TRIAL_SYSTEM_ATTR,
        ):
            trial.others.append(line)

    def _is_end(self, record: dict[str, Any]) -> bool:
        """Return True if a record ends a trial.

        A COMPLETE record must also have a value other than NaN for every objective.
        """
        if not is_valid(_STATE, record) or not record["state"]:
            return False
        values = record["values"]
        return record["state"] != COMPLETE or (
            len(values) == self._value_count and all(v == v for v in values)
        )

    def _is_param(self, record: dict[str, Any]) -> bool:
        """Return True if a record sets a parameter of the space to a value that the parameter's distribution contains."""
        try:
            distribution = json_to_distribution(record["distribution"])
            check_distribution_compatibility(
                self._distributions[record["param_name"]], distribution
            )
            return bool(distribution._contains(record["param_value_internal"]))
        except Exception:  # Optuna raises various exceptions for a text that is not a distribution
            return False

    def _number(self, creates: Sequence[Line]) -> None:
        """Find the number of the trial that each CREATE_TRIAL record creates.

        A CREATE_TRIAL record has no trial number. The number is taken from the first line about a
        new trial that comes before the next CREATE_TRIAL record. A CREATE_TRIAL record without such
        a line gets an unused number between the numbers of the CREATE_TRIAL records before and
        after this record. Trials that `sweeps enqueue` added may start after the next CREATE_TRIAL
        record. They start in the order of their CREATE_TRIAL records.
        """
        events = [(line.index, None, line) for line in creates]
        first_lines = (
            (n, min(self.trials[n].lines, key=lambda line: line.index)) for n in self.started
        )
        last, waiting = -1, list[Line]()
        for _, number, line in sorted(
            [*events, *((line.index, n, line) for n, line in first_lines)],
            key=lambda event: event[0],
        ):
            if number is None:
                waiting.append(line)
                number = given_number(line.record)
            if number is None or not last < number < self.limit or not waiting:
                continue
            before = min(number - last, len(waiting)) - 1
            self.trials.setdefault(number, TrialLines()).create = waiting[before]
            for free, create in zip(range(last + 1, number), waiting[:before], strict=False):
                self.trials.setdefault(free, TrialLines()).create = create
            last, waiting = number, waiting[before + 1 :]
        enqueued = [line for line in waiting if ENQUEUED in _user_attributes(line.record)]
        for free, create in zip(range(last + 1, self.limit), enqueued, strict=False):
            self.trials.setdefault(free, TrialLines()).create = create


def given_number(record: dict[str, Any]) -> int | None:
    """Return the trial number in a CREATE_TRIAL record, or None.

    Only the record of an initial point with a known result has the number.
    """
    start = _user_attributes(record).get("begun")
    trial_id = start.get("id") if isinstance(start, dict) else None
    return (
        int(trial_id)
        if isinstance(trial_id, str) and trial_id.isdecimal() and len(trial_id) < 10
        else None
    )


def _user_attributes(record: dict[str, Any]) -> dict[str, Any]:
    """Return the user attributes in a CREATE_TRIAL record; {} if they are damaged."""
    attributes = record.get("user_attrs")
    return attributes if isinstance(attributes, dict) else {}


def external_key(record: dict[str, Any]) -> Any:
    """Return the value to which a record sets its parameter: a number, a cumulative probability, or the key of an option."""
    return json_to_distribution(record["distribution"]).to_external_repr(
        record["param_value_internal"]
    )


def new_line(op: Op, **values: Any) -> Line:
    """Return a line with a new record. `values` are the other fields of the record."""
    return Line({"op_code": int(op), "worker_id": WORKER, **values})


def progress_line(trial: int, index: int, value: dict[str, Any]) -> Line:
    """Return a line that sets the progress record number `index` of a trial."""
    return new_line(
        Op.SET_TRIAL_USER_ATTR, trial_id=trial, user_attr={f"{PROGRESS_PREFIX}{index}": value}
    )


def format_time(seconds: float) -> str:
    """Format seconds since the epoch as Optuna writes a time in a journal: `2026-11-25T03:00:00.000000+00:00`."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="microseconds")
