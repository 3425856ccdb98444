"""Check the body of a request to `/predict`, and report every problem with its field, row and rule. Pure.

{"records": [{"age": 31, "plan": "a"}, ...]}        or that list alone
{"columns": {"age": [31, ...], "plan": ["a", ...]}}
"""

from __future__ import annotations

import datetime
import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pydantic_core

from sweeps.bundle.manifest import ColumnSchema
from sweeps.bundle.schema import tensor_rule, to_tensor
from sweeps.serving.limits import MAX_ROWS

# The largest number of problems in one answer.
MAX_PROBLEMS = 20


class Refused(Exception):
    """A request that is refused.

    Attributes:
        status: The HTTP status.
        problems: The problems. Each has a `rule`, and may have `field`, `row` (the first is 0) and `value` (shortened).
    """

    def __init__(self, status: int, problems: Sequence[Mapping[str, Any]]):
        super().__init__(problems[0]["rule"])
        self.status, self.problems = status, list(problems)

    def body(self) -> dict[str, Any]:
        """Return the body of the answer."""
        return {"detail": self.problems}


@dataclass(frozen=True)
class Rows:
    """The checked rows of a request.

    Attributes:
        count: Number of rows.
        values: The values of each column, in the order of the columns. Numbers are floats, with NaN for null; others are unchanged.
        by_column: True if the request has columns instead of records. The answer has the same format.
    """

    count: int
    values: dict[str, list[Any]]
    by_column: bool


RULES = {
    "integer": "must be a number or null",
    "double": "must be a number or null",
    "boolean": "must be true, false or null",
    "string": "must be text or null",
    "datetime": "must be a date or a time as text, such as 2026-01-31T12:00:00, or null",
    "any": "can be any value",
}


def rule_of(column: ColumnSchema) -> str:
    """Return the rule for the values of a column, in words."""
    if column.type == "category":
        return RULES["string" if _of_text(column) else "double"]
    if column.type == "tensor":
        return f"must be {tensor_rule(column)}, in nested lists"
    return RULES[column.type]


def _of_text(column: ColumnSchema) -> bool:
    return not column.categories or any(isinstance(c, str) for c in column.categories)


def read(body: bytes, columns: Sequence[ColumnSchema], max_rows: int = MAX_ROWS) -> Rows:
    """Parse and check the body of a request.

    Args:
        body: The JSON body.
        columns: The columns of the model. Other fields are ignored.
        max_rows: The largest number of rows.

    Raises:
        Refused: 400 if the body is not JSON, 413 for too many rows, 422 for missing fields and invalid values.
    """
    try:
        parsed = pydantic_core.from_json(body, allow_inf_nan=False)
    except ValueError as e:
        raise Refused(400, [{"rule": f"the body must be JSON: {e}"}]) from None
    if isinstance(parsed, list):
        return _read_records(parsed, columns, max_rows)
    if isinstance(parsed, dict) and len({"records", "columns"} & set(parsed)) == 1:
        if "records" not in parsed:
            return _read_columns(parsed["columns"], columns, max_rows)
        if isinstance(parsed["records"], list):
            return _read_records(parsed["records"], columns, max_rows)
        raise Refused(422, [{"field": "records", "rule": "must be a list of records"}])
    raise Refused(422, [{"rule": 'the body must be {"records": [...]}, {"columns": {...}} or a list of records'}])


def _read_records(records: list[Any], columns: Sequence[ColumnSchema], max_rows: int) -> Rows:
    _check_row_count(len(records), max_rows)
    wrong = [{"row": i, "rule": "a record must be an object", "value": short(r)} for i, r in enumerate(records) if not isinstance(r, dict)]
    if wrong:
        raise Refused(422, _first_problems(wrong))
    problems: list[dict[str, Any]] = []
    values: dict[str, list[Any]] = {}
    for column in columns:
        name = column.name
        try:
            raw = [record[name] for record in records]
        except KeyError:
            row = next(i for i, record in enumerate(records) if name not in record)
            problems.append({"field": name, "row": row, "rule": "is missing; send null if the value is unknown"})
            continue
        values[name] = _convert(column, raw, problems)
    if problems:
        raise Refused(422, _first_problems(problems))
    return Rows(len(records), values, False)


def _read_columns(found: Any, columns: Sequence[ColumnSchema], max_rows: int) -> Rows:
    if not isinstance(found, dict):
        raise Refused(422, [{"field": "columns", "rule": "must be an object with a list for each field"}])
    missing = [c.name for c in columns if c.name not in found]
    problems: list[dict[str, Any]] = [{"field": n, "rule": "is missing; send null if the value is unknown"} for n in missing]
    named = [c for c in columns if c.name in found]
    problems += [{"field": c.name, "rule": "must be a list of values"} for c in named if not isinstance(found[c.name], list)]
    if problems:
        raise Refused(422, _first_problems(problems))
    count = len(found[named[0].name]) if named else 0
    _check_row_count(count, max_rows)
    values: dict[str, list[Any]] = {}
    for column in named:
        if len(found[column.name]) != count:
            rule = f"must have as many values as `{named[0].name}`: {count}, not {len(found[column.name])}"
            problems.append({"field": column.name, "rule": rule})
        else:
            values[column.name] = _convert(column, found[column.name], problems)
    if problems:
        raise Refused(422, _first_problems(problems))
    return Rows(count, values, True)


def _first_problems(problems: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the first problems, with a remark if there may be more."""
    more = [{"rule": f"only the first {MAX_PROBLEMS} problems are listed; there may be more"}]
    return problems[:MAX_PROBLEMS] + more * (len(problems) >= MAX_PROBLEMS)


def _check_row_count(count: int, most: int) -> None:
    if count > most:
        raise Refused(413, [{"rule": f"a request must have at most {most} rows, not {count}"}])


def _convert(column: ColumnSchema, values: list[Any], problems: list[dict[str, Any]]) -> list[Any]:
    """Convert the values of a column, and add invalid ones to `problems`."""
    if column.type == "tensor":
        convert: Any = functools.partial(_tensor, column=column)
    else:
        convert = _CONVERTERS[("string" if _of_text(column) else "double") if column.type == "category" else column.type]
    converted: list[Any] = []
    for row, value in enumerate(values):
        try:
            converted.append(convert(value))
        except (ValueError, TypeError, KeyError, OverflowError):
            if len(problems) < MAX_PROBLEMS:
                problems.append({"field": column.name, "row": row, "rule": rule_of(column), "value": short(value)})
    return converted


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


def _require_type(kind: type) -> Any:
    def convert(value: Any) -> Any:
        if value is None or type(value) is kind:
            return value
        raise ValueError

    return convert


def _tensor(value: Any, column: ColumnSchema) -> Any:
    """Convert nested lists to an array. Null is allowed only if the column has no common shape."""
    if value is None and column.shape is None:
        return None
    if type(value) is not list:
        raise ValueError
    return to_tensor(value, column)


def _date(value: Any) -> Any:
    if value is None:
        return None
    if type(value) is not str or not value.strip():
        raise ValueError
    datetime.datetime.fromisoformat(value)
    return value


_CONVERTERS: dict[str, Any] = {
    "integer": _number,
    "double": _number,
    "boolean": _require_type(bool),
    "string": _require_type(str),
    "datetime": _date,
    "any": lambda value: value,
}


def short(value: Any) -> str:
    """Return a value as JSON, shortened for a message."""
    text = pydantic_core.to_json(value, fallback=str).decode()
    return text if len(text) <= 60 else text[:59] + "…"


def schemas(
    columns: Sequence[ColumnSchema], classes: Sequence[Any] | None, max_rows: int = MAX_ROWS
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the JSON Schemas of a request and of an answer, with the fields of the model."""
    fields = {c.name: _field(c) for c in columns}
    names = list(fields)
    record = {"type": "object", "properties": fields, "required": names}
    by_column = {name: {"type": "array", "items": field} for name, field in fields.items()}
    records = {"type": "array", "items": record, "maxItems": max_rows}
    in_columns = {"type": "object", "properties": by_column, "required": names}
    request = {
        "anyOf": [
            {"type": "object", "properties": {"records": records}, "required": ["records"], "title": "records"},
            {"type": "object", "properties": {"columns": in_columns}, "required": ["columns"], "title": "columns"},
            {**records, "title": "a list of records"},
        ]
    }
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string"}
    prediction: dict[str, Any] = {"enum": list(classes)} if classes else {"type": "number"}
    if classes and type(classes[0]) in kinds:
        prediction["type"] = kinds[type(classes[0])]
    answer = {"prediction": prediction} | {f"probability_{c}": {"type": "number"} for c in classes or ()}
    each = {"type": "object", "properties": answer, "required": ["prediction"]}
    lists = {"type": "object", "properties": {name: {"type": "array", "items": field} for name, field in answer.items()}}
    predictions = {"anyOf": [{"type": "array", "items": each, "title": "of records"}, {**lists, "title": "of columns"}]}
    return request, {"type": "object", "properties": {"predictions": predictions}, "required": ["predictions"]}


def _nested(column: ColumnSchema) -> dict[str, Any]:
    """Return the schema of nested lists with the shape of a tensor."""
    kind = "boolean" if column.dtype == "bool" else "number"
    if column.shape is None:
        return {"type": ["array", "null"]}
    field: dict[str, Any] = {"type": kind}
    for size in reversed(column.shape):
        field = {"type": "array", "items": field, "minItems": size, "maxItems": size}
    return field


def _field(column: ColumnSchema) -> dict[str, Any]:
    if column.type == "category":
        return {"type": ["string" if _of_text(column) else "number", "null"], "examples": list(column.categories or ())[:20]}
    if column.type == "tensor":
        return _nested(column)
    types = {"integer": "number", "double": "number", "boolean": "boolean", "string": "string", "datetime": "string"}
    field: dict[str, Any] = {"type": [types[column.type], "null"]} if column.type in types else {}
    if column.type != "datetime":
        return field
    # JSON Schema's `date-time` has a time zone, which is refused if the training data had none.
    return field | ({"format": "date-time"} if "," in column.dtype else {"examples": ["2026-01-31T12:00:00"]})
