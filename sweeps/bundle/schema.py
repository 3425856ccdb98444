"""Schema of raw columns: infer it in training, and bring later rows back to it.

The values of a column may arrive with another dtype. A CSV file with a gap among integers is read as floats, and text that happens to be
all digits is read as integers. The preprocessor was fitted on one dtype, so every column is converted back to that dtype first.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from sweeps.bundle.manifest import ColumnSchema
from sweeps.core.errors import InputError, Problem
from sweeps.core.suggestions import did_you_mean
from sweeps.data.columns import format_value, is_tensor, tensors_to_arrays

# NumPy's codes for the element types of a tensor: booleans, integers and floats
NUMERIC_KINDS = "biuf"
BOOLEAN_WORDS = {"true": True, "false": False, "1": True, "0": False, "1.0": True, "0.0": False}


def json_scalar(value: Any) -> Any:
    """Convert a NumPy scalar to a Python scalar. Values that JSON does not have become text."""
    value = value.item() if isinstance(value, np.generic) else value
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def infer_schema(raw: pd.DataFrame) -> list[ColumnSchema]:
    """Infer the schema of raw features.

    Args:
        raw: a frame of raw features.

    Returns:
        One entry for each column, in the order of the frame.
    """
    return [_infer_column(str(name), raw.iloc[:, i]) for i, name in enumerate(raw.columns)]


def _infer_column(name: str, values: pd.Series) -> ColumnSchema:
    dtype = values.dtype
    if is_tensor(values):
        shape = [int(n) for n in dtype.element_shape if n is not None]
        element = str(np.asarray(values.iloc[0]).dtype) if len(values) else str(dtype.element_dtype)
        return ColumnSchema(name=name, type="tensor", dtype=element, shape=shape if len(shape) == len(dtype.element_shape) else None)
    if isinstance(dtype, pd.CategoricalDtype):
        return ColumnSchema(name=name, type="category", dtype="category", categories=[json_scalar(c) for c in dtype.categories])
    if pd.api.types.is_bool_dtype(dtype):
        kind = "boolean"
    elif pd.api.types.is_integer_dtype(dtype):
        kind = "integer"
    elif pd.api.types.is_float_dtype(dtype):
        kind = "double"
    elif pd.api.types.is_datetime64_any_dtype(dtype):
        kind = "datetime"
    elif isinstance(dtype, pd.StringDtype):
        kind = "string"
    else:  # A column of objects, such as booleans with a missing value: look at the values
        present = values.dropna()
        kinds = {type(v) for v in present}
        if kinds == {np.ndarray} and all(v.ndim and v.dtype.kind in NUMERIC_KINDS for v in present):
            return ColumnSchema(name=name, type="tensor", dtype=str(np.result_type(*{v.dtype for v in present})))
        kind = {frozenset({str}): "string", frozenset({bool}): "boolean"}.get(frozenset(kinds), "any")
    return ColumnSchema.model_validate({"name": name, "type": kind, "dtype": str(dtype)})


class _Summary(str):
    """A short description that an error message shows in place of an array, a list or a mapping."""

    __repr__ = str.__str__

    @classmethod
    def of(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            return cls(f"a mapping with {len(value)} keys")
        if not isinstance(value, np.ndarray | list | tuple):
            return value
        try:
            return cls(f"an array of shape {np.asarray(value).shape}")
        except ValueError:
            return cls("lists of different lengths")


@dataclass(frozen=True)
class InvalidValue(Problem):
    """A value that its column cannot hold.

    Attributes:
        column: name of the column.
        rule: what the values of the column must be.
        row: row of the value, counted from 0.
        value: the value, or a description of an array or a list.
    """

    column: str
    rule: str
    row: int
    value: Any

    @classmethod
    def create(cls, column: str, rule: str, row: int, value: Any) -> InvalidValue:
        """Create the problem with its message. The message counts rows from 1."""
        value = _Summary.of(value)
        return cls("input", f"column `{column}` holds {value!r} in row {row + 1}, but {rule}", column, rule, row, value)

    def shifted(self, rows: int) -> InvalidValue:
        """Return the same problem with `rows` further rows before it."""
        return self.create(self.column, self.rule, self.row + rows, self.value)


def _invalid(column: ColumnSchema, rule: str, values: pd.Series, row: int) -> InputError:
    return InputError(InvalidValue.create(column.name, rule, int(row), values.iloc[row]))


def enforce_schema(frame: pd.DataFrame, columns: Sequence[ColumnSchema]) -> pd.DataFrame:
    """Convert rows from any source to the columns, order and dtypes of training.

    Args:
        frame: raw rows. Further columns are ignored.
        columns: the schema of training.

    Returns:
        The rows with the columns of the schema and the index of `frame`.

    Raises:
        InputError: all missing columns in one line, or the first invalid value of each column, as `InvalidValue`.
    """
    present = {str(name): i for i, name in enumerate(frame.columns)}
    missing = [c.name for c in columns if c.name not in present]
    if missing:
        spare = [name for name in present if name not in {c.name for c in columns}]
        names = ", ".join(f"`{name}`{_suggestion(name, spare)}" for name in missing)
        raise InputError(Problem("input", f"column {names} is missing" if len(missing) == 1 else f"columns {names} are missing"))
    problems: list[Problem] = []
    typed: dict[str, pd.Series] = {}
    for column in columns:
        try:
            typed[column.name] = _convert(frame.iloc[:, present[column.name]], column)
        except InputError as e:
            problems += e.problems
    if problems:
        raise InputError(problems)
    return pd.DataFrame(typed, index=frame.index, columns=[c.name for c in columns])


def _suggestion(name: str, names: Iterable[str]) -> str:
    """Return ` (did you mean ...?)` if an unused column has a similar name."""
    tail = did_you_mean(name, names)
    return f" ({tail})" if tail.startswith("did you mean") else ""


def _convert(values: pd.Series, column: ColumnSchema) -> pd.Series:
    if column.type == "tensor":
        return _to_tensors(tensors_to_arrays(values), column)
    if str(values.dtype) == column.dtype and column.type != "category":
        return values
    if column.type in ("integer", "double"):
        return _to_numbers(values, column)
    if column.type == "boolean":
        known = values.map(lambda v: BOOLEAN_WORDS.get(str(v).lower(), v), na_action="ignore")
        return known.astype(bool) if known.map(lambda v: isinstance(v, bool)).all() else known.astype(object)
    if column.type == "string":
        text = values.astype(object).map(format_value, na_action="ignore")
        return text.astype(object if column.dtype == "object" else "str")
    if column.type == "category":
        known = values.astype(object).where(values.isin(column.categories or []), None)
        return known.astype(pd.CategoricalDtype(column.categories))
    if column.type == "datetime":
        return _to_dates(values, column)
    return values


def _to_tensors(values: pd.Series, column: ColumnSchema) -> pd.Series:
    """Convert cells to NumPy arrays. Only a column whose cells have no common shape may have missing cells."""
    cells = np.empty(len(values), dtype=object)
    for row, value in enumerate(values):
        if column.shape is None and (value is None or value is np.nan):
            continue
        try:
            cells[row] = to_tensor(value, column)
        except (ValueError, TypeError, KeyError, OverflowError):
            raise _invalid(column, f"must hold {tensor_rule(column)}", values, row) from None
    return pd.Series(cells, index=values.index)


def tensor_rule(column: ColumnSchema) -> str:
    """Describe the array that each cell of a tensor column must hold."""
    return f"an array of {column.dtype}" + ("" if column.shape is None else f" of shape {tuple(column.shape)}")


def to_tensor(value: Any, column: ColumnSchema) -> np.ndarray:
    """Convert a cell of a tensor column to an array.

    Args:
        value: an array or nested lists. Readers without Ray find Ray Data's tensors in a Parquet file as the values in one row or, if
            shapes differ, as a mapping of `data` and `shape`; both are accepted.
        column: the schema of the column.

    Returns:
        The array, with the type and the shape of the column.

    Raises:
        ValueError, TypeError, KeyError, OverflowError: the value is not an array of the column's type and shape.
    """
    array = _array(value["data"]).reshape([int(n) for n in value["shape"]]) if isinstance(value, Mapping) else _array(value)
    if array.dtype.kind not in NUMERIC_KINDS or not array.ndim:
        raise ValueError("not an array of numbers")
    if column.shape is not None and array.shape != tuple(column.shape):
        if array.ndim > 1:
            raise ValueError("wrong shape")
        array = array.reshape(column.shape)
    wanted = np.dtype(column.dtype)
    typed = array.astype(wanted, copy=False)
    if wanted.kind != "f" and not (typed == array).all():
        raise ValueError("the type cannot hold the values")
    return typed


def _array(value: Any) -> np.ndarray:
    """Convert nested lists or arrays to one array."""
    array = np.asarray(value)
    return np.stack([_array(part) for part in array]) if array.dtype == object and array.ndim and array.size else array


def tensors_to_arrow(values: pd.Series) -> Any:
    """Convert a column of arrays to an Arrow array of nested lists, which any reader of Parquet understands."""
    import pyarrow as pa

    cells = [value for value in values if isinstance(value, np.ndarray)]
    shapes = {(cell.shape, cell.dtype) for cell in cells}
    if len(cells) < len(values) or len(shapes) != 1 or not cells[0].size:
        return pa.array([value.tolist() if isinstance(value, np.ndarray) else None for value in values])
    nested = pa.array(np.concatenate([cell.ravel() for cell in cells]))
    for size in reversed(cells[0].shape):
        nested = pa.FixedSizeListArray.from_arrays(nested, size)
    return nested


def _to_dates(values: pd.Series, column: ColumnSchema) -> pd.Series:
    """Convert a column to dates as in training. Text is ISO 8601, with `T` or a space."""
    dates = _parse_dates(values, column)
    if dates is None:  # Some value has a time zone that training did not have, or lacks one. Find the first such value.
        row = bisect.bisect_left(range(1, len(values)), True, key=lambda n: _parse_dates(values.iloc[:n], column) is None)
        zone = "with a time zone, as 2026-01-31T12:00:00+00:00" if "," in column.dtype else "without a time zone, as 2026-01-31T12:00:00"
        raise _invalid(column, f"must hold dates as in training, {zone}", values, row)
    bad = np.flatnonzero(dates.isna() & values.notna() & (values.astype(str).str.strip() != ""))
    if len(bad):
        raise _invalid(column, "must hold dates, as 2026-01-31T12:00:00", values, bad[0])
    return dates


def _parse_dates(values: pd.Series, column: ColumnSchema) -> pd.Series | None:
    """Parse dates to the dtype of training; values that are not dates become NaT. None if the dates do not share that dtype."""
    aware = "," in column.dtype  # such as `datetime64[us, UTC]`: each row may have its own offset, as in summer and winter
    try:
        return pd.to_datetime(values, errors="coerce", format="ISO8601", utc=aware).astype(column.dtype)
    except (TypeError, ValueError):
        return None


def _to_numbers(values: pd.Series, column: ColumnSchema) -> pd.Series:
    """Convert a column to numbers as in training. Whole numbers become integers unless a value is missing. Blank text counts as missing."""
    if pd.api.types.is_datetime64_any_dtype(values.dtype) or pd.api.types.is_timedelta64_dtype(values.dtype):
        values = values.astype(object).where(values.notna(), None)  # pandas would return nanoseconds
    numbers = pd.Series(pd.to_numeric(values, errors="coerce"), index=values.index)
    if not pd.api.types.is_numeric_dtype(values.dtype):
        bad = np.flatnonzero(numbers.isna() & values.notna() & (values.astype(str).str.strip() != ""))
        if len(bad):
            raise _invalid(column, "must hold numbers", values, bad[0])
    if column.type == "double":
        return pd.Series(numbers.to_numpy(column.dtype if column.dtype[:5] == "float" else "float64", na_value=np.nan), index=values.index)
    if pd.api.types.is_integer_dtype(numbers.dtype) and not numbers.isna().any():
        exact = numbers.to_numpy()
    else:
        exact = numbers.to_numpy("float64", na_value=np.nan)
        if not (np.isfinite(exact) & (exact == np.trunc(exact)) & (np.abs(exact) < 2**53)).all():
            return pd.Series(exact, index=values.index)
    whole = exact.astype(column.dtype.lower(), copy=False)
    return pd.Series(whole if (whole == exact).all() else exact, index=values.index)
