"""Columns of a frame: what kind each is, the one form its values take before the first step, and how a step selects them."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence
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
    """An input column as it was in training.

    Attributes:
        kind: "number" (booleans too), "text", "time" or "other".
        dtype: of the prepared values: "float64" or "float32" for a number, "datetime64[us]" or with UTC for a time.
    """

    name: str
    kind: str
    dtype: str = ""


def input_column(field: pa.Field) -> InputColumn:
    """The column that an Arrow field is."""
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


def convert_column(column: InputColumn, values: pd.Series, whole: bool) -> pd.Series:
    """A column's values in the one form that steps see, whatever form they arrive in.

    Integers become floats, in training and prediction alike: a missing value among them would make them floats anyway, and
    then a step that turns numbers into text, say, would see `1.0` in place of `1`.

    Args:
        column: as it was in training.
        values: as they came.
        whole: leave integers and booleans as they are (no step will look at them).

    Raises:
        InputError: text that is no number in a number's column, and the like.
    """
    if column.kind == "number":
        if isinstance(values.dtype, np.dtype) and values.dtype.kind in "iub" and whole:
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
    """Return whether a column holds tensors of Ray Data. Only the type's name is compared, since a bundle is loaded without Ray."""
    return type(values.dtype).__name__ == "TensorDtype"


def tensors_to_arrays(values: pd.Series) -> pd.Series:
    """A column of Ray Data's tensors as a column of NumPy arrays, which needs no Ray; any other column as it is."""
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
        return values.to_numpy(dtype=column.dtype, na_value=np.nan)
    if values.dtype.kind in "Mm":
        _refuse_values(column, values, np.ones(len(values), dtype=bool), "number")
        return np.full(len(values), np.nan, dtype=column.dtype)
    found = np.array([_parse_number(v) for v in values.astype(object)], dtype=np.float64)
    _refuse_values(column, values, np.isinf(found) & ~values.isin([np.inf, -np.inf]).to_numpy(), "number")
    return found.astype(column.dtype)


def _parse_number(value: Any) -> float:
    """A number from an object or from text; NaN for nothing; infinity for what is no number."""
    if isinstance(value, str):
        value = {"": np.nan, "true": 1.0, "false": 0.0}.get(value.strip().lower(), value)
    try:
        return np.nan if pd.isna(value) else float(value)
    except (TypeError, ValueError):
        return np.inf


def _refuse_values(column: InputColumn, values: pd.Series, bad: np.ndarray, kind: str) -> None:
    """Refuse values that are there but are not of the column's kind; a blank counts as missing."""
    wrong = values[bad & values.notna().to_numpy()]
    wrong = wrong[[str(v).strip() != "" for v in wrong]]
    if len(wrong):
        raise InputError(Problem(f"column `{column.name}`", f"{wrong.iloc[0]!r} is no {kind}, as this column held in training"))


def _to_strings(values: pd.Series) -> pd.Series:
    if values.dtype == "str":
        return values
    if isinstance(values.dtype, pd.CategoricalDtype):
        values = values.astype(object)
    return pd.Series([_to_string(v) for v in values], index=values.index, name=values.name, dtype="str")


def _to_string(value: Any) -> Any:
    """A value as text: a file of ZIP codes alone is read as numbers, but means the same."""
    if isinstance(value, str):
        return value
    if pd.isna(value):
        return np.nan
    return str(int(value)) if isinstance(value, (float, np.floating)) and float(value).is_integer() else str(value)


def is_number(values: pd.Series) -> bool:
    """Whether a column that reached a step holds numbers or booleans."""
    return pdt.is_numeric_dtype(values.dtype) or pdt.is_bool_dtype(values.dtype)


def is_categorical(values: pd.Series) -> bool:
    """Whether a column that reached a step holds text or categories; not lists and arrays."""
    if isinstance(values.dtype, (pd.CategoricalDtype, pd.StringDtype)):
        return True
    if values.dtype != object:
        return False
    first = next((v for v in values if not (v is None or v is pd.NA or v is np.nan)), None)
    return not isinstance(first, (list, tuple, dict, np.ndarray))


def check_all_numeric(prepared: pd.DataFrame, label: str | None) -> None:
    """Refuse what a chain leaves for a trainer that reads numbers and categories alone.

    Raises:
        InputError: naming every column that is neither.
    """
    kinds = {str(name): values.dtype for name, values in prepared.items() if name != label}
    if left := [f"`{name}`" for name, kind in kinds.items() if not (kind.kind in "biuf" or isinstance(kind, pd.CategoricalDtype))]:
        many = len(left) > 1
        shown = ", ".join(left[:10]) + (f" and {len(left) - 10} more" if len(left) > 10 else "")
        way = "name it in `columns` of an encoder (whose default, `categorical`, leaves out dates), or leave it out with `data.drop`"
        way = way.replace(" it ", " them ") if many else way
        text = f"column{'s' * many} {shown} {'do' if many else 'does'} not come to numbers, which is all that the trainer reads; {way}"
        raise InputError(Problem(PREPROCESSOR_KEY, text))


def select_columns(frame: pd.DataFrame, columns: Any, default: str, step: str, label: str | None) -> tuple[str, ...]:
    """The columns of a frame that a step's selector means, in the order of the frame.

    Args:
        frame: what reaches the step, without the label.
        columns: None, "numeric", "categorical", "all", a name or glob pattern, or several names and patterns.
        default: what None means.
        step: its name, for messages.
        label: refused by name.

    Raises:
        InputError: a name or a pattern that no column has.
    """
    wanted: Sequence[str] = (columns,) if isinstance(columns, str) else tuple(columns) if columns is not None else (default,)
    names = [str(n) for n in frame.columns]
    chosen: set[str] = set()
    problems = []
    for want in map(str, wanted):
        if want in names:
            chosen.add(want)
        elif want in ("numeric", "categorical", "all"):
            test = {"numeric": is_number, "categorical": is_categorical, "all": lambda _: True}[want]
            chosen.update(n for n in names if test(frame[n]))
        elif want == label:
            problems.append(Problem(PREPROCESSOR_KEY, f"{step}: `{want}` is the label, which is never prepared"))
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
    """Names for new columns that XGBoost accepts (without `[`, `]`, `<`) and that nothing has yet."""
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
