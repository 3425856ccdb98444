"""What a request to `/predict` may hold, and everything that is wrong with one: the field, the rule, the row. Pure.

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

# Problems that one answer names at most.
MAX_PROBLEMS = 20


class Refused(Exception):
    """A request that is not answered.

    Attributes:
        status: of HTTP.
        problems: each with `rule`, and where they apply `field`, `row` (from 0) and `value` (in short).
    """

    def __init__(self, status: int, problems: Sequence[Mapping[str, Any]]):
        super().__init__(problems[0]["rule"])
        self.status, self.problems = status, list(problems)

    def body(self) -> dict[str, Any]:
        """What is answered."""
        return {"detail": self.problems}


@dataclass(frozen=True)
class Rows:
    """Rows of a request, checked.

    Attributes:
        count: how many.
        values: by column, in the order of the columns: floats with NaN for null for a number, else as they came.
        by_column: whether they came as columns, and so are answered.
    """

    count: int
    values: dict[str, list[Any]]
    by_column: bool


RULES = {
    "integer": "must be a number or null",
    "double": "must be a number or null",
    "boolean": "must be true, false or null",
    "string": "must be text or null",
    "datetime": "must be a date or a time in a text, as 2026-01-31T12:00:00, or null",
    "any": "is anything",
}


def rule_of(column: ColumnSchema) -> str:
    """What the values of a column must be, in words."""
    if column.type == "category":
        return RULES["string" if _of_text(column) else "double"]
    if column.type == "tensor":
        return f"must be {tensor_rule(column)}, in nested lists"
    return RULES[column.type]


def _of_text(column: ColumnSchema) -> bool:
    return not column.categories or any(isinstance(c, str) for c in column.categories)


def read(body: bytes, columns: Sequence[ColumnSchema], max_rows: int = MAX_ROWS) -> Rows:
    """The rows of a request.

    Args:
        body: JSON.
        columns: of the model. Others are ignored.

    Raises:
        Refused: 400 for what is no JSON, 413 for too many rows, 422 for what is not rows of these columns.
    """
    try:
        found = pydantic_core.from_json(body, allow_inf_nan=False)
    except ValueError as e:
        raise Refused(400, [{"rule": f"the body must be JSON: {e}"}]) from None
    if isinstance(found, list):
        return _records(found, columns, max_rows)
    if isinstance(found, dict) and len({"records", "columns"} & set(found)) == 1:
        if "records" not in found:
            return _columns(found["columns"], columns, max_rows)
        if isinstance(found["records"], list):
            return _records(found["records"], columns, max_rows)
        raise Refused(422, [{"field": "records", "rule": "must be a list of records"}])
    raise Refused(422, [{"rule": 'the body must be {"records": [...]}, {"columns": {...}} or a list of records'}])


def _records(records: list[Any], columns: Sequence[ColumnSchema], max_rows: int) -> Rows:
    _bounded(len(records), max_rows)
    wrong = [{"row": i, "rule": "a record must be an object", "value": short(r)} for i, r in enumerate(records) if not isinstance(r, dict)]
    if wrong:
        raise Refused(422, _some(wrong))
    problems: list[dict[str, Any]] = []
    values: dict[str, list[Any]] = {}
    for column in columns:
        name = column.name
        try:
            raw = [record[name] for record in records]
        except KeyError:
            row = next(i for i, record in enumerate(records) if name not in record)
            problems.append({"field": name, "row": row, "rule": "is missing; null says that a value is not known"})
            continue
        values[name] = _checked(column, raw, problems)
    if problems:
        raise Refused(422, _some(problems))
    return Rows(len(records), values, False)


def _columns(found: Any, columns: Sequence[ColumnSchema], max_rows: int) -> Rows:
    if not isinstance(found, dict):
        raise Refused(422, [{"field": "columns", "rule": "must be an object of lists"}])
    missing = [c.name for c in columns if c.name not in found]
    problems: list[dict[str, Any]] = [{"field": n, "rule": "is missing; null says that a value is not known"} for n in missing]
    named = [c for c in columns if c.name in found]
    problems += [{"field": c.name, "rule": "must be a list of values"} for c in named if not isinstance(found[c.name], list)]
    if problems:
        raise Refused(422, _some(problems))
    count = len(found[named[0].name]) if named else 0
    _bounded(count, max_rows)
    values: dict[str, list[Any]] = {}
    for column in named:
        if len(found[column.name]) != count:
            rule = f"must have as many values as `{named[0].name}`: {count}, not {len(found[column.name])}"
            problems.append({"field": column.name, "rule": rule})
        else:
            values[column.name] = _checked(column, found[column.name], problems)
    if problems:
        raise Refused(422, _some(problems))
    return Rows(count, values, True)


def _some(problems: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first of what is wrong; that there may be more, if there may."""
    more = [{"rule": f"these are the first {MAX_PROBLEMS} of what is wrong; there may be more"}]
    return problems[:MAX_PROBLEMS] + more * (len(problems) >= MAX_PROBLEMS)


def _bounded(count: int, most: int) -> None:
    if count > most:
        raise Refused(413, [{"rule": f"a request must have at most {most} rows, not {count}"}])


def _checked(column: ColumnSchema, values: list[Any], problems: list[dict[str, Any]]) -> list[Any]:
    """The values as they are used; what is wrong with the first bad ones is added to `problems`."""
    if column.type == "tensor":
        take: Any = functools.partial(_tensor, column=column)
    else:
        take = _TAKES[("string" if _of_text(column) else "double") if column.type == "category" else column.type]
    taken: list[Any] = []
    for row, value in enumerate(values):
        try:
            taken.append(take(value))
        except (ValueError, TypeError, KeyError, OverflowError):
            if len(problems) < MAX_PROBLEMS:
                problems.append({"field": column.name, "row": row, "rule": rule_of(column), "value": short(value)})
    return taken


def _number(value: Any) -> float:
    kind = type(value)
    if kind is float or kind is int:
        value = float(value)
        if math.isinf(value):
            raise ValueError
        return value
    if value is None:
        return math.nan
    raise ValueError


def _kind(kind: type) -> Any:
    def take(value: Any) -> Any:
        if value is None or type(value) is kind:
            return value
        raise ValueError

    return take


def _tensor(value: Any, column: ColumnSchema) -> Any:
    """Nested lists as an array; null where cells have no common shape and so may be missing."""
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


_TAKES: dict[str, Any] = {
    "integer": _number,
    "double": _number,
    "boolean": _kind(bool),
    "string": _kind(str),
    "datetime": _date,
    "any": lambda value: value,
}


def short(value: Any) -> str:
    """A value as JSON, cut to what a message has room for."""
    text = pydantic_core.to_json(value, fallback=str).decode()
    return text if len(text) <= 60 else text[:59] + "…"


def schemas(
    columns: Sequence[ColumnSchema], classes: Sequence[Any] | None, max_rows: int = MAX_ROWS
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The JSON Schemas of a request and of an answer, with the model's own fields."""
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
    said = {"anyOf": [{"type": "array", "items": each, "title": "of records"}, {**lists, "title": "of columns"}]}
    return request, {"type": "object", "properties": {"predictions": said}, "required": ["predictions"]}


def _nested(column: ColumnSchema) -> dict[str, Any]:
    """Lists in lists, as deep and as long as a tensor's shape says."""
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
    # JSON Schema's `date-time` has a time zone, which is refused where training had none
    return field | ({"format": "date-time"} if "," in column.dtype else {"examples": ["2026-01-31T12:00:00"]})
