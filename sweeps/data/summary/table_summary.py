"""Summarise the data of a sweep, with findings that may spoil a search.

The summary also has the rows, the columns, missing and distinct values, and the label. The
functions are pure. `sweeps.data.summary.summary_findings` looks for the findings.
`sweeps.data.summary.summary_warnings` decides which findings matter for a space. The cost
is bounded: at most `SAMPLE_ROWS` rows of a table are looked at, except to count missing values.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sweeps.core.label_columns import Classes, LabelValue
from sweeps.data.checks.named_columns import split_columns
from sweeps.data.columns.tables import Parts
from sweeps.space import DataSpec

from .data_summary import (
    SAMPLE_ROWS,
    VALUE_LENGTH,
    ColumnSummary,
    DataSummary,
    kind_of,
    percent,
    sample_rows,
    short_text,
)

# Largest number of values of a sample, and number of rows that it has at least in spite of this
# limit
SAMPLE_VALUES = 5_000_000
LEAST_ROWS = 1_000
# Number of values that the text of a column shows.
SHOWN_VALUES = 3


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
    from .summary_findings import find_all

    train = parts["train"]
    # A sample would copy images and other large values.
    simple = [field.name for field in train.schema if kind_of(field) != "other"]
    sample_size = max(LEAST_ROWS, min(SAMPLE_ROWS, SAMPLE_VALUES // max(1, len(simple))))
    sample = sample_rows(train.select(simple), sample_size, seed)
    columns = []
    for name, role in column_roles(spec, train.column_names).items():
        column = _summarize_column(train, sample, name, role, missing)
        columns.append(replace(column, parsed=name in spec.parse and role != "dropped"))
    class_rows: dict[str, int] = {}
    if classes is not None:
        counts = pc.value_counts(train.column(spec.labels[0]).drop_null()).to_pylist()
        rows_by_class = {item["values"]: item["counts"] for item in counts}
        class_rows = {_short(value): rows_by_class.get(value, 0) for value in classes}
    return DataSummary(
        rows=dict(rows or {key: part.num_rows for key, part in parts.items()}),
        sampled=min(train.num_rows, sample_size),
        columns=tuple(columns),
        label=class_rows,
        findings=find_all(spec, parts, sample, columns, classes, seed, whole=rows is None),
    )


def column_roles(spec: DataSpec, names: Sequence[str]) -> dict[str, str]:
    """Return the role of each column; see `ColumnSummary`."""
    # A later role replaces an earlier one of the same column.
    roles = dict.fromkeys(split_columns(spec), "split") | dict.fromkeys(spec.drop, "dropped")
    roles |= dict.fromkeys(spec.weight_columns, "weight") | dict.fromkeys(spec.labels, "label")
    return {name: roles.get(name, "feature") for name in names}


def _summarize_column(
    train: pa.Table, sample: pa.Table, name: str, role: str, missing: Mapping[str, int] | None
) -> ColumnSummary:
    """Summarise a column; see `summarize` for `missing`."""
    field = train.schema.field(name)
    kind = kind_of(field)
    count = train.column(name).null_count if missing is None else missing.get(name, 0)
    if kind == "other":
        values = short_text(str(field.type), 2 * VALUE_LENGTH)
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
    texts = []
    show_shares = max(counted.values(), default=0) / max(1, counted.total()) >= 0.01
    for value, count in counted.most_common(SHOWN_VALUES):
        text = short_text(_short(value))
        texts.append(f"{text} {percent(count / counted.total())}" if show_shares else text)
    if len(counted) > SHOWN_VALUES:
        texts.append("…")
    return ", ".join(texts)


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
