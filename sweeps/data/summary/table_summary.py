"""Summarise the data of a sweep, with findings that may spoil a search.

The summary also has the rows, the columns, missing and distinct values, and the label. The
functions are pure. `sweeps.data.summary.summary_findings` looks for the findings.
`sweeps.data.summary.summary_warnings` decides which findings matter for a space. The cost
is bounded: at most `SAMPLE_ROWS` rows of a table are looked at, except to count missing values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import TypeAdapter

from sweeps.core.label_columns import Classes, LabelValue
from sweeps.data.checks.label_checks import is_numeric, split_columns
from sweeps.data.columns.tables import Parts, is_text
from sweeps.space import DataSpec

# A table with more rows is summarised from a sample of this many rows. A sample has at most this
# many values, but at least 1,000 rows.
SAMPLE_ROWS = 50_000
SAMPLE_VALUES = 5_000_000
LEAST_ROWS = 1_000
# Number of values that the text of a column shows.
SHOWN_VALUES = 3
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
        example: An example of a value, or the split with rows of train. For texts of numbers or
            dates, the first text that does not fit.
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
        findings: What may spoil a search.
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
        return TypeAdapter(cls).validate_python(stored)


def summarize(
    spec: DataSpec,
    parts: Parts,
    classes: Classes | None,
    seed: int = 0,
    rows: Mapping[str, int] | None = None,
    missing: Mapping[str, int] | None = None,
) -> DataSummary:
    """Summarise the raw rows of a source.

    Args:
        spec: The `data` section.
        parts: Raw rows by split: "train", and "valid" and "test" if these splits have separate
            sources. The label is not encoded.
        classes: Classes of the label; None if the label has numbers or several columns, or there is
            no label.
        seed: Seed of the sample.
        rows: Number of rows of each split, if `parts` is already a sample of a stream.
        missing: Number of missing values of each column, if `parts` is already a sample of a
            stream.
    """
    from sweeps.data.summary.summary_findings import find_all

    train = parts["train"]
    simple = [
        field.name for field in train.schema if kind_of(field) != "other"
    ]  # a sample would copy images and other large values
    most = max(LEAST_ROWS, min(SAMPLE_ROWS, SAMPLE_VALUES // max(1, len(simple))))
    sample = sample_rows(train.select(simple), most, seed)
    roles = column_roles(spec, train.column_names)
    described = (_column(train, sample, name, roles[name], missing) for name in train.column_names)
    columns = tuple(
        replace(column, parsed=column.name in spec.parse and column.role != "dropped")
        for column in described
    )
    balance: dict[str, int] = {}
    if classes is not None:
        counts = pc.value_counts(train.column(spec.labels[0]).drop_null()).to_pylist()
        found = {item["values"]: item["counts"] for item in counts}
        balance = {_short(value): found.get(value, 0) for value in classes}
    total = dict(rows or {key: part.num_rows for key, part in parts.items()})
    findings = find_all(spec, parts, sample, columns, classes, seed, whole=rows is None)
    return DataSummary(total, min(train.num_rows, most), columns, balance, findings)


def column_roles(spec: DataSpec, names: Sequence[str]) -> dict[str, str]:
    """Return the role of each column; see `ColumnSummary`."""
    own = dict.fromkeys(split_columns(spec), "split") | dict.fromkeys(spec.drop, "dropped")
    own |= dict.fromkeys(spec.weight_columns, "weight") | dict.fromkeys(spec.labels, "label")
    return {name: own.get(name, "feature") for name in names}


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


def _column(
    train: pa.Table, sample: pa.Table, name: str, role: str, missing: Mapping[str, int] | None
) -> ColumnSummary:
    field = train.schema.field(name)
    kind = kind_of(field)
    count = train.column(name).null_count if missing is None else missing.get(name, 0)
    if kind == "other":
        values = shown(str(field.type), 2 * VALUE_LENGTH)
        return ColumnSummary(name, role, kind, missing=count, distinct=None, values=values)
    column = sample.column(name)
    if kind in ("number", "date"):
        ends = pc.min_max(column).as_py()
        distinct = pc.count_distinct(column, mode="only_valid").as_py()
        values = "" if ends["min"] is None else f"{_short(ends['min'])} to {_short(ends['max'])}"
    else:
        counted = Counter(column.drop_null().to_pylist())
        distinct = len(counted)
        values = _frequent_values(counted)
    return ColumnSummary(name, role, kind, missing=count, distinct=distinct, values=values)


def _frequent_values(counted: Counter[LabelValue]) -> str:
    """Return the most frequent values of a column, with their shares if these are not tiny."""
    first = counted.most_common(SHOWN_VALUES)
    texts = [shown(_short(value)) for value, _ in first]
    shares = [count / counted.total() for _, count in first]
    if shares and shares[0] >= 0.01:
        texts = [f"{text} {percent(share)}" for text, share in zip(texts, shares, strict=True)]
    return ", ".join(texts) + ", …" * (len(counted) > len(first))


def _short(value: Any) -> str:
    """Format a value of a column.

    A number has six digits. A date has no time of day if the value has none.
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(value)
    return text.removesuffix(" 00:00:00") if text.strip() else "(blank)"


def shown(text: str, length: int = VALUE_LENGTH) -> str:
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
