"""Rebuild a damaged journal from its readable lines and from the sweep's result.

Pure functions, no I/O.

A readable line stays in its place if `journal_rules` allows the record in this place. The line
itself does not change, except that progress records may get new numbers. Missing records are
inserted before the records that need them. For example, Optuna numbers trials by the order of the
CREATE_TRIAL records, so a lost CREATE_TRIAL record must be replaced. If too many records of a trial
are lost, the rebuilt journal creates the trial but does not start it. A resumed sweep then samples
the trial again.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from optuna.storages.journal._storage import JournalOperation as Op

from sweeps.core import registry
from sweeps.core.result import best_trials, contradiction
from sweeps.core.trial import format_trial_id
from sweeps.search.first_points import first_points
from sweeps.search.journal_lines import (
    JournalLines,
    Line,
    TrialLines,
    format_time,
    new_line,
    placed,
)
from sweeps.search.trial_repair import SweepFacts, TrialRepair
from sweeps.study.journal_records import COMPLETE, RUNNING, WAITING, parse_line
from sweeps.study.journal_rules import Rules
from sweeps.study.record import ENQUEUED, REPEAT_OF


@dataclass(frozen=True)
class RebuiltJournal:
    """A rebuilt journal, and what happened to each trial.

    Attributes:
        lines: Lines of the rebuilt journal.
        changed: True if the lines differ from the lines of the damaged journal.
        dropped: (line number, problem) of each line of the damaged journal that was not kept.
        ended: Ids of the trials with a recorded end, except the trials in `restored`.
        restored: Ids of the trials whose end was lost and was restored from the result.
        unfinished: Ids of the started trials without a recorded end. A resumed sweep continues
            these trials from a checkpoint or runs them again from the start.
        lost: Ids of the trials that lost too many records to be repaired. A resumed sweep samples
            new configurations for these ids.
        shortened: Ids of the trials in `ended` that lost some of their reports.
        contradiction: Description of how the rebuilt study contradicts the result; None if there is
            no contradiction.
    """

    lines: tuple[bytes, ...]
    changed: bool = False
    dropped: tuple[tuple[int, str], ...] = ()
    ended: tuple[str, ...] = ()
    restored: tuple[str, ...] = ()
    unfinished: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    shortened: tuple[str, ...] = ()
    contradiction: str | None = None


def first_fault(lines: Iterable[bytes]) -> tuple[int, str] | None:
    """Return the number of the first damaged line of a journal, and what is wrong with this line.

    Args:
        lines: All lines of the journal.

    Returns:
        (line number, problem), where the first line has number 1; None if no line is damaged.
    """
    rules = Rules()
    faults = ((number, rules.fault(parse_line(line))) for number, line in enumerate(lines, 1))
    return next(((number, fault) for number, fault in faults if fault is not None), None)


def rebuild(
    lines: Sequence[bytes], result: Mapping[str, Any] | None, facts: SweepFacts
) -> RebuiltJournal:
    """Rebuild a journal as described at the top of this module.

    Args:
        lines: Lines of the journal, each with its line feed.
        result: A valid result of the sweep (see `sweeps.core.result.result_error`); None if the
            sweep has no result.
        facts: Facts about the sweep that are neither in the journal nor in the result.

    Returns:
        The rebuilt journal. The lines are unchanged if no line is damaged and the study does not
        contradict the result.
    """
    if first_fault(lines) is None:
        unchanged = _summarize(lines, result)
        if unchanged.contradiction is None:
            return unchanged
    return _Rebuild(lines, result, facts).run()


class _Rebuild:
    """Rebuild one journal. See `rebuild` for the arguments."""

    def __init__(self, raw: Sequence[bytes], result: Mapping[str, Any] | None, facts: SweepFacts):
        self._raw, self._result, self._facts, self._space = raw, result, facts, facts.space
        self._read = JournalLines(raw, facts.space)
        self._repair = TrialRepair(result, facts)
        best = {
            int(described["trial"]): described
            for described in best_trials(result or {"best": None})
        }
        self._best = {
            number: described for number, described in best.items() if number < self._read.limit
        }
        # Trials after the last trial with a CREATE_TRIAL or `begun` record are left out: a resumed
        # sweep creates them again.
        known = [
            n
            for n, trial in self._read.trials.items()
            if trial.create is not None or trial.start is not None
        ]
        count = 1 + max([*known, *self._best], default=-1)
        self._started = self._read.started | facts.trials | {n for n in known if n < count - 1}
        self._trials = {n: self._read.trials.get(n, TrialLines()) for n in range(count)}
        first_lines = (
            line.index
            for trial in self._trials.values()
            for line in (trial.create, *trial.lines)
            if line is not None
        )
        self._first = min(first_lines, default=len(raw))
        self._header = self._header_records()

    def run(self) -> RebuiltJournal:
        restored = []
        for number, trial in self._trials.items():
            self._trials[number] = self._repair.complete(number, trial)
        for number, described in self._best.items():
            if (
                with_end := self._repair.restore_end(number, self._trials[number], described)
            ) is not None:
                self._trials[number] = with_end
                restored.append(format_trial_id(number))
        rules, lines, kept = Rules(), list[bytes](), set[int]()
        for line in self._ordered_lines():
            if rules.fault(line.record) is None:
                lines.append(line.text)
                kept.add(line.index)
        dropped = [
            (
                i + 1,
                "is a record that is not allowed at this place"
                if isinstance(parse_line(raw), dict)
                else "is not a record",
            )
            for i, raw in enumerate(self._raw)
            if i not in kept
        ]
        lost = sorted(
            n for n in self._started if n >= len(rules.trials) or not rules.trials[n].started
        )
        rebuilt = _summarize(lines, self._result)
        return dataclasses.replace(
            rebuilt,
            changed=list(self._raw) != lines,
            dropped=tuple(dropped),
            ended=tuple(n for n in rebuilt.ended if n not in restored),
            restored=tuple(n for n in restored if n in rebuilt.ended),
            lost=tuple(map(format_trial_id, lost)),
            shortened=tuple(n for n in rebuilt.ended if self._trials[int(n)].lost_reports),
        )

    # Order the lines

    def _ordered_lines(self) -> list[Line]:
        """Return all lines of the new journal in order.

        Kept lines stay in their places; missing lines are inserted.
        """
        own = [line for line in self._read.study if self._is_ours(line)]
        early = {
            _attribute_name(line.record): line for line in reversed(own) if line.index < self._first
        }
        header = placed([early.get(name, Line(record)) for name, record in self._header.items()])
        position = header[-1][0]
        pairs = [
            *header,
            *(
                (max(line.index, position), line)
                for line in own
                if all(line is not used for _, used in header)
            ),
        ]
        rules, separator = self._header_rules(), self._header["stops"]
        configurations = 0
        for number, trial in self._trials.items():
            create = trial.create
            if create is None or rules.fault(create.record) is not None:
                create = Line(self._create_record(number, configurations, trial))
                rules.fault(create.record)
            attributes = create.record.get("user_attrs", {})
            configurations += (
                not attributes.keys() & {REPEAT_OF, ENQUEUED}
                and create.record.get("state") != COMPLETE
            )
            lines = placed([create, *trial.lines], position)
            position = lines[0][0]
            pairs += lines
            rules.fault(
                separator
                # `Rules` rejects two equal CREATE_TRIAL records in a row, such as those of two repeats.
            )
        ordered = [line for _, line in sorted(pairs, key=lambda pair: pair[0])]
        return [
            line
            for before, after in zip([None, *ordered], ordered, strict=False)
            for line in self._separate(before, after)
        ]

    def _separate(self, before: Line | None, after: Line) -> list[Line]:
        """Return [`after`].

        If both lines are equal CREATE_TRIAL records, return [a record that changes nothing,
        `after`].

        The additional record separates the two lines, because `Rules` rejects two equal
        CREATE_TRIAL records in a row.
        """
        equal = (
            before is not None and before.op == Op.CREATE_TRIAL and before.record == after.record
        )
        return [Line(self._header["stops"]), after] if equal else [after]

    def _header_records(self) -> dict[str, dict[str, Any]]:
        """Return the records that a driver writes when it creates a study (see `StudyStore`).

        The returned dict maps the name of each record, as `_attribute_name` returns it, to the
        record.
        """
        objectives, scheduler = self._repair.objectives, self._repair.scheduler
        directions = [1 if o.goal == "minimize" else 2 for o in objectives.objectives]
        names = [
            line.record.get("study_name")
            for line in self._read.study
            if line.record.get("directions") == directions
        ]
        stops = bool(scheduler.rungs()) or not registry.is_built_in(
            "scheduler", self._space.scheduler.name
        )
        attributes: dict[str, Any] = {"judged": json.loads(json.dumps(objectives.to_json()))}
        attributes |= {"repeats": dataclasses.asdict(self._space.repeats), "stops": stops}
        attributes |= {} if self._facts.data is None else {"data": self._facts.data}
        create = new_line(
            Op.CREATE_STUDY,
            study_name=next((n for n in names if type(n) is str), self._space.name),
            directions=directions,
        )
        lines = [
            new_line(Op.SET_STUDY_USER_ATTR, study_id=0, user_attr={name: value})
            for name, value in attributes.items()
        ]
        return {"": create.record} | dict(
            zip(attributes, (line.record for line in lines), strict=True)
        )

    def _header_rules(self) -> Rules:
        """Return new `journal_rules.Rules` that have already accepted the header records, so that the rules can check the next record."""
        rules = Rules()
        for record in self._header.values():
            assert rules.fault(record) is None
        return rules

    def _is_ours(self, line: Line) -> bool:
        """Return True if a record about the study is valid and agrees with the search space of this sweep."""
        name = _attribute_name(line.record)
        agrees = (
            name not in ("judged", "repeats")
            or line.record.get("user_attr") == self._header[name]["user_attr"]
        )
        return agrees and self._header_rules().fault(line.record) is None

    def _create_record(self, number: int, configurations: int, trial: TrialLines) -> dict[str, Any]:
        """Return a CREATE_TRIAL record that replaces a lost CREATE_TRIAL record.

        Args:
            number: Number of the trial.
            configurations: Number of configurations that were created before this trial and that
                `sweeps enqueue` did not add. If this number is below the number of `first_points`,
                and the trial was not started, the trial is created as one of these points.
            trial: Lines about the trial.
        """
        # The trial number is added to the time in microseconds, so no two inserted CREATE_TRIAL
        # records are equal.
        time = format_time(self._repair.start_time(trial) + 1e-6 * number)
        record = new_line(Op.CREATE_TRIAL, study_id=0, datetime_start=time).record
        points = first_points(self._space, self._facts.starting_points)
        if trial.start is None and configurations < len(points):
            return record | {
                "datetime_start": None,
                "state": WAITING,
                "system_attrs": {"fixed_params": dict(points[configurations])},
            }
        if trial.start is not None and self._space.repeats.count > 1:
            starts = {
                n: other.start.value
                for n, other in self._trials.items()
                if n < number and other.start is not None
            }
            same = (
                n
                for n, s in starts.items()
                if all(s.get(k) == trial.start.value.get(k) for k in ("params", "labels", "data"))
            )
            record |= (
                {"user_attrs": {REPEAT_OF: first}}
                if (first := next(same, None)) is not None
                else {}
            )
        return record


def _attribute_name(record: Mapping[str, Any]) -> str | None:
    """Return the name of the study attribute that a record sets; "" for a CREATE_STUDY record; None for an invalid record."""
    if record["op_code"] == Op.CREATE_STUDY:
        return ""
    attributes = record.get("user_attr", record.get("system_attr"))
    return next(iter(attributes), None) or None if isinstance(attributes, dict) else None


def _summarize(lines: Sequence[bytes], result: Mapping[str, Any] | None) -> RebuiltJournal:
    """Return a `RebuiltJournal` for a valid journal.

    Only `lines`, `ended`, `unfinished` and `contradiction` are set.
    """
    ended, given, unfinished = list[str](), list[str](), list[str]()
    rules = Rules()
    for line in lines:
        assert rules.fault(parse_line(line)) is None
    for number, trial in enumerate(rules.trials):
        if trial.started:
            (unfinished if trial.state == RUNNING else given if trial.given else ended).append(
                format_trial_id(number)
            )
    contradicts = None if result is None else contradiction(ended, given, result)
    return RebuiltJournal(
        tuple(lines), ended=tuple(ended), unfinished=tuple(unfinished), contradiction=contradicts
    )
