"""Convert the values of raw columns to the dtypes that they had in training.

Rows for a prediction may have other dtypes than the rows of training. If a CSV column of integers
has a missing value, the column is read as floats. If a text column has only digits, the column is
read as integers. Fitted preprocessing chains, bundles and the server all use the conversions and
the error message of this module.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from sweeps.core.errors import InputError, Problem
from sweeps.core.label_columns import LabelValue
from sweeps.data.checks.label_checks import as_text

# NumPy's codes for the element types of a tensor: booleans, integers and floats
NUMERIC_KINDS = "biuf"
BOOLEAN_WORDS = {"true": True, "false": False, "1": True, "0": False, "1.0": True, "0.0": False}


class _Summary(str):
    """A short description that an error message shows in place of an array, a list or a mapping."""

    __repr__ = str.__str__  # messages show it without quotes


def _summarize(value: Any) -> Any:
    """Return a value as messages show it: a summary of a large value, or a scalar of Python."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return _Summary(f"a mapping with {len(value)} keys")
    if not isinstance(value, np.ndarray | list | tuple):
        return value
    try:
        return _Summary(f"an array of shape {np.asarray(value).shape}")
    except ValueError:
        return _Summary("lists of different lengths")


@dataclass(frozen=True)
class InvalidColumnValue(Problem):
    """A problem with a value that is not valid for its column.

    Attributes:
        column: Name of the column.
        rule: The rule for the values of the column, such as "must hold numbers".
        row: Row of the value, counted from 0.
        value: The value, or a short description of an array, a list or a mapping, such as "a
            mapping with 3 keys".
    """

    column: str
    rule: str
    row: int
    value: Any

    @classmethod
    def create(cls, column: str, rule: str, row: int, value: Any) -> InvalidColumnValue:
        """Create the problem and its message. In the message, rows are counted from 1."""
        value = _summarize(value)
        return cls(
            "input",
            f"column `{column}` holds {value!r} in row {row + 1}, but {rule}",
            column,
            rule,
            row,
            value,
        )

    def shifted(self, rows: int) -> InvalidColumnValue:
        """Return the same problem with its row number increased by `rows`."""
        return self.create(self.column, self.rule, self.row + rows, self.value)


def _refuse_unparsed(values: pd.Series, parsed: pd.Series, name: str, rule: str) -> None:
    """Check that every value was parsed. Missing values and blank text need not be parsed.

    Args:
        values: The values before parsing.
        parsed: The values after parsing. A value that could not be parsed is missing here.
        name: Name of the column.
        rule: See `InvalidColumnValue`.

    Raises:
        InputError: A value could not be parsed. The error reports the first such value.
    """
    for row in np.flatnonzero(parsed.isna() & values.notna()):
        if str(values.iloc[row]).strip():
            raise InputError(InvalidColumnValue.create(name, rule, int(row), values.iloc[row]))


def to_numbers(values: pd.Series, name: str) -> pd.Series:
    """Convert a column to numbers. Text such as "1.5" is parsed.

    A column with a numeric or boolean dtype is returned unchanged.

    Raises:
        InputError: A value is not a number.
    """
    if pd.api.types.is_numeric_dtype(values.dtype):
        return values
    # Pandas would convert dates to nanoseconds.
    objects = values.astype(object).where(values.notna(), None)
    numbers = pd.to_numeric(objects, errors="coerce")
    _refuse_unparsed(values, numbers, name, "must hold numbers")
    return numbers


def to_integers(numbers: pd.Series, dtype: str) -> pd.Series:
    """Convert numbers to an integer dtype.

    If a value is missing or does not fit the dtype, such as 1.5, all values become floats.

    Args:
        numbers: The column.
        dtype: The dtype of NumPy or pandas, such as "int64" or "Int64".
    """
    if pd.api.types.is_integer_dtype(numbers.dtype) and not numbers.isna().any():
        values = numbers.to_numpy()
    else:
        values = numbers.to_numpy("float64", na_value=np.nan)
        # From 2**53, a float does not tell which integer it was read from.
        exact = np.isfinite(values) & (values == np.trunc(values)) & (np.abs(values) < 2**53)
        if not exact.all():
            return pd.Series(values, index=numbers.index)
    integers = values.astype(dtype.lower(), copy=False)
    fits = (integers == values).all()
    return pd.Series(integers if fits else values, index=numbers.index)


def to_booleans(values: pd.Series) -> pd.Series:
    """Convert 1, 0 and the words "true" and "false", in any case, to booleans.

    If there are other values, such as missing values, these are kept, and the result has the dtype
    `object`.
    """
    known = values.map(lambda v: BOOLEAN_WORDS.get(str(v).lower(), v), na_action="ignore")
    all_known = known.map(lambda v: isinstance(v, bool)).all()
    return known.astype(bool if all_known else object)


def to_text(values: pd.Series) -> pd.Series:
    """Convert a column to text.

    For example, ZIP codes that were read as numbers become text again.
    """
    if values.dtype == "str":
        return values
    return values.astype(object).map(as_text, na_action="ignore").astype("str")


def to_dates(values: pd.Series, name: str, dtype: str) -> pd.Series:
    """Convert a column to dates. Text must be ISO 8601, with `T` or a space between date and time.

    Args:
        values: Text or dates.
        name: Name of the column, for messages.
        dtype: Dtype of the column in training, such as "datetime64[us, UTC]". If it has a time
            zone, a value without one is read as UTC.

    Raises:
        InputError: A value is not a date, has a time zone although the dtype has none, or is
            outside the range of the dtype.
    """
    has_zone = "," in dtype  # then each row may have its own offset, as in summer and winter

    def parse(rows: pd.Series) -> pd.Series | None:
        """Return the dates; None if one has a wrong time zone, or does not fit the dtype."""
        try:
            parsed = pd.to_datetime(rows, errors="coerce", format="ISO8601", utc=has_zone)
            return parsed.astype(dtype)
        except (TypeError, ValueError):
            return None

    dates = parse(values)
    if dates is None:
        # Search for the first row that cannot be parsed: the first n rows fail if they include it.
        counts = range(1, len(values))
        row = bisect.bisect_left(counts, True, key=lambda n: parse(values.iloc[:n]) is None)
        zone = pd.to_datetime(values.iloc[[row]], errors="coerce", format="ISO8601").dt.tz
        wrong_zone = zone is not None and not has_zone
        limit = "without a time zone" if wrong_zone else f"within the range of {dtype}"
        raise InputError(
            InvalidColumnValue.create(
                name,
                f"must hold dates {limit}, such as 2026-01-31T12:00:00, as in training",
                row,
                values.iloc[row],
            )
        )
    _refuse_unparsed(values, dates, name, "must hold dates, such as 2026-01-31T12:00:00")
    return dates


def json_scalar(value: Any) -> LabelValue | None:
    """Convert a NumPy scalar to a Python scalar.

    Values of types that JSON does not support become text.
    """
    value = value.item() if isinstance(value, np.generic) else value
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def is_tensor(values: pd.Series) -> bool:
    """Return whether a column holds tensors of Ray Data.

    Bundles are loaded without Ray, so only the name of the dtype is checked.
    """
    return type(values.dtype).__name__ == "TensorDtype"


def tensors_to_arrays(values: pd.Series) -> pd.Series:
    """Convert a column of Ray Data's tensors to NumPy arrays, which can be read without Ray.

    Other columns are returned unchanged.
    """
    if not is_tensor(values):
        return values
    cells = np.empty(len(values), dtype=object)
    for i, cell in enumerate(values):
        cells[i] = np.asarray(cell)
    return pd.Series(cells, index=values.index, name=values.name)


def to_tensor(value: Any, dtype: str, shape: list[int] | None) -> np.ndarray:
    """Convert a value of a tensor column to an array.

    Args:
        value: An array, nested lists, a flat list of all elements, or a mapping with `data` and
            `shape`. If a Parquet file is read without Ray, each tensor of Ray Data is a flat list
            or, if the shapes differ within the column, a mapping.
        dtype: Type of the elements.
        shape: Required shape of the array. None if any shape is allowed.

    Raises:
        ValueError, TypeError, KeyError, OverflowError: The value is not an array of this type and
            shape.
    """
    if isinstance(value, Mapping):
        array = _array(value["data"]).reshape([int(n) for n in value["shape"]])
    else:
        array = _array(value)
    if array.dtype.kind not in NUMERIC_KINDS or not array.ndim:
        raise ValueError("not an array of numbers")
    if shape is not None and array.shape != tuple(shape):
        if array.ndim > 1:
            raise ValueError("wrong shape")
        array = array.reshape(shape)
    typed = array.astype(dtype, copy=False)
    if typed.dtype.kind != "f" and not (typed == array).all():
        raise ValueError("the type cannot hold the values")
    return typed


def _array(value: Any) -> np.ndarray:
    """Convert nested lists, or an array of arrays, to one array."""
    array = np.asarray(value)
    if array.dtype == object and array.ndim and array.size:
        return np.stack([_array(part) for part in array])
    return array
