"""Rules for the content and the order of the records in a study's journal. Pure functions, no I/O.

Optuna numbers trials by the order of their CREATE_TRIAL records. Optuna also skips a record about a trial that does not exist or has
ended. So Optuna can load a journal with lost or duplicated lines, but may assign later reports to the wrong trials. These rules detect such
a journal.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from typing import Any

from optuna.distributions import BaseDistribution, check_distribution_compatibility, json_to_distribution
from optuna.storages.journal._storage import JournalOperation as Op
from optuna.trial import TrialState

from sweeps.core.json_files import is_deep
from sweeps.core.trial import format_trial_id
from sweeps.space.conditions import COMPARISONS
from sweeps.study.objectives import Objectives
from sweeps.study.record import ORIGIN, PASSED, PAUSED, PERTURBED, TOLD, Perturbation
from sweeps.study.repeats import AGGREGATES

RUNNING, COMPLETE, PRUNED, FAIL, WAITING = (TrialState[name].value for name in ("RUNNING", "COMPLETE", "PRUNED", "FAIL", "WAITING"))
_LARGEST = 2**1023


class Fault(Exception):
    """A record is invalid. The message is the reason."""


# Exceptions that reading a record with unexpected content can raise.
UNREADABLE = (Fault, TypeError, ValueError, AttributeError, LookupError, ArithmeticError, RecursionError)


class _Trial:
    """State of a trial after the records read so far.

    Attributes:
        state: Optuna's number of the state.
        params: Names of the parameters that are set.
        told: Number of progress records.
        begun: True if the `begun` attribute is set.
        closed: True if the last progress record has no reports, so that the trial may end.
        given: True for an initial point with a known result.
    """

    __slots__ = ("begun", "closed", "given", "params", "state", "told")

    def __init__(self, state: int):
        self.state, self.params, self.told = state, set[str](), 0
        self.begun = self.closed = self.given = False


class Rules:
    """Validate the records of a journal one by one, in order.

    Optuna, `record` and `study_store` can read every journal whose records are all valid.

    Attributes:
        trials: Trials created so far, by number.
    """

    def __init__(self) -> None:
        self.trials: list[_Trial] = []
        self._study: str | None = None
        self._values = 0  # number of values of a complete trial
        self._judged = False
        self._created: Any = None  # the previous record if it created a trial, else None
        self._texts: dict[str, BaseDistribution] = {}
        self._dimensions: dict[str, BaseDistribution] = {}
        self._checks: dict[int, Callable[[dict[str, Any]], None]] = {
            Op.CREATE_STUDY: self._create_study,
            Op.SET_STUDY_USER_ATTR: self._study_attr,
            Op.SET_STUDY_SYSTEM_ATTR: self._study_attr,
            Op.CREATE_TRIAL: self._create_trial,
            Op.SET_TRIAL_PARAM: self._param,
            Op.SET_TRIAL_STATE_VALUES: self._state,
            Op.SET_TRIAL_INTERMEDIATE_VALUE: self._intermediate,
            Op.SET_TRIAL_USER_ATTR: self._user_attr,
            Op.SET_TRIAL_SYSTEM_ATTR: self._system_attr,
        }

    def fault(self, record: Any) -> str | None:
        """Validate the next record. An invalid record does not change the state.

        Args:
            record: The JSON value of the line, or `NOTHING`.

        Returns:
            The problem as a short text, or None if the record is valid.
        """
        if type(record) is not dict:
            return "is no JSON" if record is NOTHING else f"is a JSON {_KINDS.get(type(record), 'value')}, and no record"
        op = record.get("op_code")
        check = self._checks.get(op) if type(op) is int else None
        if check is None:
            return f"is a record with the unknown `op_code` {_shown(op)}"
        try:
            _need(type(record["worker_id"]) is str, "`worker_id` is no text")
            check(record)
        except Fault as e:
            return str(e)
        except KeyError as e:
            return f"is a record without `{_shown(e.args[0])}`"
        except UNREADABLE as e:
            return f"is a record that cannot be read: {_shown(e)}"
        self._created = record if op == Op.CREATE_TRIAL else None
        return None

    # Records about the study

    def _create_study(self, record: dict[str, Any]) -> None:
        name, directions = record["study_name"], record["directions"]
        _need(type(name) is str, "`study_name` is no text")
        if self._study is not None:
            # Each driver writes this record again, and Optuna skips the repetition.
            _need(name == self._study, f"begins another study, {_shown(name)}")
            return
        _need(type(directions) is list and bool(directions), "`directions` is no list")
        _need(all(type(d) is int and d in (1, 2) for d in directions), "`directions` has one that is neither 1 nor 2")
        self._study, self._values = name, len(directions)

    def _study_attr(self, record: dict[str, Any]) -> None:
        self._in_study(record)
        if record["op_code"] == Op.SET_STUDY_SYSTEM_ATTR:
            _only(record["system_attr"])
            return
        name, value = _only(record["user_attr"])
        if name == "judged":
            self._judge(value)
            self._judged = True
        elif name == "repeats":
            _need(type(value["count"]) is int and value["count"] >= 1, "`repeats.count` is no number from 1 on")
            _need(value["aggregate"] in AGGREGATES and len(value) == 2, "`repeats.aggregate` is unknown")
        elif name == "stops":
            _need(type(value) is bool, "`stops` is neither true nor false")
        elif name == "data":
            _need(value is None or type(value) is str, "`data` is no text")

    def _judge(self, value: Any) -> None:
        judge = Objectives.from_json(value)
        _need(len(judge.objectives) == self._values, f"has {len(judge.objectives)} objectives, and the study {self._values}")
        for o in judge.objectives:
            _need(type(o.metric) is str and o.goal in ("minimize", "maximize"), f"has an objective {_shown(o)}")
        for c in judge.constraints:
            _need(type(c.metric) is str and c.sign in COMPARISONS and _is_number(c.bound), f"has a constraint {_shown(c)}")

    def _in_study(self, record: dict[str, Any]) -> None:
        number = record["study_id"]
        _need(self._study is not None, "comes before the record that begins the study")
        if type(number) is not int or number != 0:
            raise Fault(f"is about study {_shown(number)}, and there is one study, 0")

    # Records about a trial

    def _create_trial(self, record: dict[str, Any]) -> None:
        self._in_study(record)
        _need(self._judged, "begins a trial before the record that says what trials are judged by")
        _need(record != self._created, "is the same as the line before")
        number, state = len(self.trials), record.get("state", RUNNING)
        user, began = record.get("user_attrs", {}), record["datetime_start"]
        _need(type(user) is dict and type(record.get("system_attrs", {})) is dict, "has attributes that are no object")
        if type(state) is not int or state not in (RUNNING, COMPLETE, WAITING):
            raise Fault(f"begins a trial in the state {_shown(state)}")
        trial = _Trial(state)
        if state != WAITING or began is not None:
            _time(began)
        origin = user.get(ORIGIN, 0)
        if origin != 0 and not (type(origin) is int and 0 <= origin < number):
            raise Fault(f"repeats trial {_shown(origin)}, which has not begun by then")
        if state == COMPLETE:
            self._given(record, trial, number)
        else:
            early = ("params", "distributions", "value", "values", "intermediate_values", "datetime_complete")
            if "begun" in user or any(map(record.get, early)):
                raise Fault(f"has results of trial {format_trial_id(number)}, which begins here")
        self.trials.append(trial)

    def _given(self, record: dict[str, Any], trial: _Trial, number: int) -> None:
        """Validate the CREATE_TRIAL record of an initial point with a known result. This one record holds the whole trial."""
        _time(record["datetime_complete"])
        single, several = record.get("value"), record.get("values")
        values = several if single is None else [single]
        _need(single is None or several is None, "has both `value` and `values`")
        _values(values, self._values)
        params, distributions = record["params"], record["distributions"]
        _need(params.keys() == distributions.keys(), "has parameters without a distribution")
        for name, value in params.items():
            self._contained(name, value, distributions[name])
        trial.params = set(params)
        _need(record["user_attrs"]["begun"]["given"] is True, "creates a trial that has ended")
        self._begun(record["user_attrs"]["begun"], trial, number)
        trial.begun = trial.closed = trial.given = True

    def _open(self, record: dict[str, Any]) -> tuple[_Trial, int]:
        """Return the trial that a record is about, and its number.

        Raises:
            Fault: The trial does not exist, or has ended.
        """
        number = record["trial_id"]
        if type(number) is not int or not 0 <= number < len(self.trials):
            raise Fault(f"is about trial {_shown(number)}, and {len(self.trials)} trials have begun by then")
        trial = self.trials[number]
        if trial.state != RUNNING and trial.state != WAITING:
            raise Fault(f"is about trial {format_trial_id(number)}, which has ended by then")
        return trial, number

    def _param(self, record: dict[str, Any]) -> None:
        trial, _ = self._open(record)
        name = record["param_name"]
        _need(type(name) is str, "`param_name` is no text")
        self._contained(name, record["param_value_internal"], record["distribution"])
        trial.params.add(name)

    def _contained(self, name: str, value: Any, text: Any) -> None:
        """Check that a parameter is within its distribution, and that the distribution is compatible with that of earlier trials."""
        _need(type(text) is str, "has a distribution that is no text")
        if (distribution := self._texts.get(text)) is None:
            distribution = json_to_distribution(text)
        if not (_is_number(value) and distribution._contains(value)):
            raise Fault(f"has {_shown(value)} for `{_shown(name)}`, which is outside its distribution")
        known = self._dimensions.get(name, distribution)
        if known is not distribution:
            check_distribution_compatibility(known, distribution)
        self._texts[text] = distribution
        self._dimensions.setdefault(name, distribution)

    def _intermediate(self, record: dict[str, Any]) -> None:
        self._open(record)
        _need(type(record["step"]) is int and _is_number(record["intermediate_value"]), "has a step or a value that is no number")

    def _system_attr(self, record: dict[str, Any]) -> None:
        self._open(record)
        name, value = _only(record["system_attr"])
        if name.startswith("constraints:"):
            _need(_is_number(value), f"`{name}` is no number")
        elif name == "fixed_params":
            _need(type(value) is dict, f"`{name}` is no object")

    def _state(self, record: dict[str, Any]) -> None:
        trial, number = self._open(record)
        state = record["state"]
        if type(state) is not int or state not in (RUNNING, COMPLETE, PRUNED, FAIL):
            raise Fault(f"has the unknown state {_shown(state)}")
        if state == RUNNING:
            if trial.state != WAITING:
                raise Fault(f"starts trial {format_trial_id(number)}, which runs by then")
            _time(record["datetime_start"])
        else:
            if trial.state != RUNNING or not trial.closed:
                raise Fault(f"ends trial {format_trial_id(number)}, where {'its last report' if trial.begun else '`begun`'} is due")
            end_of(record, self._values)
        trial.state = state

    def _user_attr(self, record: dict[str, Any]) -> None:
        trial, number = self._open(record)
        name, value = _only(record["user_attr"])
        if name.startswith(TOLD):
            if not trial.begun or name != f"{TOLD}{trial.told}":
                due = f"`{TOLD}{trial.told}`" if trial.begun else "`begun`"
                raise Fault(f"has `{_shown(name)}` of trial {format_trial_id(number)}, where {due} is due")
            trial.closed = not told_of(value)
            trial.told += 1
        elif name == "begun":
            _need(trial.state == RUNNING, "begins a trial that is still in line")
            self._begun(value, trial, number)
            trial.begun = True
        elif name == PASSED:
            _need(type(value) is int, f"`{PASSED}` is no step")
        elif name == PAUSED:
            _need(value is None or type(value) is int, f"`{PAUSED}` is no step")

    def _begun(self, value: Any, trial: _Trial, number: int) -> None:
        if value["id"] != format_trial_id(number):
            raise Fault(f"begins trial {_shown(value['id'])}, where trial {format_trial_id(number)} is due")
        begun_of(value)
        if absent := value["labels"].keys() ^ trial.params:
            raise Fault(f"begins trial {format_trial_id(number)}, and has other parameters than it: {_shown(', '.join(sorted(absent)))}")


def begun_of(value: dict[str, Any]) -> None:
    """Validate the `begun` attribute of a trial, except for its id.

    Args:
        value: Value of the attribute.

    Raises:
        Fault: A value is invalid.
        KeyError: A key is missing.
        TypeError: A value has the wrong type.
        AttributeError: A value has the wrong type.
    """
    _need(type(value["seed"]) is int and type(value["preprocessor"]) is str, "has a seed or a preprocessor of another kind")
    scaling, data, bracket = value["scaling"], value.get("data", {}), value.get("bracket")
    _need(type(scaling["num_workers"]) is int and 0 < scaling["num_workers"] < 10**9, "`num_workers` is no number from 1 on")
    _need(all(map(_is_number, scaling["resources_per_worker"].values())), "`resources_per_worker` has what is no number")
    for named in (value["params"], value["labels"], data):
        _need(type(named) is dict and not is_deep(named), "has a configuration that is no object")
    _need(bracket is None or type(bracket) is int, "`bracket` is no number")
    _need(type(value.get("given", False)) is bool, "`given` is neither true nor false")


def end_of(record: dict[str, Any], count: int) -> None:
    """Validate a record that ends a trial.

    Args:
        record: The record.
        count: Number of values of a complete trial.

    Raises:
        Fault: A value is invalid.
        KeyError: A key is missing.
        TypeError: The time is not a text.
        ValueError: The time is not in ISO format.
    """
    state, values = record["state"], record["values"]
    _need(type(state) is int and state in (COMPLETE, PRUNED, FAIL) and type(record["worker_id"]) is str, "ends no trial")
    _time(record["datetime_complete"])
    if state == COMPLETE:
        _values(values, count)
    else:
        _need(values is None or (state == PRUNED and type(values) is list and all(map(_is_number, values))), "has `values`")


def _values(values: Any, count: int) -> None:
    if type(values) is not list or len(values) != count or not all(_is_number(v) and v == v for v in values):
        raise Fault(f"completes a trial with {_shown(values)} for its {count} values")


def told_of(value: dict[str, Any]) -> int:
    """Validate a progress record of a trial, and return the number of its reports.

    Args:
        value: Value of a `told.N` attribute.

    Raises:
        Fault: A value is invalid.
        KeyError: A key is missing.
        TypeError: A value has the wrong type.
        ValueError: A row has the wrong length.
        AttributeError: A value has the wrong type.
    """
    reports = value["reports"]
    _need(type(reports) is list, "`reports` is no list")
    for step, at, lead, rest in reports:
        if type(step) is not int or step < 0 or not (_is_number(at) and _is_number(lead) and type(rest) is dict):
            raise Fault("has a report that is no report")
        for metric in rest.values():
            if type(metric) is not float and not _is_number(metric):
                raise Fault("has a report with what is no number")
    for name in ("steps", "attempts"):
        _need(type(value[name]) is int and 0 <= value[name] < 10**12, "has a count that is no number from 0 on")
    for name in ("seconds", "at"):
        _need(_is_number(value[name]) and abs(value[name]) < 10**12, "has a time that is no number")
    for name in ("checkpoint", "best"):
        if value.get(name) is not None:
            _checkpoint(value[name])
    for name in ("error", "reason"):
        _need(type(value.get(name, "")) is str, "has an error or a reason that is no text")
    _need(type(value.get(PASSED, 0)) is int, "has a rung that is no step")
    if "final" in value:
        _need(all(map(_is_number, value["final"].values())), "`final` has what is no number")
    if PERTURBED in value:
        _taken(value[PERTURBED])
    return len(reports)


def _checkpoint(value: dict[str, Any]) -> None:
    _need(value.keys() == {"path", "step", "best_step"}, "has a checkpoint without a path or a step")
    path = value["path"]
    _need(type(path) is str and "\0" not in path, "has a checkpoint without a path")
    _need(path.rstrip("/").rpartition("/")[2] not in ("", ".", ".."), "has a checkpoint without a name")
    _need(type(value["step"]) is int and type(value["best_step"]) is int, "has a checkpoint without a step")


def _taken(value: dict[str, Any]) -> None:
    """Validate a recorded PBT decision. See `StudyStore.record_perturbation` and `StudyStore.record_unperturbed`."""
    _need(type(value["step"]) is int, f"`{PERTURBED}.step` is no step")
    if "donor" not in value:
        return
    taken = Perturbation(**{name: value[name] for name in Perturbation.__dataclass_fields__})
    _need(type(taken.donor) is str and type(taken.origin) is int and _is_number(taken.time), f"`{PERTURBED}` names no donor")
    for named in (taken.keys, taken.params, taken.labels):
        _need(type(named) is dict and not is_deep(named), f"`{PERTURBED}` has a configuration that is no object")
    _need(taken.keys.keys() == taken.labels.keys(), f"`{PERTURBED}` has keys without a value")
    for curve in (value["curve"], *value["others"].values()):
        for step, metric in curve:
            _need(type(step) is int and _is_number(metric), f"`{PERTURBED}` has a curve that is none")


def readable(line: bytes) -> dict[str, Any] | None:
    """Return the record of a line, or None if the line is not a record.

    Only the JSON and the `op_code` are checked. `Rules` checks the content and the order.

    Args:
        line: The line.
    """
    record = parsed(line)
    known = isinstance(record, dict) and type(record.get("op_code")) is int and record["op_code"] in Op.__members__.values()
    return record if known else None


def parsed(line: bytes) -> Any:
    """Return the JSON value of a line; `NOTHING` if the line is not JSON."""
    try:
        return json.loads(line.decode())
    except (ValueError, RecursionError):
        return NOTHING


NOTHING = object()
_KINDS = {list: "list", str: "text", int: "number", float: "number", bool: "value", type(None): "null"}


def _need(holds: bool, why: str) -> None:
    if not holds:
        raise Fault(why)


def _only(attributes: dict[str, Any]) -> tuple[str, Any]:
    """Return the name and the value of the only attribute. Raise ValueError if there is not exactly one attribute."""
    ((name, value),) = attributes.items()
    return name, value


def _is_number(value: Any) -> bool:
    """Return True if a value can be converted to a float. NaN and infinity count as numbers."""
    kind = type(value)
    return kind is float or kind is bool or (kind is int and -_LARGEST < value < _LARGEST)


def is_time(at: Any) -> bool:
    """Return True if a value is a time in seconds since the epoch that `datetime` can represent."""
    return _is_number(at) and 0 <= at < 10**11


def _time(text: Any) -> None:
    """Check that a text is a time in ISO format with a time zone, so that Optuna can read it."""
    found = datetime.datetime.fromisoformat(text)  # raises TypeError if the value is not a text
    if not 2 <= found.year <= 9998 or found.tzinfo is None:
        raise Fault(f"has {_shown(text)} for a time")


def _shown(value: Any) -> str:
    """Return a value of a damaged line as text for an error message: printable characters only, at most 60 of them."""
    try:
        text = value if isinstance(value, str) else str(value) if isinstance(value, Exception) else repr(value)
    except ValueError:  # an integer of thousands of digits
        text = "a number"
    text = " ".join("".join(c if c.isprintable() else "?" for c in text).split())
    return text if len(text) <= 60 else f"{text[:57]}..."
