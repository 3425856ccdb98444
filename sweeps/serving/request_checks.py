"""Check the body of a request to `/predict`, and report every problem with its field, row and rule.

Pure functions, no I/O.

A body has one of these three formats:

[{"age": 31, "plan": "a"}, ...]
{"records": [{"age": 31, "plan": "a"}, ...]}
{"columns": {"age": [31, ...], "plan": ["a", ...]}}
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pydantic_core

from sweeps.bundle.manifest import ColumnSchema
from sweeps.bundle.schema import tensor_rule
from sweeps.core.label_columns import MULTILABEL, SEVERAL, label_columns
from sweeps.data.column_values import to_tensor
from sweeps.data.missing import is_missing
from sweeps.serving.limits import MAX_ROWS

# The largest number of problems in one answer.
MAX_PROBLEMS = 20
MISSING = "is missing; send null if the value is unknown"


class Refused(Exception):
    """Raised if a request must be refused, for example because its body is not valid.

    Attributes:
        status: The HTTP status of the answer.
        problems: One dict for each problem. It has the key `rule`, and may have `field`, `row`
            (counted from 0) and `value` (shortened).
    """

    def __init__(self, status: int, problems: Sequence[Mapping[str, Any]]):
        super().__init__(problems[0]["rule"])
        self.status, self.problems = status, list(problems)

    def body(self) -> dict[str, Any]:
        """Return the JSON body of the answer, as a dict."""
        return {"detail": self.problems}


@dataclass(frozen=True)
class Rows:
    """The checked rows of a request.

    Attributes:
        count: Number of rows.
        values: The values by column, in the order of the model's columns. Numbers are floats, and
            null among numbers is NaN.
        by_column: True if the request has `columns` instead of records. The answer then has the
            same form: one list of predictions for each column of the model's output.
    """

    count: int
    values: dict[str, list[Any]]
    by_column: bool


@dataclass(frozen=True)
class _Kind:
    """Rules for the values that a request may have in a column of a certain type.

    Attributes:
        json_type: The type's name in JSON Schema; "" if any value is allowed.
        rule: The rule for a value, in words, such as "must be a number or null".
        convert: Function that takes a value of the request and returns the value for the model. It
            raises an error if the value breaks the rule.
    """

    json_type: str
    rule: str
    convert: Callable[[Any], Any]


def _number(value: Any) -> float:
    kind = type(value)
    if kind is float or kind is int:
        number = float(value)
        if math.isinf(number):
            raise ValueError
        return number
    if value is None:
        return math.nan
    raise ValueError


def _require_type(kind: type) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        if value is None or type(value) is kind:
            return value
        raise ValueError

    return convert


def _date(value: Any) -> Any:
    if value is None:
        return None
    if type(value) is not str or not value.strip():
        raise ValueError
    datetime.datetime.fromisoformat(value)
    return value


_NUMBER = _Kind("number", "must be a number or null", _number)
_KINDS = {
    "integer": _NUMBER,
    "double": _NUMBER,
    "boolean": _Kind("boolean", "must be true, false or null", _require_type(bool)),
    "string": _Kind("string", "must be text or null", _require_type(str)),
    "datetime": _Kind(
        "string", "must be a date or a time as text, such as 2026-01-31T12:00:00, or null", _date
    ),
    "any": _Kind("", "can be any value", lambda value: value),
}


def _kind(column: ColumnSchema) -> _Kind:
    if column.type == "category":
        return _KINDS[
            "string"
            if not column.categories or any(isinstance(c, str) for c in column.categories)
            else "double"
        ]
    if column.type != "tensor":
        return _KINDS[column.type]

    def convert(value: Any) -> Any:
        if value is None and column.shape is None:
            return None
        if type(value) is not list:
            raise ValueError
        return to_tensor(value, column.dtype, column.shape)

    return _Kind("array", f"must be {tensor_rule(column)}, in nested lists", convert)


def rule_of(column: ColumnSchema) -> str:
    """Return the rule for the values of a column, in words, such as "must be a number or null"."""
    return _kind(column).rule


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
    if isinstance(parsed, list):
        parsed = {"records": parsed}
    if not isinstance(parsed, dict) or ("records" in parsed) == ("columns" in parsed):
        raise Refused(
            422,
            [
                {
                    "rule": 'the body must be {"records": [...]}, {"columns": {...}} or a list of '
                    "records"
                }
            ],
        )
    problems: list[dict[str, Any]] = []
    if "records" in parsed:
        rows = _read_records(parsed["records"], columns, max_rows, problems)
    else:
        rows = _read_columns(parsed["columns"], columns, max_rows, problems)
    if problems:
        more = {"rule": f"only the first {MAX_PROBLEMS} problems are listed; there may be more"}
        raise Refused(422, problems[:MAX_PROBLEMS] + [more] * (len(problems) >= MAX_PROBLEMS))
    return rows


def _read_records(
    records: Any, columns: Sequence[ColumnSchema], max_rows: int, problems: list[dict[str, Any]]
) -> Rows:
    """Convert a list of records to columns. Add missing fields and invalid values to `problems`."""
    if not isinstance(records, list):
        raise Refused(422, [{"field": "records", "rule": "must be a list of records"}])
    _check_row_count(len(records), max_rows)
    values: dict[str, list[Any]] = {}
    for row, record in enumerate(records):
        if not isinstance(record, dict):
            problems.append(
                {"row": row, "rule": "a record must be an object", "value": short(record)}
            )
    for column in () if problems else columns:
        name = column.name
        try:
            cells = [record[name] for record in records]
        except KeyError:
            row = next(i for i, record in enumerate(records) if name not in record)
            problems.append({"field": name, "row": row, "rule": MISSING})
            continue
        values[name] = _convert(column, cells, problems)
    return Rows(len(records), values, False)


def _read_columns(
    lists: Any, columns: Sequence[ColumnSchema], max_rows: int, problems: list[dict[str, Any]]
) -> Rows:
    """Convert the lists of values in `columns`, one list for each field.

    Add missing fields and invalid values to `problems`.
    """
    if not isinstance(lists, dict):
        raise Refused(
            422, [{"field": "columns", "rule": "must be an object with a list for each field"}]
        )
    first = next((c.name for c in columns if isinstance(lists.get(c.name), list)), None)
    count = 0 if first is None else len(lists[first])
    _check_row_count(count, max_rows)
    values: dict[str, list[Any]] = {}
    for column in columns:
        name = column.name
        if name not in lists:
            problems.append({"field": name, "rule": MISSING})
        elif not isinstance(lists[name], list):
            problems.append({"field": name, "rule": "must be a list of values"})
        elif len(lists[name]) != count:
            problems.append(
                {
                    "field": name,
                    "rule": f"must have as many values as `{first}` ({count}), but has "
                    f"{len(lists[name])}",
                }
            )
        else:
            values[name] = _convert(column, lists[name], problems)
    return Rows(count, values, True)


def _check_row_count(count: int, most: int) -> None:
    if count > most:
        raise Refused(413, [{"rule": f"a request must have at most {most} rows, not {count}"}])


def _convert(column: ColumnSchema, values: list[Any], problems: list[dict[str, Any]]) -> list[Any]:
    """Convert the values of a column for the model.

    Leave out invalid values, and add them to `problems`.
    """
    kind = _kind(column)
    convert, converted = kind.convert, []
    missing = is_missing(column.missing)
    for row, value in enumerate(values):
        try:
            converted.append(convert(None if missing(value) else value))
        except (ValueError, TypeError, KeyError, OverflowError):
            if len(problems) < MAX_PROBLEMS:
                problems.append(
                    {"field": column.name, "row": row, "rule": kind.rule, "value": short(value)}
                )
    return converted


def short(value: Any) -> str:
    """Return a value as JSON text, shortened to 60 characters for a message."""
    text = pydantic_core.to_json(value, fallback=str).decode()
    return text if len(text) <= 60 else text[:59] + "…"


def schemas(
    columns: Sequence[ColumnSchema],
    classes: Sequence[Any] | None,
    max_rows: int = MAX_ROWS,
    label: str | Sequence[str] | None = None,
    task: str | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the JSON Schemas of a request to `/predict` and of its answer, for a model with these columns, classes and label."""
    fields = {c.name: _field(c) for c in columns}
    names = list(fields)
    record = {"type": "object", "properties": fields, "required": names}
    by_column = {name: {"type": "array", "items": field} for name, field in fields.items()}
    records = {"type": "array", "items": record, "maxItems": max_rows}
    in_columns = {"type": "object", "properties": by_column, "required": names}
    request = {
        "anyOf": [
            {
                "type": "object",
                "properties": {"records": records},
                "required": ["records"],
                "title": "records",
            },
            {
                "type": "object",
                "properties": {"columns": in_columns},
                "required": ["columns"],
                "title": "columns",
            },
            {**records, "title": "a list of records"},
        ]
    }
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string"}
    prediction: dict[str, Any] = {"enum": list(classes)} if classes else {"type": "number"}
    if classes and type(classes[0]) in kinds:
        prediction["type"] = kinds[type(classes[0])]
    answer = {"prediction": prediction} | {
        f"probability_{c}": {"type": "number"} for c in classes or ()
    }
    if task in SEVERAL:
        kind = {"type": "integer", "enum": [0, 1]} if task == MULTILABEL else {"type": "number"}
        answer = {f"prediction_{name}": kind for name in label_columns(label)}
        answer |= {
            f"probability_{name}": {"type": "number"}
            for name in label_columns(label)
            if task == MULTILABEL
        }
    each = {
        "type": "object",
        "properties": answer,
        "required": [name for name in answer if name.startswith("prediction")],
    }
    lists = {
        "type": "object",
        "properties": {name: {"type": "array", "items": field} for name, field in answer.items()},
    }
    predictions = {
        "anyOf": [
            {"type": "array", "items": each, "title": "of records"},
            {**lists, "title": "of columns"},
        ]
    }
    return request, {
        "type": "object",
        "properties": {"predictions": predictions},
        "required": ["predictions"],
    }


def _field(column: ColumnSchema) -> dict[str, Any]:
    """Return the JSON Schema for a value of a column."""
    if column.type == "tensor" and column.shape is not None:
        field: dict[str, Any] = {"type": "boolean" if column.dtype == "bool" else "number"}
        for size in reversed(column.shape):
            field = {"type": "array", "items": field, "minItems": size, "maxItems": size}
        return field
    name = _kind(column).json_type
    field = {"type": [name, "null"]} if name else {}
    if column.type == "category":
        field["examples"] = list(column.categories or ())[:20]
    elif column.type == "datetime":
        # JSON Schema's `date-time` requires a time zone. If the training data had no time zone, a
        # value with a time zone is refused.
        field |= (
            {"format": "date-time"}
            if "," in column.dtype
            else {"examples": ["2026-01-31T12:00:00"]}
        )
    return field
