"""Infer the schema of the raw training columns, and convert later rows to this schema.

`sweeps.data.columns.column_values` has the conversions of single columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from pydantic import JsonValue

from sweeps.core.errors import InputError, Problem, join_first
from sweeps.core.text.suggestions import closest
from sweeps.data.columns.column_values import (
    NUMERIC_KINDS,
    InvalidColumnValue,
    is_tensor,
    json_scalar,
    tensors_to_arrays,
    to_booleans,
    to_dates,
    to_integers,
    to_numbers,
    to_tensor,
    to_text,
)
from sweeps.data.columns.missing import missing_test

from .manifest import ColumnSchema, Scalar

if TYPE_CHECKING:
    import pyarrow as pa

# Value of a row
Cell = JsonValue | np.ndarray
# Types of columns by the kind of their dtype.
_TYPES = {"b": "boolean", "i": "integer", "u": "integer", "f": "double", "M": "datetime"}


def infer_schema(
    raw: pd.DataFrame, missing: Mapping[str, Sequence[Any]] = MappingProxyType({})
) -> list[ColumnSchema]:
    """Infer the schema of raw features.

    Args:
        raw: A frame of raw features.
        missing: Texts and numbers that mean a missing value, by column.

    Returns:
        One entry for each column, in the order of the frame.
    """
    schemas = []
    for i, name in enumerate(raw.columns):
        facts = {"name": str(name), "missing": missing.get(name), **_infer_type(raw.iloc[:, i])}
        schemas.append(ColumnSchema.model_validate(facts))
    return schemas


def _infer_type(values: pd.Series) -> dict[str, Any]:
    """Return the fields of `ColumnSchema` that follow from the values of a column."""
    dtype = values.dtype
    if is_tensor(values):
        shape = [int(n) for n in dtype.element_shape if n is not None]
        element = np.asarray(values.iloc[0]).dtype if len(values) else dtype.element_dtype
        fixed_shape = shape if len(shape) == len(dtype.element_shape) else None
        return {"type": "tensor", "dtype": str(element), "shape": fixed_shape}
    if isinstance(dtype, pd.CategoricalDtype):
        categories = [json_scalar(c) for c in dtype.categories]
        return {"type": "category", "dtype": "category", "categories": categories}
    kind = "string" if isinstance(dtype, pd.StringDtype) else _TYPES.get(dtype.kind)
    if kind is None:
        # The dtype is `object`, such as for booleans with a missing value. The values determine the
        # type.
        present = values.dropna()
        only_arrays = {type(v) for v in present} == {np.ndarray}
        if only_arrays and all(v.ndim and v.dtype.kind in NUMERIC_KINDS for v in present):
            return {"type": "tensor", "dtype": str(np.result_type(*{v.dtype for v in present}))}
        inferred = pd.api.types.infer_dtype(present)
        kind = inferred if inferred in ("string", "boolean") else "any"
    return {"type": kind, "dtype": str(dtype)}


def enforce_schema(frame: pd.DataFrame, columns: Sequence[ColumnSchema]) -> pd.DataFrame:
    """Convert rows from any source to the columns, order and dtypes of training.

    Args:
        frame: Raw rows. Columns that are not in the schema are ignored.
        columns: The schema of the training data.

    Returns:
        The rows with the columns of the schema and the index of `frame`.

    Raises:
        InputError: Columns are missing or values are invalid. If columns are missing, one problem
            names the first of them. Otherwise the error has an `InvalidColumnValue` for the first
            invalid value of each column.
    """
    present = {str(name): i for i, name in enumerate(frame.columns)}
    missing = [c.name for c in columns if c.name not in present]
    if missing:
        unused = [name for name in present if name not in {c.name for c in columns}]
        names = join_first([f"`{name}`{_suggestion(name, unused)}" for name in missing])
        text = f"columns {names} are missing" if missing[1:] else f"column {names} is missing"
        raise InputError("input", text)
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
    """Return ` (did you mean ...?)` if one of `names` is similar to `name`.

    Otherwise, return an empty string.
    """
    match = closest(name, names)
    return "" if match is None else f" (did you mean `{match}`?)"


def without_markers(values: pd.Series, markers: Sequence[Scalar] | None) -> pd.Series:
    """Replace the texts and numbers that mean a missing value by missing values.

    Args:
        values: A column.
        markers: These texts and numbers; None for the usual words, which no column of numbers has.
            See `sweeps.data.columns.missing`.
    """
    if markers is None and pd.api.types.is_numeric_dtype(values.dtype):
        return values
    return values.mask(values.map(missing_test(markers)).astype(bool))


def _convert(values: pd.Series, column: ColumnSchema) -> pd.Series:
    """Convert a column to the dtype that it had in training; see `enforce_schema`."""
    if column.type == "tensor":
        return _to_tensors(tensors_to_arrays(values), column)
    values = without_markers(values, column.missing)
    if str(values.dtype) == column.dtype and column.type != "category":
        return values
    if column.type == "integer":
        return to_integers(to_numbers(values, column.name), column.dtype)
    if column.type == "double":
        dtype = column.dtype if column.dtype.startswith("float") else "float64"
        return pd.Series(
            to_numbers(values, column.name).to_numpy(dtype, na_value=np.nan), index=values.index
        )
    if column.type == "boolean":
        return to_booleans(values)
    if column.type == "string":
        return to_text(values).astype(object if column.dtype == "object" else "str")
    if column.type == "category":
        known = values.astype(object).where(values.isin(column.categories or []), None)
        return known.astype(pd.CategoricalDtype(column.categories))
    return to_dates(values, column.name, column.dtype) if column.type == "datetime" else values


def _to_tensors(values: pd.Series, column: ColumnSchema) -> pd.Series:
    """Convert the values of a column to NumPy arrays.

    Values may be missing only if the schema gives no shape for the column.
    """
    cells = np.empty(len(values), dtype=object)
    for row, value in enumerate(values):
        if column.shape is None and (value is None or value is np.nan):
            continue
        try:
            cells[row] = to_tensor(value, column.dtype, column.shape)
        except (ValueError, TypeError, KeyError, OverflowError):
            raise InputError(
                InvalidColumnValue.create(
                    column.name, f"must hold {tensor_rule(column)}", row, value
                )
            ) from None
    return pd.Series(cells, index=values.index)


def tensor_rule(column: ColumnSchema) -> str:
    """Describe the array that each value of a tensor column must be."""
    return f"an array of {column.dtype}" + (
        "" if column.shape is None else f" of shape {tuple(column.shape)}"
    )


def tensors_to_arrow(values: pd.Series) -> pa.Array:
    """Convert a column of NumPy arrays to nested Arrow lists, which all Parquet readers support."""
    import pyarrow as pa

    return pa.array([cell.tolist() if isinstance(cell, np.ndarray) else None for cell in values])
