"""Columns of a frame: their kinds, the form of their values before the first step, and how a step selects them."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pandas.api import types as pdt

from sweeps.core.errors import InputError, Problem
from sweeps.core.suggestions import did_you_mean

PREPROCESSOR_KEY = "space.preprocessor"


@dataclass(frozen=True)
class InputColumn:
    """An input column, as it was in training.

    Attributes:
        name: name of the column.
        kind: "number" (includes booleans), "text", "time" or "other".
        dtype: dtype of the values that the first step gets: "float64" or "float32" for a number; "datetime64[us]" or
            "datetime64[us, UTC]" for a time.
    """

    name: str
    kind: str
    dtype: str = ""


def input_column(field: pa.Field) -> InputColumn:
    """Return the input column that an Arrow field describes."""
    kind = field.type
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        narrow = pa.types.is_float32(kind) or pa.types.is_float16(kind)
        return InputColumn(field.name, "number", "float32" if narrow else "float64")
    if pa.types.is_null(kind):
        return InputColumn(field.name, "number", "float64")
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return InputColumn(field.name, "time", "datetime64[us, UTC]" if getattr(kind, "tz", None) else "datetime64[us]")
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_string(value) or pa.types.is_large_string(value) or pa.types.is_string_view(value):
        return InputColumn(field.name, "text", "str")
    return InputColumn(field.name, "other")


def convert_column(column: InputColumn, values: pd.Series, keep_integers: bool) -> pd.Series:
    """Convert a column to the form that steps see, whatever form its values arrive in.

    Integers become floats in training and in prediction. A missing value would make them floats anyway, and a step that turns numbers
    into text would then see `1.0` instead of `1`.

    Args:
        column: the column as it was in training.
        values: the values as they arrived.
        keep_integers: leave integers and booleans as they are, because no step sees them.

    Returns:
        The converted values, with the index of `values`.

    Raises:
        InputError: a value does not fit the column, such as text in a column of numbers.
    """
    if column.kind == "number":
        if isinstance(values.dtype, np.dtype) and values.dtype.kind in "iub" and keep_integers:
            return values
        return pd.Series(_to_numbers(column, values), index=values.index, name=column.name)
    if column.kind == "text":
        return _to_strings(values)
    if column.kind == "time":
        iso = "ISO8601" if values.dtype.kind not in "Miuf" else None
        times = pd.to_datetime(values, errors="coerce", utc=True, format=iso)
        _refuse_values(column, values, times.isna().to_numpy(), "time")
        return times.dt.as_unit("us") if "UTC" in column.dtype else times.dt.as_unit("us").dt.tz_localize(None)
    return tensors_to_arrays(values)


def is_tensor(values: pd.Series) -> bool:
    """Return whether a column holds tensors of Ray Data. Compares the type's name only, because bundles are loaded without Ray."""
    return type(values.dtype).__name__ == "TensorDtype"


def tensors_to_arrays(values: pd.Series) -> pd.Series:
    """Convert a column of Ray Data's tensors to NumPy arrays, which need no Ray. Other columns are returned unchanged."""
    if not is_tensor(values):
        return values
    cells = np.empty(len(values), dtype=object)
    for i, cell in enumerate(values):
        cells[i] = np.asarray(cell)
    return pd.Series(cells, index=values.index, name=values.name)


def _to_numbers(column: InputColumn, values: pd.Series) -> np.ndarray:
    if isinstance(values.dtype, np.dtype) and values.dtype.kind in "iubf":
        return np.array(values.to_numpy(), dtype=column.dtype)
    if pdt.is_numeric_dtype(values.dtype) or pdt.is_bool_dtype(values.dtype):
        return np.asarray(values.to_numpy(dtype=column.dtype, na_value=np.nan))
    if values.dtype.kind in "Mm":
        _refuse_values(column, values, np.ones(len(values), dtype=bool), "number")
        return np.full(len(values), np.nan, dtype=column.dtype)
    numbers = np.array([_parse_number(v) for v in values.astype(object)], dtype=np.float64)
    _refuse_values(column, values, np.isinf(numbers) & ~values.isin([np.inf, -np.inf]).to_numpy(), "number")
    return numbers.astype(column.dtype)


def _parse_number(value: Any) -> float:
    """Convert an object or text to a number. NaN if the value is missing, infinity if it is not a number."""
    if isinstance(value, str):
        value = {"": np.nan, "true": 1.0, "false": 0.0}.get(value.strip().lower(), value)
    try:
        return np.nan if pd.isna(value) else float(value)
    except (TypeError, ValueError):
        return np.inf


def _refuse_values(column: InputColumn, values: pd.Series, bad: np.ndarray, kind: str) -> None:
    """Raise an error if some values are present but not of the column's kind. Blank text counts as missing.

    Raises:
        InputError: names the first such value.
    """
    wrong = values[bad & values.notna().to_numpy()]
    wrong = wrong[[str(v).strip() != "" for v in wrong]]
    if len(wrong):
        raise InputError(Problem(f"column `{column.name}`", f"{wrong.iloc[0]!r} is not a {kind}, but this column held {kind}s in training"))


def _to_strings(values: pd.Series) -> pd.Series:
    if values.dtype == "str":
        return values
    if isinstance(values.dtype, pd.CategoricalDtype):
        values = values.astype(object)
    return pd.Series([_to_string(v) for v in values], index=values.index, name=values.name, dtype="str")


def _to_string(value: Any) -> Any:
    """Convert a value to text. A file with only digits in a text column, such as ZIP codes, is read as numbers but means the same."""
    if isinstance(value, str):
        return value
    return np.nan if pd.isna(value) else format_value(value)


def format_value(value: Any) -> str:
    """Return a value as the text that a file held: 12.0 from an integer column with missing values is `12`."""
    return str(int(value)) if isinstance(value, (float, np.floating)) and float(value).is_integer() else str(value)


def is_number(values: pd.Series) -> bool:
    """Return whether a column that reached a step holds numbers or booleans."""
    return bool(pdt.is_numeric_dtype(values.dtype) or pdt.is_bool_dtype(values.dtype))


def is_categorical(values: pd.Series) -> bool:
    """Return whether a column that reached a step holds text or categories. Lists and arrays do not count."""
    if isinstance(values.dtype, (pd.CategoricalDtype, pd.StringDtype)):
        return True
    if values.dtype != object:
        return False
    first = next((v for v in values if not (v is None or v is pd.NA or v is np.nan)), None)
    return not isinstance(first, (list, tuple, dict, np.ndarray))


def check_all_numeric(prepared: pd.DataFrame, label: str | None) -> None:
    """Check that a chain leaves only numbers and categories, for a trainer that reads nothing else.

    Args:
        prepared: prepared rows.
        label: the label column, which is not checked.

    Raises:
        InputError: names every other column.
    """
    kinds = {str(name): values.dtype for name, values in prepared.items() if name != label}
    if others := [f"`{name}`" for name, kind in kinds.items() if not (kind.kind in "biuf" or isinstance(kind, pd.CategoricalDtype))]:
        many = len(others) > 1
        shown = ", ".join(others[:10]) + (f" and {len(others) - 10} more" if len(others) > 10 else "")
        them = "them" if many else "it"
        text = (
            f"column{'s' * many} {shown} {'are' if many else 'is'} not numeric after preprocessing, and the trainer reads only numbers; "
            f"name {them} in `columns` of an encoder (the default, `categorical`, leaves out dates), or drop {them} with `data.drop`"
        )
        raise InputError(Problem(PREPROCESSOR_KEY, text))


def select_columns(frame: pd.DataFrame, columns: Any, default: str, step: str, label: str | None) -> tuple[str, ...]:
    """Return the columns that a step selects, in the order of the frame.

    Args:
        frame: the columns that reach the step, without the label.
        columns: None, "numeric", "categorical", "all", a name, a glob pattern, or several names and patterns.
        default: the selector that None stands for.
        step: name of the step, for messages.
        label: the label column, which cannot be selected.

    Raises:
        InputError: no column has one of the names or matches one of the patterns.
    """
    wanted: Sequence[str] = (columns,) if isinstance(columns, str) else tuple(columns) if columns is not None else (default,)
    names = [str(n) for n in frame.columns]
    chosen: set[str] = set()
    problems = []
    for want in map(str, wanted):
        if want in names:
            chosen.add(want)
        elif want in ("numeric", "categorical", "all"):
            tests: dict[str, Callable[[pd.Series], bool]] = {"numeric": is_number, "categorical": is_categorical, "all": lambda _: True}
            test = tests[want]
            chosen.update(n for n in names if test(frame[n]))
        elif want == label:
            problems.append(Problem(PREPROCESSOR_KEY, f"{step}: `{want}` is the label, which no step may change"))
        elif matched := fnmatch.filter(names, want):
            chosen.update(matched)
        elif any(c in want for c in "*?["):
            problems.append(Problem(PREPROCESSOR_KEY, f"{step}: no column matches `{want}`; {did_you_mean(want, names)}"))
        else:
            problems.append(Problem(PREPROCESSOR_KEY, f"{step}: no column `{want}`; {did_you_mean(want, names)}"))
    if problems:
        raise InputError(problems)
    return tuple(n for n in names if n in chosen)


def unique_names(wanted: Iterable[str], taken: Iterable[str]) -> list[str]:
    """Return unused names for new columns. XGBoost does not accept `[`, `]` and `<`, so they are replaced."""
    used = set(taken)
    names = []
    for want in wanted:
        base = name = want.translate(str.maketrans("[]<", "()_"))
        count = 1
        while name in used:
            count += 1
            name = f"{base}_{count}"
        used.add(name)
        names.append(name)
    return names
