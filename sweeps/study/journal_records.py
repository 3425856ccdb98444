"""Format of the records in a study's journal. `journal_rules` checks the order of the records.

A record is one of Optuna's journal operations. sweeps adds user attributes to the study (`judged`,
`repeats`, `stops`, `data`, `paused`) and to trials (`events.N`, `paused`, `enqueued`). Unknown keys
are ignored in most records.
"""

import contextlib
import datetime
import json
from typing import Annotated, Any, Literal, Self

from optuna.trial import TrialState
from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    Strict,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic_core import from_json

from sweeps.core.json_values import Numbers, Text, is_number

from .choice import CHOICE
from .event_records import EVENTS_PREFIX, OBJECTIVES_ATTRIBUTE, PAUSED, SWEEP_PAUSED

# Optuna's numbers for the states of a trial: 0 to 4
RUNNING, COMPLETE, PRUNED, FAIL, WAITING = (state.value for state in TrialState)
# Returned by `parse_line` for a line that is not JSON.
NOTHING = object()


def _time(text: str) -> str:
    time = datetime.datetime.fromisoformat(text)
    if not 2 <= time.year <= 9998 or time.tzinfo is None:
        raise ValueError("must be a time with a time zone")
    return text


def _system_attribute(attribute: dict[str, Any]) -> dict[str, Any]:
    for name, value in attribute.items():
        # A violation may be infinite, which `is_number` refuses.
        if name.startswith("constraints:") and not (type(value) is float or is_number(value)):
            raise ValueError(f"`{name}` must be a number")
        if name == "fixed_params" and type(value) is not dict:
            raise ValueError("`fixed_params` must be an object")
    return attribute


Time = Annotated[Text, AfterValidator(_time)]
Attribute = Annotated[dict[Text, Any], Field(min_length=1, max_length=1)]


class JsonObject(BaseModel, strict=True):
    """A JSON object in a study. Unknown keys are ignored."""


# Values of attributes


class ObjectivesAttribute(JsonObject):
    """The attribute `judged` of the study: objectives and constraints of the sweep."""

    objectives: list[Annotated[tuple[Text, Literal["minimize", "maximize"]], Strict(False)]]
    constraints: list[Annotated[tuple[Text, Literal["<", "<=", ">", ">="], float], Strict(False)]]
    cross_validated: bool = False
    on_more_rows: bool = False


class RepeatsAttribute(JsonObject, extra="forbid"):
    """The attribute `repeats` of the study: the section `repeats` of the space file."""

    count: Annotated[int, Field(ge=1)]
    aggregate: Literal["mean", "median", "min", "max"]


class ChoiceAttribute(JsonObject, extra="forbid"):
    """The attribute `choice` of the study; see `TrialChoice`."""

    rule: Literal["mean", "confirmed"]
    trials: Annotated[int, Field(ge=1)]
    number: Annotated[int, Field(ge=0)] | None
    values: dict[Annotated[str, Field(pattern="^[0-9]{1,9}$")], list[float | None]]


STUDY_ATTRIBUTES: dict[str, TypeAdapter[Any]] = {
    OBJECTIVES_ATTRIBUTE: TypeAdapter(ObjectivesAttribute),
    "repeats": TypeAdapter(RepeatsAttribute),
    "stops": TypeAdapter(Annotated[bool, Strict()]),
    "data": TypeAdapter(Text | None),
    SWEEP_PAUSED: TypeAdapter(Annotated[bool, Strict()]),
    CHOICE: TypeAdapter(ChoiceAttribute),
}
TRIAL_ATTRIBUTES: dict[str, TypeAdapter[Any]] = {
    PAUSED: TypeAdapter(Annotated[int, Strict()] | None)
}


# Records


class _Record(JsonObject):
    op_code: int
    worker_id: Text


class CreateStudy(_Record):
    """Creation of the study. Each driver that opens the study writes this record again."""

    op_code: Literal[0]
    study_name: Text
    directions: Annotated[list[Annotated[int, Field(ge=1, le=2)]], Field(min_length=1)]


class _StudyRecord(_Record):
    study_id: Literal[0]


class StudyAttribute(_StudyRecord):
    """A user attribute of the study, such as `judged`."""

    op_code: Literal[2]
    user_attr: Attribute


class StudySystemAttribute(_StudyRecord):
    """A system attribute of the study, which a sampler has set."""

    op_code: Literal[3]
    system_attr: Attribute


class CreateTrial(_StudyRecord):
    """Creation of a trial.

    For an initial point with a known result, this record holds the whole trial.
    """

    op_code: Literal[4]
    trial_id: Annotated[int, Field(ge=0)]
    datetime_start: Time | None
    state: Literal[0, 1, 4] = 0  # RUNNING, COMPLETE, WAITING
    user_attrs: dict[Text, Any] = Field(default_factory=dict)
    system_attrs: dict[Text, Any] = Field(default_factory=dict)
    datetime_complete: Time | None = None
    value: float | None = None
    values: list[float] | None = None
    params: Numbers = Field(default_factory=dict)
    distributions: dict[Text, Text] = Field(default_factory=dict)
    intermediate_values: dict[Text, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        results = (  # empty before the trial has ended
            self.params,
            self.distributions,
            self.value,
            self.values,
            self.intermediate_values,
            self.datetime_complete,
        )
        if self.state == COMPLETE:
            has_one_result = (self.value is None) != (self.values is None)
            has_times = self.datetime_start is not None and self.datetime_complete is not None
            consistent = (
                has_one_result and has_times and self.params.keys() == self.distributions.keys()
            )
        else:
            consistent = (
                not any(results)
                and f"{EVENTS_PREFIX}0" not in self.user_attrs
                and (self.datetime_start is not None or self.state == WAITING)
            )
        if not consistent:
            raise ValueError("the trial's times, parameters or values do not fit its state")
        return self


class _TrialRecord(_Record):
    trial_id: Annotated[int, Field(ge=0)]


class SetParam(_TrialRecord):
    """Value of one parameter of a trial."""

    op_code: Literal[5]
    param_name: Text
    param_value_internal: float
    distribution: Text


class SetState(_TrialRecord):
    """Change of a trial's state: the start of a trial that was enqueued, or the end of a trial."""

    op_code: Literal[6]
    state: Literal[0, 1, 2, 3]  # RUNNING, COMPLETE, PRUNED, FAIL
    values: list[float] | None
    datetime_start: Time | None = None
    datetime_complete: Time | None = None

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        time = self.datetime_start if self.state == RUNNING else self.datetime_complete
        if time is None:
            raise ValueError("the time is missing")
        lacks_values = self.state == COMPLETE and self.values is None
        has_extra_values = self.state == FAIL and self.values is not None
        if lacks_values or has_extra_values:
            raise ValueError("the trial's values do not fit its state")
        return self


class SetIntermediateValue(_TrialRecord):
    """The value of the leading metric (see `Objectives.metric`) that a trial reported at a rung."""

    op_code: Literal[7]
    step: int
    intermediate_value: float


class TrialAttribute(_TrialRecord):
    """A user attribute of a trial, such as `events.0`."""

    op_code: Literal[8]
    user_attr: Attribute


class TrialSystemAttribute(_TrialRecord):
    """A system attribute of a trial, which Optuna or a sampler has set."""

    op_code: Literal[9]
    system_attr: Annotated[Attribute, AfterValidator(_system_attribute)]


# Records about a trial that exists
ChangeTrial = SetParam | SetState | SetIntermediateValue | TrialAttribute | TrialSystemAttribute
Record = CreateStudy | StudyAttribute | StudySystemAttribute | CreateTrial | ChangeTrial
RECORD: TypeAdapter[Record] = TypeAdapter(Annotated[Record, Field(discriminator="op_code")])


def parse_line(line: bytes) -> Any:
    """Return the JSON value of a line; `NOTHING` if the line is not JSON."""
    with contextlib.suppress(ValueError):
        # Unlike `json`, it shares equal texts, such as keys, among all lines.
        return from_json(line)
    try:
        return json.loads(line.decode())  # It also accepts halves of surrogate pairs.
    except (ValueError, RecursionError):
        return NOTHING


def is_valid(adapter: TypeAdapter[Any], value: Any) -> bool:
    """Return True if a value has the format that a pydantic adapter describes."""
    try:
        adapter.validate_python(value)
    except (ValidationError, RecursionError):
        return False
    return True
