"""Rules for the order of the records in a study's journal. Pure functions, no I/O.

`journal_records` defines the format of each record.

Optuna numbers trials by the order of their CREATE_TRIAL records. Optuna also skips records about
trials that do not exist or have ended. Optuna can therefore load a journal with lost or duplicated
lines, but may assign later reports to the wrong trials. The rules of this module detect such a
journal.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    check_distribution_compatibility,
    json_to_distribution,
)
from optuna.trial import TrialState as OptunaState
from pydantic import ValidationError

from sweeps.core.trial import Trial, format_trial_id

from . import journal_records as records
from .event_records import (
    EVENTS_PREFIX,
    OBJECTIVES_ATTRIBUTE,
    REPEAT_OF,
    Fault,
    describe_error,
    read_batch,
)
from .events import TrialEnded, TrialEvent, TrialStarted
from .journal_records import COMPLETE, NOTHING, RUNNING, WAITING

# Exceptions that can be raised while a record with unexpected content is read.
UNREADABLE = (TypeError, ValueError, AttributeError, LookupError, ArithmeticError, RecursionError)


@dataclass
class JournalTrial:
    """State of a trial after the records read so far.

    Attributes:
        state: Optuna's number for the state, such as `journal_records.RUNNING`.
        params: Names of the parameters that have a value.
        batches: Number of batches of events.
        ended: Optuna's number for the state in the event of the trial's end; None without this
            event. Only after this event may Optuna's record of the end follow.
    """

    state: int
    params: set[str] = field(default_factory=set)
    batches: int = 0
    ended: int | None = None

    @property
    def started(self) -> bool:
        """True if the trial has events."""
        return self.batches > 0

    @property
    def has_ended(self) -> bool:
        """True if the trial has ended, also if Optuna's record of the end is missing."""
        return self.ended is not None or self.state == COMPLETE


class Rules:
    """Validate the records of a journal one by one, in order.

    If all records of a journal are valid, Optuna and the modules `record` and `study_store` can
    read the journal.

    Attributes:
        trials: Trials created so far, by number.
        has_objectives: True if the record `judged` of the study was read.
    """

    def __init__(self, dimensions: Mapping[str, BaseDistribution] | None = None) -> None:
        self.trials: list[JournalTrial] = []
        self._study_name: str | None = None
        self._value_count = 0  # number of values of a complete trial
        self.has_objectives = False
        self._distributions: dict[str, BaseDistribution] = {}  # by JSON text
        self._dimensions = dict(dimensions or {})

    def apply(self, record: Any) -> str | None:
        """Validate the next record, and update `trials` if the record is valid.

        Args:
            record: The JSON value of the record's line; `NOTHING` if the line is not JSON.

        Returns:
            The problem as a short text; None if the record is valid.
        """
        if type(record) is not dict:
            return "is not JSON" if record is NOTHING else "is JSON, but not an object"
        try:
            self._check(records.RECORD.validate_python(record))
        except (Fault, ValidationError) as e:
            return _printable(describe_error(e))
        except UNREADABLE as e:
            return _printable(f"is a record that cannot be read: {e}")
        return None

    def _check(self, record: records.Record) -> None:
        if isinstance(record, records.CreateStudy):
            self._create_study(record)
        elif self._study_name is None:
            raise Fault("comes before the record that begins the study")
        elif isinstance(record, records.CreateTrial):
            self._create_trial(record)
        elif isinstance(record, records.ChangeTrial):
            self._change_trial(record)
        elif isinstance(record, records.StudyAttribute):
            self._set_study_attribute(*next(iter(record.user_attr.items())))

    # Records about the study

    def _create_study(self, record: records.CreateStudy) -> None:
        # Each driver writes this record again, and Optuna skips the repetition.
        if self._study_name is None:
            self._study_name, self._value_count = record.study_name, len(record.directions)
        elif record.study_name != self._study_name:
            raise Fault(f"begins another study in the same journal, {record.study_name}")

    def _set_study_attribute(self, name: str, value: Any) -> None:
        if name in records.STUDY_ATTRIBUTES:
            value = records.STUDY_ATTRIBUTES[name].validate_python(value)
        if name == OBJECTIVES_ATTRIBUTE:
            if len(value.objectives) != self._value_count:
                raise Fault(
                    f"has {len(value.objectives)} objectives, but the study has {self._value_count}"
                )
            self.has_objectives = True

    # Records about a trial

    def _create_trial(self, record: records.CreateTrial) -> None:
        number = len(self.trials)
        trial = JournalTrial(record.state)
        if record.trial_id != number:
            raise Fault(f"creates trial {record.trial_id}, but trial {number} must come next")
        if not self.has_objectives:
            raise Fault(
                "creates a trial, but the record `judged`, which has the objectives, must come "
                "first"
            )
        first = record.user_attrs.get(REPEAT_OF, 0)
        if first != 0 and not (type(first) is int and 0 <= first < number):
            raise Fault(f"repeats trial {first!r}, which does not exist yet")
        if record.state == COMPLETE:
            self._add_given(record, trial, number)
        self.trials.append(trial)

    def _add_given(self, record: records.CreateTrial, trial: JournalTrial, number: int) -> None:
        """Check the record of an initial point with a known result, and update `trial`.

        This single record contains the whole trial.
        """
        self._check_values(record.values if record.value is None else [record.value])
        for name, value in record.params.items():
            self._check_param(name, value, record.distributions[name])
        trial.params = set(record.params)
        start = self._add_batch(trial, number, record.user_attrs[f"{EVENTS_PREFIX}0"])[0]
        if not isinstance(start, TrialStarted) or start.given is None:
            raise Fault("creates a complete trial that is not an initial point")

    def _change_trial(self, record: records.ChangeTrial) -> None:
        number = record.trial_id
        if number >= len(self.trials):
            raise Fault(
                f"is about trial {number}, but only {len(self.trials)} trials exist at this line"
            )
        trial = self.trials[number]
        if trial.state not in (RUNNING, WAITING):
            raise Fault(f"is about trial {format_trial_id(number)}, which has already ended")
        match record:
            case records.SetParam():
                self._check_param(
                    record.param_name, record.param_value_internal, record.distribution
                )
                trial.params.add(record.param_name)
            case records.SetState():
                self._set_state(trial, number, record)
            case records.TrialAttribute():
                self._set_trial_attribute(trial, number, *next(iter(record.user_attr.items())))

    def _check_param(self, name: str, value: float, text: str) -> None:
        """Check the value and the distribution of a parameter.

        The value must be within the distribution. Optuna must allow this distribution beside the
        one that earlier trials have for the parameter. For example, the options of a categorical
        distribution must be the same.

        Args:
            name: Name of the parameter.
            value: The value in Optuna's internal representation.
            text: The distribution as Optuna's JSON text.
        """
        distribution = self._distributions.get(text) or json_to_distribution(text)
        if not distribution._contains(value):
            raise Fault(f"sets `{name}` to {value!r}, which is outside its distribution")
        check_distribution_compatibility(
            self._dimensions.setdefault(name, distribution), distribution
        )
        self._distributions[text] = distribution

    def _check_values(self, values: list[float] | None) -> None:
        if values is None or len(values) != self._value_count or any(v != v for v in values):
            raise Fault(
                f"completes a trial with the values {values}, but {self._value_count} numbers are "
                "needed"
            )

    def _set_state(self, trial: JournalTrial, number: int, record: records.SetState) -> None:
        if record.state == RUNNING:
            if trial.state != WAITING:
                raise Fault(f"starts trial {format_trial_id(number)}, which is already running")
        elif trial.state != RUNNING or trial.ended != record.state:
            first = "the event of its end" if trial.started else f"`{EVENTS_PREFIX}0`"
            raise Fault(f"ends trial {format_trial_id(number)}, but {first} must come first")
        elif record.state == COMPLETE:
            self._check_values(record.values)
        trial.state = record.state

    def _set_trial_attribute(self, trial: JournalTrial, number: int, name: str, value: Any) -> None:
        if name.startswith(EVENTS_PREFIX):
            due = f"{EVENTS_PREFIX}{trial.batches}"
            if name != due:
                raise Fault(
                    f"has `{name}` of trial {format_trial_id(number)}, but `{due}` must come next"
                )
            if trial.state != RUNNING:
                raise Fault("starts a trial that is still enqueued")
            self._add_batch(trial, number, value)
        elif name in records.TRIAL_ATTRIBUTES:
            records.TRIAL_ATTRIBUTES[name].validate_python(value)

    def _add_batch(self, trial: JournalTrial, number: int, value: Any) -> tuple[TrialEvent, ...]:
        """Check a batch of events, update `trial`, and return the events."""
        events = read_batch(number, value).events
        first = not trial.started
        for event in events:
            if trial.ended is not None:
                raise Fault(f"has an event of trial {format_trial_id(number)} after its end")
            if isinstance(event, TrialStarted) != first:
                raise Fault(f"has the start of trial {format_trial_id(number)} in a wrong place")
            first = False
            if isinstance(event, TrialStarted):
                self._start(trial, event.trial)
            elif isinstance(event, TrialEnded):
                trial.ended = OptunaState[event.result.state.name].value
        trial.batches += 1
        return events

    def _start(self, trial: JournalTrial, started: Trial) -> None:
        different = started.labels.keys() ^ trial.params  # the names that only one of them has
        if different:
            raise Fault(
                f"starts trial {started.id} with other parameters than the earlier lines about "
                f"this trial; only one of the two has: {', '.join(sorted(different))}"
            )


def _printable(text: str) -> str:
    """Replace unprintable characters in a message about a damaged line, and cut the message.

    The result has at most 160 characters.
    """
    text = " ".join("".join(c if c.isprintable() else "?" for c in text).split())
    return text if len(text) <= 160 else f"{text[:157]}..."
