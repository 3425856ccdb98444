"""Rebuild a damaged journal from its readable lines and from the sweep's result. Pure functions, no I/O.

A readable line is kept in its place if `journal_rules` allows the record there. Only progress records may get new numbers. Missing records
are inserted where later records need them. For example, Optuna numbers trials by the order of the CREATE_TRIAL records, so a lost
CREATE_TRIAL record must be replaced. If too much of a trial is lost, the trial is created but not started. A resumed sweep then samples the
trial again.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from optuna.distributions import BaseDistribution, check_distribution_compatibility, distribution_to_json, json_to_distribution
from optuna.storages.journal._storage import JournalOperation as Op
from optuna.trial import FrozenTrial, TrialState

from sweeps.core import registry
from sweeps.core.json_files import is_number
from sweeps.core.resources import COSTS
from sweeps.core.result import best_trials, contradiction, to_json_value
from sweeps.core.trial import Checkpoint, Trial, format_trial_id
from sweeps.search.plugins import planned_scheduler
from sweeps.space import Space
from sweeps.space.domains import Dimension, quantile
from sweeps.study import record, trial_building
from sweeps.study.distributions import distribution_of
from sweeps.study.journal_rules import (
    COMPLETE,
    PRUNED,
    RUNNING,
    UNREADABLE,
    WAITING,
    Fault,
    Rules,
    begun_of,
    end_of,
    is_time,
    parsed,
    told_of,
)
from sweeps.study.objectives import Objectives
from sweeps.study.record import ORIGIN, TOLD

# `worker_id` of the inserted records.
WORKER = "sweeps repair"
# Largest number of option combinations to try when the configuration of a trial is derived from the result.
MOST_TRIED = 5_000
# Largest number of trials in a rebuilt journal. Larger trial numbers in a record are considered damaged.
MOST_TRIALS = 100_000
# Progress of a trial without a progress record.
_NO_NEWS: dict[str, Any] = {"steps": 0, "checkpoint": None, "best": None, "attempts": 1, "seconds": 0.0, "at": 0.0}


@dataclass(frozen=True)
class Known:
    """Facts from the sweep's folder other than the journal and the result.

    Attributes:
        space: The search space.
        when: Time for inserted records, in seconds since the epoch.
        data: Fingerprint of the data; None if it is unknown.
        saved: Checkpoint with the best model of each trial that the result describes, by trial id. Trials without a checkpoint are left
            out.
        trials: Numbers of the trials that have a folder.
    """

    space: Space
    when: float
    data: str | None = None
    saved: Mapping[str, Checkpoint] = field(default_factory=dict)
    trials: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Salvaged:
    """A rebuilt journal, and what happened to each trial.

    Attributes:
        lines: Lines of the rebuilt journal.
        changed: True if the lines differ from the damaged journal.
        dropped: (line number, problem) of each line that was not kept.
        ended: Ids of the trials with a recorded end, without the trials in `rebuilt`.
        rebuilt: Ids of the trials whose end was lost and was restored from the result.
        go_on: Ids of the started trials without a recorded end. A resumed sweep continues them from a checkpoint or runs them again.
        lost: Ids of the trials of which too much was lost. A resumed sweep samples other trials in their place.
        shortened: Ids of the trials in `ended` that lost some of their reports.
        contradiction: How the rebuilt study contradicts the result; None if it does not.
    """

    lines: tuple[bytes, ...]
    changed: bool = False
    dropped: tuple[tuple[int, str], ...] = ()
    ended: tuple[str, ...] = ()
    rebuilt: tuple[str, ...] = ()
    go_on: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    shortened: tuple[str, ...] = ()
    contradiction: str | None = None


def first_fault(lines: Iterable[bytes]) -> tuple[int, str] | None:
    """Return the first damaged line of a journal.

    Args:
        lines: Lines of the journal.

    Returns:
        (line number, problem), where the first line has number 1; None if no line is damaged.
    """
    rules = Rules()
    for number, line in enumerate(lines, 1):
        if (why := rules.fault(parsed(line))) is not None:
            return number, why
    return None


def salvage(lines: Sequence[bytes], result: Mapping[str, Any] | None, known: Known) -> Salvaged:
    """Rebuild a journal as described at the top of this module.

    Args:
        lines: Lines of the journal, each with its line feed.
        result: A valid result of the sweep (see `sweeps.core.result.result_error`); None if the sweep has no result.
        known: Other facts about the sweep.

    Returns:
        The rebuilt journal. The lines are unchanged if no line is damaged and the study does not contradict the result.
    """
    if first_fault(lines) is None:
        untouched = _summary(lines, lines, result, {}, (), ())
        if untouched.contradiction is None:
            return untouched
    return _Salvage(lines, result, known).salvaged()


@dataclass
class _Line:
    """A readable or an inserted line of the journal."""

    at: float  # index of the line, starting with 0; a fraction for an inserted record
    record: dict[str, Any]
    raw: bytes | None = None  # None for an inserted record

    @property
    def text(self) -> bytes:
        """Bytes of the line in the new journal, with the line feed."""
        return self.raw if self.raw is not None else json.dumps(self.record, separators=(",", ":")).encode() + b"\n"


@dataclass
class _Parts:
    """The lines about one trial: first the readable lines, later also the inserted ones.

    Attributes:
        create: The CREATE_TRIAL record.
        params: Records of parameters, by name.
        begun: Record of the `begun` attribute.
        told: Progress records, by number.
        end: Record of the end.
        others: All other records.
        shortened: True if some reports of the ended trial are lost.
    """

    create: _Line | None = None
    params: dict[str, _Line] = field(default_factory=dict)
    begun: _Line | None = None
    told: dict[int, _Line] = field(default_factory=dict)
    end: _Line | None = None
    others: list[_Line] = field(default_factory=list)
    shortened: bool = False

    @property
    def lines(self) -> list[_Line]:
        """All lines except `create`, in their order."""
        own = [*self.params.values(), self.begun, *self.told.values(), *self.others, self.end]
        return sorted((line for line in own if line is not None), key=lambda line: line.at)

    @property
    def given(self) -> bool:
        """True if the trial is an initial point with a known result."""
        return self.create is not None and self.create.record.get("state") == COMPLETE


class _Salvage:
    """Rebuild one journal. The arguments are those of `salvage`."""

    def __init__(self, lines: Sequence[bytes], result: Mapping[str, Any] | None, known: Known):
        self.raw, self.result, self.known, self.space = lines, result, known, known.space
        self.judge = Objectives.from_space(known.space)
        self.dimensions = {d.name: d for d in known.space.dimensions}
        self.distributions = {d.name: distribution_of(d) for d in known.space.dimensions}
        self.scheduler = planned_scheduler(known.space.scheduler)  # a repair runs no code of the folder
        self.study: list[_Line] = []  # lines about the study
        self.creates: list[_Line] = []
        self.parts: dict[int, _Parts] = {}
        self.rebuilt: list[str] = []
        self.seen: set[int] = set()  # numbers of the trials that certainly existed

    def salvaged(self) -> Salvaged:
        """Return the rebuilt journal."""
        self._sort()
        self._number()
        for number, parts in self.parts.items():
            self._complete(number, parts)
        for told in best_trials(self.result or {"best": None}):
            if (number := int(told["trial"])) < self._most:
                self._rebuild(number, told)
        rules, out, kept = Rules(), list[bytes](), set[float]()
        for line in self._in_order():
            # `Rules` rejects two equal CREATE_TRIAL records in a row, so another record is inserted between them.
            if line.record["op_code"] == Op.CREATE_TRIAL and rules.trials and out[-1] == line.text:
                out.append(_Line(0, self._header()[-1]).text)
                rules.fault(self._header()[-1])
            if rules.fault(line.record) is None:
                out.append(line.text)
                kept.add(line.at)
        dropped = {i: raw for i, raw in enumerate(self.raw) if i not in kept}
        return _summary(self.raw, out, self.result, dropped, self.rebuilt, self._lost_and_shortened(rules))

    # Collect the readable lines

    @property
    def _most(self) -> int:
        """Upper bound of the number of trials. A record with a larger trial number is damaged."""
        limits, points = self.space.limits, len(self.space.search.initial_points)
        return max(min(limits.max_trials * self.space.repeats.count + points, MOST_TRIALS), len(self.creates))

    def _sort(self) -> None:
        """Collect the readable lines: lines about the study, CREATE_TRIAL records, and the lines about each trial."""
        found = []
        for i, raw in enumerate(self.raw):
            line = _Line(i, parsed(raw), raw)
            if not isinstance(line.record, dict) or type(line.record.get("op_code")) is not int:
                continue
            found.append(line)
            again = len(found) > 1 and found[-2].record == line.record
            if line.record["op_code"] == Op.CREATE_TRIAL and not again:
                self.creates.append(line)
        for line in found:
            op, number = line.record["op_code"], line.record.get("trial_id")
            if op in (Op.CREATE_STUDY, Op.SET_STUDY_USER_ATTR, Op.SET_STUDY_SYSTEM_ATTR):
                self.study.append(line)
            elif type(number) is int and 0 <= number < self._most:
                self._take(self.parts.setdefault(number, _Parts()), number, line)

    def _take(self, parts: _Parts, number: int, line: _Line) -> None:
        """Add a line to the parts of its trial if the record is valid. If a record occurs several times, the first line counts."""
        op, said = line.record["op_code"], line.record
        if op == Op.SET_TRIAL_PARAM and self._is_param(said):
            parts.params.setdefault(said["param_name"], line)
        elif op == Op.SET_TRIAL_USER_ATTR and isinstance(said.get("user_attr"), dict) and len(said["user_attr"]) == 1:
            ((name, value),) = said["user_attr"].items()
            if name == "begun" and _holds(begun_of, value) and value.get("id") == format_trial_id(number):
                parts.begun = parts.begun or line
            elif name.startswith(TOLD):
                if name.removeprefix(TOLD).isdecimal() and _holds(told_of, value):
                    parts.told.setdefault(int(name.removeprefix(TOLD)), line)
            elif name != "begun":
                parts.others.append(line)
        elif op == Op.SET_TRIAL_STATE_VALUES and _holds(lambda end: end_of(end, len(self.judge.objectives)), said):
            parts.end = parts.end or line
        elif op in (Op.SET_TRIAL_STATE_VALUES, Op.SET_TRIAL_INTERMEDIATE_VALUE, Op.SET_TRIAL_SYSTEM_ATTR):
            parts.others.append(line)

    def _is_param(self, said: dict[str, Any]) -> bool:
        """Return True if a record sets a parameter of the space to a value within its distribution."""
        name = said.get("param_name")
        if not isinstance(name, str) or name not in self.distributions or not is_number(said.get("param_value_internal")):
            return False
        try:
            found = json_to_distribution(said["distribution"])
            check_distribution_compatibility(self.distributions[name], found)
            return bool(found._contains(said["param_value_internal"]))
        except Exception:  # Optuna raises various exceptions for a text that is not a distribution
            return False

    def _number(self) -> None:
        """Find the trial that each CREATE_TRIAL record creates, and add trials whose record is lost.

        A CREATE_TRIAL record has no number. The lines between this record and the next CREATE_TRIAL record show the number: it is the
        first trial that no earlier line is about. A record without such lines gets a free number between its neighbours.
        """
        about = sorted((line.at, n) for n, parts in self.parts.items() for line in parts.lines)
        sure = {n for n, parts in self.parts.items() if parts.begun is not None or len(parts.lines) > 1}
        starts = [line.at for line in self.creates]
        first: dict[int, list[int]] = {}  # index in `creates` -> trials whose first line follows that record
        known: set[int] = set()
        for at, n in about:
            if n in sure and n not in known:
                known.add(n)
                first.setdefault(bisect_right(starts, at) - 1, []).append(n)
        last, waiting = -1, list[_Line]()
        for i, line in enumerate(self.creates):
            here = [n for n in first.get(i, ()) if n > last]
            given = _given_number(line.record, self._most)
            number = given if given is not None and given > last else here[0] if here else None
            if number is None:
                waiting.append(line)
                continue
            for free, left in zip(range(last + 1, number), waiting, strict=False):
                self.parts.setdefault(free, _Parts()).create = left
            self.parts.setdefault(number, _Parts()).create = line
            last, waiting = number, []
        # Trials at the end that were created but not started are left out: a resumed sweep creates them again.
        begun = {n for n, parts in self.parts.items() if parts.create is not None or parts.begun is not None}
        best = {int(told["trial"]) for told in best_trials(self.result or {"best": None})}
        end = 1 + max({n for n in begun | best if n < self._most}, default=-1)
        self.seen = sure | self.known.trials | {n for n in begun if n < end - 1}
        self.parts = {n: self.parts.get(n, _Parts()) for n in range(end)}

    # Complete the trials

    def _complete(self, number: int, parts: _Parts) -> None:
        """Insert the missing records of a trial. If this is impossible, remove all records of the trial."""
        if parts.given and self._is_given(number, parts):
            parts.params, parts.begun, parts.told, parts.end, parts.others = {}, None, {}, None, []
            return
        if parts.given:
            parts.create = None
        if (keys := self._keys(number, parts)) is None:
            waits = parts.create is not None and parts.create.record.get("state", RUNNING) == WAITING
            self.parts[number] = _Parts(create=parts.create if waits else None)  # the record of an enqueued trial has its parameters
            return
        self._put_configuration(number, parts, keys)
        self._mend_told(number, parts)

    def _is_given(self, number: int, parts: _Parts) -> bool:
        """Return True if the record that creates an initial point with a known result is valid."""
        assert parts.create is not None
        rules = self._rules(number)
        return rules.fault(parts.create.record) is None

    def _rules(self, number: int) -> Rules:
        """Return rules that have read the records of the study and the CREATE_TRIAL records of `number` trials."""
        rules = Rules()
        for said in (*self._header(), *(_created(i, self.known.when) for i in range(number))):
            assert rules.fault(said) is None
        return rules

    def _keys(self, number: int, parts: _Parts) -> dict[str, Any] | None:
        """Return the key of each active dimension of a trial; None if a key is unknown."""
        keys = {name: _external(line.record) for name, line in parts.params.items()}
        if parts.begun is None:
            asked: dict[str, Any] = {}

            def choose(dimension: Dimension) -> Any:
                asked[dimension.name] = keys[dimension.name]
                return keys[dimension.name]

            return asked if _holds(lambda _: trial_building.build_trial(self.space, number, choose), None) else None
        told = _attribute(parts.begun)
        if told["labels"].keys() <= keys.keys():
            return {name: keys[name] for name in told["labels"]}
        if not told["labels"].keys() <= self.dimensions.keys():
            return None
        for name, value in told["labels"].items():
            if name not in keys:
                keys[name] = _key(self.dimensions[name], self.distributions[name], value)
        keys = {name: keys[name] for name in told["labels"]}
        if None in [k for n, k in keys.items() if not self.dimensions[n].options]:
            return None
        made = self._assembled(number, keys)
        return keys if made is not None and _alike(to_json_value(made.params), told["params"]) else None

    def _assembled(self, number: int, keys: Mapping[str, Any]) -> Trial | None:
        """Return the trial with these keys; None if the keys are not exactly those of the active dimensions."""
        found: list[Trial] = []
        _holds(lambda _: found.append(trial_building.build_trial(self.space, number, lambda dimension: keys[dimension.name])), None)
        return found[0] if found and found[0].labels.keys() == keys.keys() else None

    def _put_configuration(self, number: int, parts: _Parts, keys: Mapping[str, Any]) -> None:
        """Insert the missing parameter records of a trial, its missing change to RUNNING and its missing `begun` attribute."""
        at = min([line.at for line in parts.lines], default=len(self.raw))
        params = {name: parts.params[name] for name in keys if name in parts.params}
        for name, key in keys.items():
            if name not in params:
                distribution = self.distributions[name]
                said: dict[str, Any] = {"param_name": name, "param_value_internal": distribution.to_internal_repr(key)}
                said["distribution"] = distribution_to_json(distribution)
                params[name] = _Line(at - 0.5, _record(Op.SET_TRIAL_PARAM, trial_id=number, **said))
        parts.params = params
        waits = parts.create is not None and parts.create.record.get("state", RUNNING) == WAITING
        if waits and not any(line.record["op_code"] == Op.SET_TRIAL_STATE_VALUES for line in parts.others):
            said = {"state": RUNNING, "values": None, "datetime_start": _iso(self._began(parts))}
            parts.others.append(_Line(at - 0.6, _record(Op.SET_TRIAL_STATE_VALUES, trial_id=number, **said)))
        if parts.begun is None:
            at = max((line.at for line in params.values()), default=at - 0.5)
            parts.begun = _Line(at + 0.2, _record(Op.SET_TRIAL_USER_ATTR, trial_id=number, user_attr={"begun": self._begun(number, keys)}))

    def _begun(self, number: int, keys: Mapping[str, Any]) -> dict[str, Any]:
        """Return the `begun` attribute of a trial with these keys, as `StudyStore.record_start` writes it."""
        made = self._assembled(number, keys)
        assert made is not None
        bracket = {"bracket": self.scheduler.bracket(self.space.search.seed, number)} if self.scheduler.bracket_count > 1 else {}
        begun: dict[str, Any] = json.loads(json.dumps(record.start_attributes(made) | bracket))
        return begun

    def _mend_told(self, number: int, parts: _Parts) -> None:
        """Repair the progress records of a trial if some of them are lost.

        The trial is reopened if its end is lost, or if it was COMPLETE and the remaining reports give other values. Then only the
        progress records before the first gap are kept. Otherwise the remaining progress records are renumbered, and a missing last one is
        added.
        """
        told = [parts.told[n] for n in sorted(parts.told)]
        whole = next((i for i, n in enumerate(sorted(parts.told)) if i != n), len(told))
        closed = bool(told) and not _attribute(told[-1])["reports"]
        if whole == len(told) and (closed or parts.end is None):
            return
        state = parts.end.record["state"] if parts.end is not None else RUNNING
        if state == RUNNING or (state == COMPLETE and not self._is_worth(number, parts, told)):
            parts.told, parts.end = dict(enumerate(told[:whole])), None
            last = max((step for line in told[:whole] for step, *_ in _attribute(line)["reports"]), default=0)
            parts.others = [line for line in parts.others if not _is_beyond(line.record, last)]
            return
        parts.shortened = True
        parts.told = {}
        for i, line in enumerate(told):
            same = f"{TOLD}{i}" in line.record["user_attr"]
            parts.told[i] = line if same else _Line(line.at, line.record | {"user_attr": {f"{TOLD}{i}": _attribute(line)}})
        if not closed:
            assert parts.end is not None
            news = _attribute(told[-1]) if told else _NO_NEWS
            parts.told[len(told)] = _Line(parts.end.at - 0.5, _told(number, len(told), news | {"reports": []}))

    def _is_worth(self, number: int, parts: _Parts, told: Sequence[_Line]) -> bool:
        """Return True if the remaining reports of a trial give the values in its recorded end."""
        assert parts.end is not None and parts.begun is not None
        values = parts.end.record.get("values")
        return bool(told) and self._values(number, parts, [_attribute(line) for line in told]) == values

    def _values(self, number: int, parts: _Parts, told: Sequence[dict[str, Any]]) -> list[float | None]:
        """Return the objective values of a complete trial with these progress records."""
        assert parts.begun is not None
        attributes = {"begun": _attribute(parts.begun)} | {f"{TOLD}{i}": value for i, value in enumerate(told)}
        t = FrozenTrial(number, TrialState.COMPLETE, 0.0, None, None, {}, {}, attributes, {}, {}, number)
        return list(record.result_of(t, self.judge).values)

    # Restore ends from the result

    def _rebuild(self, number: int, told: Mapping[str, Any]) -> None:
        """Restore the end of a trial from the result, if the journal has no end of the trial.

        The end is restored only if the reports then give exactly the values in the result. A lost best report is taken from the result.

        Args:
            number: Number of the trial.
            told: Description of the trial in the result.
        """
        parts = self.parts[number]
        if parts.end is not None or parts.given:
            return
        if parts.begun is None:
            keys = configuration_of(self.space, number, told)
            if keys is None:
                return
            parts = self.parts[number] = _Parts(create=parts.create)
            self._put_configuration(number, parts, keys)
        values = self._result_values(number, told)
        chunks = [_attribute(line) for line in parts.told.values()]
        more = self._news(number, told, values, chunks)
        if None in values or self._values(number, parts, [*chunks, *more]) != values:
            return
        at = max((line.at for line in parts.lines), default=0.0)
        for i, value in enumerate(more, len(chunks)):
            parts.told[i] = _Line(at + 0.3, _told(number, i, value))
        done = bool(self.result and self.result["trials"].get("completed"))
        said = {"trial_id": number, "state": COMPLETE if done else PRUNED, "values": values, "datetime_complete": _iso(self.known.when)}
        parts.others += self._violations(number, told, at + 0.35)
        parts.end = _Line(at + 0.4, _record(Op.SET_TRIAL_STATE_VALUES, **said))
        self.rebuilt.append(format_trial_id(number))

    def _result_values(self, number: int, told: Mapping[str, Any]) -> list[float | None]:
        """Return the objective values of a trial in the result. For a repeated trial, these are its own values, not the aggregate."""
        if told.get("repeats"):
            return [told["repeats"]["values"].get(format_trial_id(number))]
        if told.get("values"):
            return [told["values"].get(o.metric) for o in self.judge.objectives]
        return [told["value"]]

    def _news(
        self, number: int, told: Mapping[str, Any], values: Sequence[float | None], chunks: Sequence[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """Return the progress records to append so that a trial has the values in the result.

        Args:
            number: Number of the trial.
            told: Description of the trial in the result.
            values: Objective values of the trial in the result.
            chunks: Remaining progress records of the trial.

        Returns:
            A last progress record without reports. If the best report was lost, a progress record with this report comes first.
        """
        steps = {step for chunk in chunks for step, *_ in chunk["reports"]}
        metrics = {name: value for name, value in told.get("metrics", {}).items() if is_number(value)}
        lead, kept = self.judge.metric, self.known.saved.get(format_trial_id(number))
        step = kept.best_step if kept is not None and kept.best_step > max(steps, default=0) else max(steps, default=0) + 1
        last: dict[str, Any] = dict(chunks[-1] if chunks else _NO_NEWS)
        last |= {"reports": [], "seconds": metrics.get("seconds", last["seconds"])}
        last["at"] = max((self.result or {}).get("seconds", 0.0), last["at"])
        if kept is not None:
            last |= {name: dataclasses.asdict(kept) for name in ("checkpoint", "best")}
        parts = self.parts[number]
        if steps and self._values(number, parts, [*chunks, last]) == list(values):
            return [last]
        own = dict(zip((o.metric for o in self.judge.objectives), values, strict=False))
        value = metrics.get(lead or "", own.get(lead or ""))
        rest = {name: v for name, v in metrics.items() if name not in COSTS and name != lead}
        last["steps"] = max(step, last["steps"])
        report = [step, self.known.when, math.nan if lead is None or value is None else float(value), rest]
        return [last | {"reports": [report]}, last]

    def _violations(self, number: int, told: Mapping[str, Any], at: float) -> list[_Line]:
        """Return the constraint records of a trial in the result, as `StudyStore.finish` writes them."""
        found = []
        for constraint in self.space.constraints:
            value = told.get("metrics", {}).get(constraint.metric)
            broken = constraint.violation(float(value) if is_number(value) else math.nan)
            said = {"trial_id": number, "system_attr": {f"constraints:{constraint.metric}": broken}}
            found.append(_Line(at, _record(Op.SET_TRIAL_SYSTEM_ATTR, **said)))
        return found

    # Order the lines

    def _in_order(self) -> Iterable[_Line]:
        """Return all lines of the new journal in order. Kept lines stay in their places; missing lines are inserted."""
        header, created = self._header(), self._created_at()
        placed: list[tuple[float, int, int, _Line]] = []
        first = min(created.values(), default=float(len(self.raw)))
        sound, rules = [], Rules()
        for line in self.study:
            if self._is_ours(line) and rules.fault(line.record) is None:
                sound.append(line)
        ahead = {_said_of_study(line) for line in sound if line.at < first}
        if "" not in ahead:  # the CREATE_STUDY record is lost; the other records about the study are invalid without it
            ahead, sound = set(), [line for line in self.study if self._is_ours(line) and _said_of_study(line) != ""]
        placed += [(line.at, 1, 0, line) for line in sound]
        begins = max((line.at for line in sound if ahead and line.at < first), default=-2.0) + 0.25
        missing = [said for said in header if _said_of_study(_Line(0, said)) not in ahead]
        placed += [(begins, 0, i, _Line(begins, said)) for i, said in enumerate(missing)]
        rules = self._rules(0)
        configurations = 0
        for number, parts in self.parts.items():
            rules.fault(header[-1])  # separates equal CREATE_TRIAL records, such as those of two repeats
            if parts.create is not None and rules.fault(parts.create.record) is None:
                line = parts.create
            else:
                line = _Line(created[number] - 0.1, self._created(number, configurations, parts))
                rules.fault(line.record)
            configurations += ORIGIN not in line.record.get("user_attrs", {}) and line.record.get("state") != COMPLETE
            placed.append((created[number], 0, number, line))
            placed += [(max(own.at, created[number]), 2, number, own) for own in parts.lines]
        return [line for *_, line in sorted(placed, key=lambda p: (p[0], p[1], p[2], p[3].at))]

    def _created_at(self) -> dict[int, float]:
        """Return the position at which each trial is created, by number.

        This is the position of its CREATE_TRIAL record, or of its first line if the record is lost. It is never behind the position of a
        trial with a higher number.
        """
        found: dict[int, float] = {}
        after = float(len(self.raw)) + 1
        for number in sorted(self.parts, reverse=True):
            parts = self.parts[number]
            own = [parts.create.at] if parts.create is not None else [line.at for line in parts.lines]
            after = found[number] = min([after, *own])
        return found

    def _header(self) -> list[dict[str, Any]]:
        """Return the records with which a driver starts a study; see `StudyStore`."""
        goals = [1 if o.goal == "minimize" else 2 for o in self.judge.objectives]
        attributes: dict[str, Any] = {"judged": json.loads(json.dumps(self.judge.to_json()))}
        stops = bool(self.scheduler.rungs()) or not registry.is_built_in("scheduler", self.space.scheduler.name)
        attributes |= {"repeats": dataclasses.asdict(self.space.repeats), "stops": stops}
        attributes |= {} if self.known.data is None else {"data": self.known.data}
        said = [_record(Op.SET_STUDY_USER_ATTR, study_id=0, user_attr={name: value}) for name, value in attributes.items()]
        return [_record(Op.CREATE_STUDY, study_name=self.space.name, directions=goals), *said]

    def _is_ours(self, line: _Line) -> bool:
        """Return True if a record about the study agrees with the search space of this sweep."""
        name, header = _said_of_study(line), {_said_of_study(_Line(0, said)): said for said in self._header()}
        if name is None:
            return False
        if name == "":
            return bool(line.record.get("directions") == header[""]["directions"])
        return name not in ("judged", "repeats") or line.record["user_attr"] == header[name]["user_attr"]

    def _created(self, number: int, configurations: int, parts: _Parts) -> dict[str, Any]:
        """Return a CREATE_TRIAL record in place of a lost one.

        Args:
            number: Number of the trial.
            configurations: Number of configurations that were created before. A trial that was not started is an initial point if
                this number is below the number of initial points.
            parts: Lines about the trial.
        """
        said = _created(number, self._began(parts))
        points = [point.keys for point in self.space.search.initial_points if point.values is None]
        if parts.begun is None and configurations < len(points):
            return said | {"datetime_start": None, "state": WAITING, "system_attrs": {"fixed_params": dict(points[configurations])}}
        if parts.begun is not None and self.space.repeats.count > 1:
            alike = (n for n in range(number) if (other := self.parts[n].begun) is not None and _is_repeat(parts.begun, other))
            said |= {"user_attrs": {ORIGIN: first}} if (first := next(alike, None)) is not None else {}
        return said

    def _began(self, parts: _Parts) -> float:
        """Return the start time of a trial: the time of its first report, or `Known.when` without a report."""
        for _, line in sorted(parts.told.items()):
            for _, at, *_ in _attribute(line)["reports"]:
                return float(at) if is_time(at) else self.known.when
        return self.known.when

    def _lost_and_shortened(self, rules: Rules) -> tuple[list[str], list[str]]:
        """Return the ids of the lost trials and of the shortened trials, given the rules that have read the new journal."""
        lost = sorted(n for n in self.seen if n >= len(rules.trials) or not rules.trials[n].begun)
        return [format_trial_id(n) for n in lost], [format_trial_id(n) for n, parts in self.parts.items() if parts.shortened]


def configuration_of(space: Space, number: int, told: Mapping[str, Any]) -> dict[str, Any] | None:
    """Find the keys of a trial from its description in the result.

    Numeric values are looked up in the description. Options are found by trial and error: all combinations are tried, up to
    `MOST_TRIED`. A configuration is accepted only if its parameters, preprocessor, scaling and data equal those of the description.

    Args:
        space: The search space.
        number: Number of the trial.
        told: Description of the trial in the result.

    Returns:
        The key of each active dimension; None if no configuration is found.
    """
    tried = 0

    def attempt(fixed: dict[str, Any]) -> dict[str, Any] | None:
        """Try all combinations of options with the given fixed options, depth first. Return the keys of the first that matches."""
        nonlocal tried
        keys: dict[str, Any] = {}
        open_: list[Dimension] = []

        def choose(dimension: Dimension) -> Any:
            if dimension.name not in fixed:
                if dimension.options:
                    open_.append(dimension)
                    raise Fault("open")
                keys[dimension.name] = _key(dimension, distribution_of(dimension), _look_up(told, dimension.name))
                if keys[dimension.name] is None:
                    raise Fault("unknown")
            keys.setdefault(dimension.name, fixed.get(dimension.name))
            return keys[dimension.name]

        made: list[Trial] = []
        tried += 1
        _holds(lambda _: made.append(trial_building.build_trial(space, number, choose)), None)
        if made:
            return keys if _is_told(made[0], told) else None
        for option in open_[0].options if open_ else ():
            if tried < MOST_TRIED and (found := attempt({**fixed, open_[0].name: option.key})) is not None:
                return found
        return None

    return attempt({})


def _is_told(made: Trial, told: Mapping[str, Any]) -> bool:
    """Return True if a trial has the configuration that a result describes."""
    scaling = {"num_workers": made.shape.workers, "resources_per_worker": dict(made.shape.per_worker)}
    same = made.chain == told["preprocessor"] and _alike(to_json_value(scaling), {name: told["scaling"].get(name) for name in scaling})
    return same and _alike(to_json_value(made.params), told["params"]) and _alike(to_json_value(made.data), told.get("data", {}))


def _look_up(told: Mapping[str, Any], name: str) -> Any:
    """Return the value of a numeric dimension in the description of a trial; None if it is not there."""
    section, _, rest = name.partition(".")
    if section == "preprocessor":
        inside = told["preprocessor"].partition(" (")[2].removesuffix(")")
        pairs = dict(pair.partition("=")[::2] for pair in inside.split(", "))
        found = pairs.get(rest.rpartition(".")[2])
        return float(found) if found is not None and _holds(float, found) else None
    found = told.get(section)
    for part in rest.split("."):
        if isinstance(found, dict):
            found = found.get(part)
        elif isinstance(found, list) and part.isdecimal() and int(part) < len(found):
            found = found[int(part)]
        else:
            return None
    return found


def _key(dimension: Dimension, distribution: BaseDistribution, value: Any) -> Any:
    """Return the key of a dimension's value (see `Dimension.value`); None if the sampler cannot produce the value."""
    if dimension.options:
        return value
    if not is_number(value):
        return None
    key = quantile(dimension, value) if dimension.mean is not None else int(value) if dimension.is_integer else float(value)
    return key if distribution._contains(distribution.to_internal_repr(key)) and _alike(dimension.value(key), value) else None


def _alike(a: Any, b: Any) -> bool:
    """Return True if two configurations are equal up to the rounding of numbers."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_alike(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(_alike, a, b))
    if is_number(a) and is_number(b):
        return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)
    return type(a) is type(b) and a == b


def _external(said: dict[str, Any]) -> Any:
    """Return the key that a parameter record sets."""
    return json_to_distribution(said["distribution"]).to_external_repr(said["param_value_internal"])


def _created(number: int, at: float) -> dict[str, Any]:
    """Return a CREATE_TRIAL record. The time includes the number of the trial, so no two such records are equal."""
    return _record(Op.CREATE_TRIAL, study_id=0, datetime_start=_iso(at + 1e-6 * number))


def _is_repeat(one: _Line, other: _Line) -> bool:
    """Return True if the `begun` records of two trials have the same configuration."""
    return all(_attribute(one).get(name) == _attribute(other).get(name) for name in ("params", "labels", "data"))


def _is_beyond(said: dict[str, Any], step: int) -> bool:
    """Return True if a record holds an intermediate value beyond a step, or the constraints of an ended trial."""
    if said["op_code"] == Op.SET_TRIAL_INTERMEDIATE_VALUE:
        return not isinstance(said.get("step"), int) or said["step"] > step
    return said["op_code"] == Op.SET_TRIAL_SYSTEM_ATTR and "constraints" in str(said.get("system_attr"))


def _attribute(line: _Line) -> Any:
    """Return the value of the attribute that a record sets."""
    return next(iter(line.record["user_attr"].values()))


def _told(number: int, index: int, value: dict[str, Any]) -> dict[str, Any]:
    return _record(Op.SET_TRIAL_USER_ATTR, trial_id=number, user_attr={f"{TOLD}{index}": value})


def _record(op: Op, **said: Any) -> dict[str, Any]:
    return {"op_code": int(op), "worker_id": WORKER, **said}


def _iso(at: float) -> str:
    return datetime.datetime.fromtimestamp(at, datetime.UTC).isoformat(timespec="microseconds")


def _given_number(said: dict[str, Any], most: int) -> int | None:
    """Return the number of an initial point with a known result, from its CREATE_TRIAL record; None for any other record."""
    user = said.get("user_attrs")
    begun = user.get("begun") if isinstance(user, dict) else None
    name = begun.get("id") if isinstance(begun, dict) else None
    return int(name) if isinstance(name, str) and name.isdecimal() and len(name) < 10 and int(name) < most else None


def _said_of_study(line: _Line) -> str | None:
    """Return the name of the study attribute that a record sets; "" for a CREATE_STUDY record; None if there is no attribute."""
    if line.record["op_code"] == Op.CREATE_STUDY:
        return ""
    found = line.record.get("user_attr" if line.record["op_code"] == Op.SET_STUDY_USER_ATTR else "system_attr")
    return next(iter(found), None) if isinstance(found, dict) else None


def _holds(check: Callable[[Any], Any], value: Any) -> bool:
    """Return True if a check raises none of the exceptions in `UNREADABLE`."""
    try:
        check(value)
    except UNREADABLE:
        return False
    return True


def _summary(
    before: Sequence[bytes],
    after: Sequence[bytes],
    result: Mapping[str, Any] | None,
    dropped: Mapping[int, bytes],
    rebuilt: Sequence[str],
    more: Sequence[Sequence[str]],
) -> Salvaged:
    """Compare the journal before and after the rebuild, and return what happened to each trial."""
    ended, given, open_ = list[str](), list[str](), list[str]()
    rules = Rules()
    for line in after:
        assert rules.fault(parsed(line)) is None
    for number, trial in enumerate(rules.trials):
        if trial.begun:
            (open_ if trial.state == RUNNING else given if trial.given else ended).append(format_trial_id(number))
    why = {number: _why(raw) for number, raw in dropped.items()}
    lost, shortened = more or ((), ())
    return Salvaged(
        lines=tuple(after),
        changed=list(before) != list(after),
        dropped=tuple((number + 1, text) for number, text in why.items()),
        ended=tuple(n for n in ended if n not in rebuilt),
        rebuilt=tuple(n for n in rebuilt if n in ended),
        go_on=tuple(open_),
        lost=tuple(lost),
        shortened=tuple(n for n in shortened if n in ended),
        contradiction=None if result is None else contradiction(ended, given, result),
    )


def _why(raw: bytes) -> str:
    """Return the problem with a line that was not kept. Only the line itself is examined, so the text is general."""
    said = parsed(raw)
    if not isinstance(said, dict):
        return "is no record"
    return "is a record that cannot stand there"
