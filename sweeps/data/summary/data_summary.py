"""Types of the summary of a sweep's data, and its texts for values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
from pydantic import TypeAdapter

from sweeps.data.columns.column_types import is_numeric, is_text

# A table with more rows is summarised from a sample of this many rows.
SAMPLE_ROWS = 50_000
# Longest text of a value in the summary.
VALUE_LENGTH = 24


@dataclass(frozen=True)
class ColumnSummary:
    """One column of the train rows.

    Attributes:
        name: Name of the column.
        role: "feature", "label", "weight", "split" or "dropped".
        kind: "number", "boolean", "text", "date" or "other".
        missing: Number of missing values, in all rows.
        distinct: Number of distinct values in the sample, without missing ones. None for the kind
            "other".
        values: The smallest and the largest number or date; or the most frequent texts, with their
            shares.
        parsed: True if `data.parse` turns the texts into numbers.
    """

    name: str
    role: str
    kind: str
    missing: int
    distinct: int | None
    values: str
    parsed: bool = False


@dataclass(frozen=True)
class Finding:
    """Something in the data that may spoil a search.

    Attributes:
        kind: "identifier", "prose", "many", "row_number", "number_text", "date_text", "marker",
            "rounded", "infinite", "unseen", "empty", "constant", "leak", "duplicates" or "overlap".
        column: Name of the column; "" if the finding is about rows.
        example: An example of a value. For texts of numbers or dates, the first text that does not
            fit. For the kind "overlap", the split that has rows of train.
        rule: For texts of numbers or dates: the rule of `data.parse`.
        other_rule: For texts of dates: another format that also fits. For a marker: "number" if all
            other texts are numbers. Else "".
        count: Number of values or rows. For texts of numbers or dates, the number of texts that do
            not fit.
        share: Estimated share of the rows, or how much of the label a column explains, from 0 to 1.
        loose: True if some values do not fit the finding.
        row: Row of the example, counted from 1; 0 if it is not known.
    """

    kind: str
    column: str = ""
    example: str = ""
    rule: str = ""
    other_rule: str = ""
    count: int = 0
    share: float = 0.0
    loose: bool = False
    row: int = 0


@dataclass(frozen=True)
class DataSummary:
    """Summary of the rows of a source.

    Attributes:
        rows: Number of rows of each source: "train", and "valid" and "test" if these splits have
            separate sources.
        sampled: Number of train rows that were looked at.
        columns: All columns, in the order of the data.
        label: Number of rows of each class, for a label with classes, by the class as text. Empty
            for numbers.
        findings: Findings that may spoil a search.
    """

    rows: dict[str, int]
    sampled: int
    columns: tuple[ColumnSummary, ...]
    label: dict[str, int]
    findings: tuple[Finding, ...]

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> DataSummary:
        """Make a summary from JSON data that `dataclasses.asdict` returned.

        Raises:
            ValueError: The data is not a summary.
        """
        return _adapter().validate_python(stored)


@cache
def _adapter() -> TypeAdapter[DataSummary]:
    return TypeAdapter(DataSummary)


def sample_rows(table: pa.Table, most: int, seed: int) -> pa.Table:
    """Return at most `most` random rows of a table, in the order of the table."""
    if table.num_rows <= most:
        return table
    chosen = np.random.default_rng([abs(int(seed)), 1]).choice(table.num_rows, most, replace=False)
    return table.take(pa.array(np.sort(chosen)))


def kind_of(field: pa.Field) -> str:
    """Return the kind of a column; see `ColumnSummary`."""
    kind = field.type
    if pa.types.is_boolean(kind):
        return "boolean"
    if is_numeric(kind):
        return "number"
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return "date"
    return "text" if is_text(kind) else "other"


def short_text(text: str, length: int = VALUE_LENGTH) -> str:
    """Return a text in one line of at most `length` printable characters."""
    line = "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))
    return line if len(line) <= length else line[: length - 1] + "…"


def percent(share: float) -> str:
    """Format a share as a percentage with at least two digits.

    >>> percent(0.42), percent(0.042), percent(1.0), percent(0.00012)
    ('42 %', '4.2 %', '100 %', '0.012 %')
    """
    value = 100 * share
    return f"{value:.0f} %" if value >= 9.95 or value == 0 else f"{value:.2g} %"
