"""Decide which texts and numbers mean a missing value, and take these markers out of the rows.

This module needs neither Ray nor pandas.

Some texts are always missing, in every format. Some words are missing unless they are frequent in a
column of texts. The key `data.missing` names other markers. The decision is made on the train rows,
and holds for all splits and for the rows of a bundle.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from sweeps.core.errors import Problem
from sweeps.core.label_columns import LabelValue
from sweeps.data.checks.label_checks import DROP_MISSING_LABEL, as_text

from .column_types import (
    ALWAYS_MISSING,
    has_codes,
    infer_type,
    is_numeric,
    is_text,
    null_texts,
    string_array,
)
from .tables import Parts

if TYPE_CHECKING:
    from sweeps.space import DataSpec

# The markers of missing values, by column
Markers = Mapping[str, Sequence[LabelValue]]

# Words that mean a missing value. A word is a value of a column of texts if at least this share of
# the train rows has the word.
WORDS = ["NA", "N/A", "n/a", "None"]
FREQUENT = 0.05
# Key of `data.missing` for all columns without an entry of their own.
EVERY_COLUMN = "*"


@dataclass(frozen=True)
class Profile:
    """Facts about a column of texts, or about a block of such a column.

    Attributes:
        rows: Number of rows.
        markers: Number of rows with each text that may be a marker.
        kind: Type of the other values, as inferred from their texts. It is null if there are no
            other values.
    """

    rows: int
    markers: Counter[str] = field(default_factory=Counter)
    kind: pa.DataType = field(default_factory=pa.null)

    def is_value(self, word: str) -> bool:
        """Return whether a word is a value: the column has texts, and the word is frequent."""
        return is_text(self.kind) and self.markers[word] >= FREQUENT * self.rows

    def type_of_others(self, inferred: bool = False) -> pa.DataType:
        """Return the type that the column has once its markers are null.

        Args:
            inferred: True for a CSV file, where the type of a column always follows from its texts.
                In another file, a column without markers stays text.
        """
        if not (self.markers or inferred):
            return pa.large_string()
        return pa.float64() if pa.types.is_null(self.kind) else self.kind


def candidate_markers(spec: DataSpec, name: str) -> list[LabelValue]:
    """Return the markers that a column may have.

    A column with an entry in `data.missing` has the markers of this entry. Any other column has the
    words, followed by the markers of `*`.
    """
    return list(spec.missing.get(name, (*WORDS, *spec.missing.get(EVERY_COLUMN, ()))))


def profile_columns(spec: DataSpec, rows: pa.Table) -> dict[str, Profile]:
    """Return the facts about each column of texts."""
    profiles = {}
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        if is_text(column.type):
            others = null_markers(column, candidate_markers(spec, name))
            markers = pc.utf8_trim_whitespace(column.filter(pc.is_null(others)).drop_null())
            kind = pa.null() if others.null_count == len(others) else infer_type(others).type
            profiles[name] = Profile(len(column), Counter(markers.to_pylist()), kind)
    return profiles


def decide_markers(
    spec: DataSpec, names: Iterable[str], profiles: Mapping[str, Profile]
) -> Markers:
    """Return the markers by column.

    Columns of texts have an entry. Other columns have one only if `data.missing` names their
    markers.

    Args:
        spec: The `data` section.
        names: All columns.
        profiles: Facts about the train rows of the columns of texts.
    """
    decided: dict[str, Sequence[LabelValue]] = {}
    # In these columns, a word is not a value because it is frequent.
    fixed = {*spec.missing, *spec.labels, *spec.parse}
    for name in names:
        markers = candidate_markers(spec, name)
        if name in profiles and name not in fixed:
            words = [word for word in WORDS if not profiles[name].is_value(word)]
            markers = [*words, *spec.missing.get(EVERY_COLUMN, ())]
        if name in profiles or markers != WORDS:
            decided[name] = markers
    return decided


def remove_markers(spec: DataSpec, parts: Parts) -> tuple[Parts, Markers, list[Problem]]:
    """Take the markers out of all rows, as decided on the train rows.

    A column of texts whose other values are numbers becomes numbers.

    Args:
        spec: The `data` section.
        parts: Raw rows by split. All splits have the same columns.

    Returns:
        The rows by split, the markers by column (see `decide_markers`), and the problems with
        words in the label (see `ambiguous_label_problems`).
    """
    profiles = {key: profile_columns(spec, part) for key, part in parts.items()}
    train = profiles["train"]
    decided = decide_markers(spec, parts["train"].column_names, train)
    tables: Parts = {}
    for key, part in parts.items():
        columns = {}
        for name in part.column_names:
            markers = decided.get(name, WORDS)
            column = null_markers(part.column(name), markers)
            stays_text = name in train and is_text(train[name].type_of_others())
            if is_text(column.type) and not stays_text:
                # A marker may also be a number, such as -1.
                column = null_markers(infer_type(column), markers)
            columns[name] = column
        tables[key] = pa.table(columns)
    return tables, decided, ambiguous_label_problems(spec, profiles)


def ambiguous_label_problems(
    spec: DataSpec, profiles: Mapping[str, Mapping[str, Profile]]
) -> list[Problem]:
    """Return a problem if a label has words that may be a class or a missing label.

    There is no problem if the `data` section says which of the two they are.

    Args:
        spec: The `data` section.
        profiles: Facts about the columns of texts of each split.
    """
    if spec.drop_missing_label:
        return []
    markers = spec.missing.get(EVERY_COLUMN, ())
    labels = [name for name in spec.labels if name not in spec.missing]
    problems = []
    for split, name in itertools.product(profiles, labels):
        profile = profiles[split].get(name, Profile(0))
        words = [word for word in WORDS if profile.markers[word] and word not in markers]
        if words:
            count = sum(profile.markers[word] for word in words)
            problems.append(
                Problem(
                    "data.label",
                    f"`{name}` has {' and '.join(map(repr, words))} in {count:,} of "
                    f"{profile.rows:,} rows of data.{split}; if this is a class, write "
                    f"`data.missing: {{{name}: []}}`; if it is a missing label, write "
                    f"{DROP_MISSING_LABEL}",
                )
            )
    return problems


def certain_texts(spec: DataSpec, rows: pa.Table) -> list[str]:
    """Return the columns that are certain to hold texts, also in the rows that are not given.

    One text that is neither a number nor a marker is enough.

    Args:
        spec: The `data` section.
        rows: Some rows of train.
    """
    return [
        name
        for name, profile in profile_columns(spec, rows).items()
        if is_text(profile.kind) and not has_codes(rows.column(name))
    ]


def null_markers(column: pa.ChunkedArray, markers: Sequence[LabelValue]) -> pa.ChunkedArray:
    """Return a column whose markers are null.

    Columns of other types than texts and numbers are returned unchanged.
    """
    kind = column.type
    if is_text(kind):
        return null_texts(column, string_array(*_missing_texts(markers)).cast(kind))
    numbers = _marker_numbers(markers) if is_numeric(kind) else []
    if pa.types.is_integer(kind):
        numbers = [number for number in numbers if number.is_integer()]
    if not numbers:
        return column
    values = pa.array(numbers).cast(kind, safe=False)
    return pc.if_else(pc.is_in(column, value_set=values), pa.scalar(None, kind), column)


def missing_test(markers: Sequence[Any] | None) -> Callable[[Any], bool]:
    """Return a function that tells whether a single value is missing.

    A value is missing if it is a marker or a text that is always missing. If `markers` is None, the
    markers are the usual words.
    """
    markers = WORDS if markers is None else markers
    missing = {*_missing_texts(markers), *_marker_numbers(markers)}

    def is_missing(value: Any) -> bool:
        if isinstance(value, str):
            return value.strip() in missing
        return isinstance(value, Hashable) and value in missing

    return is_missing


def _missing_texts(markers: Sequence[LabelValue]) -> list[str]:
    """Return every text that is missing.

    A number has two texts, such as "-1" and "-1.0", because a file may have integers or floats.
    """
    return [*ALWAYS_MISSING, *map(as_text, markers), *map(str, _marker_numbers(markers))]


def _marker_numbers(markers: Sequence[LabelValue]) -> list[float]:
    """Return the markers that are numbers, or texts of numbers."""
    numbers = []
    for marker in markers:
        with contextlib.suppress(ValueError):
            numbers.append(float(marker))
    return numbers
