"""Check the body of a request to `/predict`, and report every problem with its field, row and rule.

Pure functions, no I/O.

A body has one of these two formats:

[{"age": 31, "plan": "a"}, ...]
{"records": [{"age": 31, "plan": "a"}, ...]}
"""

import datetime
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import pydantic_core
from pydantic import JsonValue

from sweeps.bundle.manifest import ColumnSchema, Manifest
from sweeps.bundle.schema import Cell, tensor_rule
from sweeps.core.label_columns import MULTILABEL
from sweeps.data.columns.column_values import to_tensor
from sweeps.data.columns.missing import missing_test

from .limits import MAX_ROWS

# The largest number of problems in one answer.
MAX_PROBLEMS = 20
JsonSchema = dict[str, JsonValue]
BODY_RULE = 'the body must be {"records": [...]} or a list of records'
MISSING_RULE = "is missing; send null if the value is unknown"


class Refused(Exception):
    """Raised if a request must be refused, for example because its body is not valid.

    Attributes:
        status: The HTTP status of the answer.
        problems: One dict for each problem. It has the key `rule`, and may have `field`, `row`
            (counted from 0) and `value` (shortened).
    """

    def __init__(self, status: int, problems: Sequence[Mapping[str, JsonValue]]):
        super().__init__(problems[0]["rule"])
        self.status = status
        self.problems = list(problems)


@dataclass(frozen=True)
class Rows:
    """The checked rows of a request.

    Attributes:
        count: Number of rows.
        values: The values by column, in the order of the model's columns. Numbers are floats, and
            null among numbers is NaN.
    """

    count: int
    values: dict[str, list[Cell]]


@dataclass(frozen=True)
class Kind:
    """Rules for the values that a request may have in a column of a certain type.

    Attributes:
        json_type: The type's name in JSON Schema; "" if any value is allowed.
        rule: The rule for a value, in words, such as "must be a number or null".
        convert: Function that takes a value of the request and returns the value for the model. It
            raises an error if the value breaks the rule.
    """

    json_type: str
    rule: str
    convert: Callable[[JsonValue], Cell]


def _number(value: JsonValue) -> float:
    """Convert a number; see `Kind.convert`. Null becomes NaN."""
    if value is None:
        return math.nan
    if not isinstance(value, (int, float)) or isinstance(value, bool) or math.isinf(value):
        raise ValueError
    return float(value)


def _require_type(kind: type) -> Callable[[JsonValue], JsonValue]:
    """Return a function that accepts null and values of this type; see `Kind.convert`."""

    def convert(value: JsonValue) -> JsonValue:
        if value is None or type(value) is kind:
            return value
        raise ValueError

    return convert


def _date(value: JsonValue) -> JsonValue:
    """Accept null and the text of a date or time; see `Kind.convert`."""
    if value is None:
        return None
    if type(value) is not str or not value.strip():
        raise ValueError
    datetime.datetime.fromisoformat(value)
    return value


_NUMBER = Kind("number", "must be a number or null", _number)
_KINDS = {
    "integer": _NUMBER,
    "double": _NUMBER,
    "boolean": Kind("boolean", "must be true, false or null", _require_type(bool)),
    "string": Kind("string", "must be text or null", _require_type(str)),
    "datetime": Kind(
        "string", "must be a date or a time as text, such as 2026-01-31T12:00:00, or null", _date
    ),
    "any": Kind("", "can be any value", lambda value: value),
}


def kind_of(column: ColumnSchema) -> Kind:
    """Return the rules for the values of a column."""
    if column.type == "category":
        categories = column.categories or [""]
        return _KINDS["string" if any(isinstance(c, str) for c in categories) else "double"]
    if column.type != "tensor":
        return _KINDS[column.type]

    def convert(value: JsonValue) -> Cell:
        if value is None and column.shape is None:
            return None
        if type(value) is not list:
            raise ValueError
        return to_tensor(value, column.dtype, column.shape)

    return Kind("array", f"must be {tensor_rule(column)}, in nested lists", convert)


def read(body: bytes, columns: Sequence[ColumnSchema], max_rows: int = MAX_ROWS) -> Rows:
    """Parse and check the body of a request.

    Args:
        body: The JSON body.
        columns: The columns that the model needs. Other fields of the request are ignored.
        max_rows: The largest number of rows.

    Raises:
        Refused: 400 if the body is not JSON, 413 for too many rows, 422 for missing fields and
            invalid values.
    """
    try:
        parsed = pydantic_core.from_json(body, allow_inf_nan=False)
    except ValueError as e:
        raise Refused(400, [{"rule": f"the body must be JSON: {e}"}]) from None
    records = parsed.get("records") if isinstance(parsed, dict) else parsed
    if not isinstance(records, list):
        raise Refused(422, [{"rule": BODY_RULE}])
    if len(records) > max_rows:
        rule = f"a request must have at most {max_rows} rows, not {len(records)}"
        raise Refused(413, [{"rule": rule}])
    problems: list[dict[str, JsonValue]] = [
        {"row": row, "rule": "a record must be an object", "value": short(record)}
        for row, record in enumerate(records)
        if not isinstance(record, dict)
    ]
    values: dict[str, list[Cell]] = {}
    if not problems:
        for column in columns:
            values[column.name] = _read_column(column, records, problems)
    if len(problems) >= MAX_PROBLEMS:
        rule = f"only the first {MAX_PROBLEMS} problems are listed; there may be more"
        problems = [*problems[:MAX_PROBLEMS], {"rule": rule}]
    if problems:
        raise Refused(422, problems)
    return Rows(len(records), values)


def _read_column(
    column: ColumnSchema, records: list[dict[str, JsonValue]], problems: list[dict[str, JsonValue]]
) -> list[Cell]:
    """Return the values of a column for the model.

    Leave out missing and invalid values, and add them to `problems`.
    """
    name = column.name
    try:
        values = [record[name] for record in records]
    except KeyError:
        row = next(i for i, record in enumerate(records) if name not in record)
        problems.append({"field": name, "row": row, "rule": MISSING_RULE})
        return []
    kind = kind_of(column)
    convert = kind.convert
    converted = []
    missing = missing_test(column.missing)
    for row, value in enumerate(values):
        try:
            converted.append(convert(None if missing(value) else value))
        except (ValueError, TypeError, KeyError, OverflowError):
            if len(problems) < MAX_PROBLEMS:
                problems.append(
                    {"field": name, "row": row, "rule": kind.rule, "value": short(value)}
                )
    return converted


def short(value: Cell) -> str:
    """Return a value as JSON text, shortened to 60 characters for a message."""
    text = pydantic_core.to_json(value, fallback=str).decode()
    return text if len(text) <= 60 else text[:59] + "…"


def schemas(manifest: Manifest, max_rows: int = MAX_ROWS) -> tuple[JsonSchema, JsonSchema]:
    """Return the JSON Schemas of a request to `/predict` and of its answer."""
    record = _object({c.name: _field(c) for c in manifest.columns})
    records: JsonSchema = {"type": "array", "items": record, "maxItems": max_rows}
    body = _object({"records": records})
    request: JsonSchema = {
        "anyOf": [{**body, "title": "records"}, {**records, "title": "a list of records"}]
    }
    number: JsonSchema = {"type": "number"}
    prediction = number
    if manifest.task == MULTILABEL:
        prediction = {"type": "integer", "enum": [0, 1]}
    elif manifest.classes:
        prediction = {"enum": list(manifest.classes)}
    probabilities = dict.fromkeys(manifest.probability_names, number)
    row = _object(dict.fromkeys(manifest.prediction_names, prediction), probabilities)
    return request, _object({"predictions": {"type": "array", "items": row}})


def _object(
    required: Mapping[str, JsonSchema], optional: Mapping[str, JsonSchema] = MappingProxyType({})
) -> JsonSchema:
    """Return the JSON Schema of an object with these fields."""
    return {
        "type": "object",
        "properties": {**required, **optional},
        "required": list(required),
    }


def _field(column: ColumnSchema) -> JsonSchema:
    """Return the JSON Schema for a value of a column."""
    if column.type == "tensor" and column.shape is not None:
        field: JsonSchema = {"type": "boolean" if column.dtype == "bool" else "number"}
        for size in reversed(column.shape):
            field = {"type": "array", "items": field, "minItems": size, "maxItems": size}
        return field
    name = kind_of(column).json_type
    field = {"type": [name, "null"]} if name else {}
    if column.type == "category":
        field["examples"] = [*(column.categories or ())][:20]
    elif column.type == "datetime":
        # JSON Schema's `date-time` requires a time zone. If the training data had no time zone, a
        # value with a time zone is refused.
        has_zone = "," in column.dtype  # such as `datetime64[ns, UTC]`
        field |= {"format": "date-time"} if has_zone else {"examples": ["2026-01-31T12:00:00"]}
    return field
