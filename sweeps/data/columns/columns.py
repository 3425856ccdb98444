"""Convert raw columns to the dtypes that preprocessing expects, and select a step's columns."""

from __future__ import annotations

import fnmatch
import glob
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa
from pandas.api import types as pdt

from sweeps.core.errors import InputError, Problem
from sweeps.core.label_columns import Label, label_columns
from sweeps.core.text.suggestions import did_you_mean

from .column_types import is_number_or_boolean, is_text
from .column_values import (
    NUMERIC_KINDS,
    tensors_to_arrays,
    to_booleans,
    to_dates,
    to_numbers,
    to_text,
)
from .parse import parse_values

if TYPE_CHECKING:
    from sweeps.space.sections.trainer_definition import TrainerDefinition

PREPROCESSOR_KEY = "space.preprocessor"


@dataclass(frozen=True)
class InputColumn:
    """Name and type of a raw column in training.

    Attributes:
        name: Name of the column.
        kind: "number" (includes booleans), "text", "time" or "other".
        dtype: Dtype of the values that the first step gets: "float64" or "float32" for numbers,
            "str" for text, "datetime64[us]" or "datetime64[us, UTC]" for times. Empty for the kind
            "other".
        parse: The rule of `data.parse` with which raw texts become numbers; "" if there is none.
    """

    name: str
    kind: str
    dtype: str = ""
    parse: str = ""


def input_column(field: pa.Field, parse: str = "") -> InputColumn:
    """Return the input column that an Arrow field describes.

    `parse` is the column's rule of `data.parse`, if it has one.
    """
    kind = field.type
    if parse:
        return InputColumn(field.name, "number", "float64", parse)
    if is_number_or_boolean(kind):
        narrow = pa.types.is_float32(kind) or pa.types.is_float16(kind)
        return InputColumn(field.name, "number", "float32" if narrow else "float64")
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        zone = ", UTC" if getattr(kind, "tz", None) else ""
        return InputColumn(field.name, "time", f"datetime64[us{zone}]")
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    if is_text(value):
        return InputColumn(field.name, "text", "str")
    return InputColumn(field.name, "other")


def convert_column(column: InputColumn, values: pd.Series, keep_integers: bool) -> pd.Series:
    """Convert a column to the dtype that preprocessing steps expect.

    Integers become floats, both in training and in prediction. Without this rule, a column of
    integers would become floats only if a value is missing. A step that converts numbers to text
    would then get `1.0` for some rows and `1` for other rows.

    Args:
        column: Name and type of the column in training.
        values: The raw values. Their dtype may differ from the dtype in training.
        keep_integers: True to leave integers and booleans unchanged. Callers pass True if no steps
            follow.

    Returns:
        The converted values, with the index of `values`. They may share the memory of `values`.

    Raises:
        InputError: A value does not fit the column, such as text in a column of numbers.
    """
    if column.parse:
        return parse_values(values, column.parse, column.name)
    if column.kind == "number":
        if keep_integers and isinstance(values.dtype, np.dtype) and values.dtype.kind in "iub":
            return values
        # Texts such as `true` and `false` also count as the numbers 1 and 0.
        numbers = to_numbers(values if is_number(values) else to_booleans(values), column.name)
        return pd.Series(
            numbers.to_numpy(column.dtype, na_value=np.nan),
            index=values.index,
            name=column.name,
            copy=False,
        )
    if column.kind == "text":
        return to_text(values)
    if column.kind == "time":
        return to_dates(values, column.name, column.dtype)
    return tensors_to_arrays(values)


def is_number(values: pd.Series) -> bool:
    """Return whether a column has a dtype of numbers or booleans."""
    return bool(pdt.is_numeric_dtype(values.dtype))


def is_categorical(values: pd.Series) -> bool:
    """Return whether a column holds text or categories.

    A column of dates, lists or arrays does not count as categorical.
    """
    if isinstance(values.dtype, (pd.CategoricalDtype, pd.StringDtype)):
        return True
    if values.dtype != object:
        return False
    first = next((v for v in values if v is not None and v is not pd.NA and v is not np.nan), None)
    return not isinstance(first, (list, tuple, dict, np.ndarray))


def unread_by(
    prepared: pd.DataFrame, label: Label | None, trainers: Mapping[str, TrainerDefinition]
) -> dict[str, str]:
    """Return why a trainer cannot read the columns after preprocessing, by the trainer's label.

    Args:
        prepared: Preprocessed rows.
        label: See `Splits.label`. It is not checked.
        trainers: Definition of each trainer, by label.

    Raises:
        InputError: No trainer can read the columns; see `check_readable`.
    """
    unread: dict[str, InputError] = {}
    for name, trainer in trainers.items():
        try:
            check_readable(prepared, label, trainer)
        except InputError as e:
            unread[name] = e
    if len(unread) == len(trainers):
        raise next(iter(unread.values()))
    return {name: str(error) for name, error in unread.items()}


def check_readable(prepared: pd.DataFrame, label: Label | None, trainer: TrainerDefinition) -> None:
    """Check that a trainer can read all columns after preprocessing.

    Args:
        prepared: Preprocessed rows.
        label: See `Splits.label`. It is not checked.
        trainer: Definition of the trainer.

    Raises:
        InputError: No column is left, or the trainer cannot read some columns; see
            `unread_problems`.
    """
    if not trainer.reads_numbers:
        return
    kinds = prepared.drop(columns=[*label_columns(label)], errors="ignore").dtypes
    if kinds.empty:
        raise InputError(PREPROCESSOR_KEY, "no column is left for the model to read")
    unread = {}
    for name, kind in kinds.items():
        readable = kind.kind in NUMERIC_KINDS or (kind == "category" and trainer.reads_categories)
        if not readable:
            unread[str(name)] = "text" if kind == "str" else str(kind)
    if unread:
        from sweeps.data.checks.column_checks import unread_problems

        raise InputError(unread_problems(unread, "the trainer"))


def select_columns(
    frame: pd.DataFrame,
    columns: str | Sequence[str] | None,
    default: str,
    step: str,
    label: Label | None,
) -> tuple[str, ...]:
    """Return the names of the columns that a step selects, in the order of the frame.

    Args:
        frame: The columns that reach the step, without the label.
        columns: The `columns` of the step: "numeric", "categorical", "all", a name, a pattern such
            as `x_*`, several of these, or None.
        default: Used in place of `columns` if `columns` is None.
        step: Name of the step, for messages.
        label: See `Splits.label`. It cannot be selected.

    Raises:
        InputError: One of the names or patterns matches no column, or is the label.
    """
    selectors = default if columns is None else columns
    if isinstance(selectors, str):
        selectors = (selectors,)
    names = [str(n) for n in frame.columns]
    keywords: dict[str, Callable[[pd.Series], bool]] = {
        "numeric": is_number,
        "categorical": is_categorical,
        "all": lambda _: True,
    }
    chosen: set[str] = set()
    problems = []
    for selector in map(str, selectors):
        if selector in names:
            chosen.add(selector)
        elif selector in keywords:
            chosen.update(n for n in names if keywords[selector](frame[n]))
        elif selector in label_columns(label):
            text = f"{step}: `{selector}` is the label, which no step may change"
            problems.append(Problem(PREPROCESSOR_KEY, text))
        elif matched := fnmatch.filter(names, selector):
            chosen.update(matched)
        else:
            verb = "matches " if glob.has_magic(selector) else ""
            text = f"{step}: no column {verb}`{selector}`; {did_you_mean(selector, names)}"
            problems.append(Problem(PREPROCESSOR_KEY, text))
    if problems:
        raise InputError(problems)
    return tuple(n for n in names if n in chosen)


def unique_names(wanted: Iterable[str], taken: Iterable[str]) -> list[str]:
    """Return names for new columns, as similar as possible to the wanted names.

    A number is added to a name that is in `taken` or repeated, such as `x_2` for `x`.

    The characters `[`, `]` and `<` become `(`, `)` and `_`, because XGBoost does not accept them in
    names.
    """
    used = set(taken)
    names = []
    for wanted_name in wanted:
        base = name = wanted_name.translate(str.maketrans("[]<", "()_"))
        count = 1
        while name in used:
            count += 1
            name = f"{base}_{count}"
        used.add(name)
        names.append(name)
    return names
