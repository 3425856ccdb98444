"""Format the summary of the data for `sweeps run`, `sweeps plan --data` and the report.

The summary is one line for `sweeps run`, and a table for the other two. The functions are pure.
"""

from collections import Counter

from sweeps.core.text.shell_text import printable
from sweeps.space import Space

from .data_summary import VALUE_LENGTH, DataSummary, percent, shown
from .summary_warnings import warnings

HEAD = ("column", "kind", "missing", "distinct", "values")
# The columns of `HEAD` that are aligned to the right
NUMBERS = (2, 3)
# Number of columns of the data that a table lists, and number of classes of the label that a line
# lists.
MOST_COLUMNS = 60
MOST_CLASSES = 4
# Words for the kinds of columns, in the order of the line.
_KINDS = {
    "number": "numeric",
    "boolean": "boolean",
    "text": "text",
    "date": "date",
    "other": "other",
}


def one_line(summary: DataSummary) -> str:
    """Return the summary in one line."""
    features = [column for column in summary.columns if column.role == "feature"]
    kinds = Counter(column.kind for column in features)
    texts = [f"{kinds[kind]} {name}" for kind, name in _KINDS.items() if kinds[kind]]
    missing = sum(column.missing for column in features)
    rows = ", ".join(f"{count:,} {key}" for key, count in summary.rows.items())
    rows = f"{rows} rows" if len(summary.rows) > 1 else f"{summary.rows['train']:,} rows"
    parts = [
        f"{rows}, {len(features)} feature{'s' * (len(features) != 1)} ({', '.join(texts)})"
        if features
        else rows
    ]
    parts += [f"{missing:,} missing value{'s' * (missing != 1)}"] if missing else []
    parts += [text] if (text := label_text(summary)) else []
    return "; ".join(parts)


def label_text(summary: DataSummary) -> str:
    """Return the label with the shares of its classes, or with its range.

    Return "" if there is no label.
    """
    labels = [column for column in summary.columns if column.role == "label"]
    if not labels:
        return ""
    if not summary.label:
        return ", ".join(f"{column.name} {column.values}" for column in labels[:MOST_CLASSES])
    total = max(1, sum(summary.label.values()))
    first = sorted(summary.label.items(), key=lambda item: -item[1])[:MOST_CLASSES]
    more = f", … {len(summary.label)} classes" if len(summary.label) > len(first) else ""
    if len(summary.label) == 2:
        more = f" (positive: {shown(list(summary.label)[1])})"
    return (
        f"{labels[0].name} "
        + ", ".join(f"{shown(name)} {percent(count / total)}" for name, count in first)
        + more
    )


def table_rows(summary: DataSummary) -> list[list[str]]:
    """Return the cells of a table of the columns, without the head. The label comes first."""
    ordered = sorted(summary.columns, key=lambda column: column.role != "label")
    rows = []
    for column in ordered[:MOST_COLUMNS]:
        marks = [column.role] * (column.role != "feature") + ["parsed"] * column.parsed
        role = f" ({', '.join(marks)})" if marks else ""
        missing = f"{column.missing:,}" if column.missing else ""
        distinct = "" if column.distinct is None else f"{column.distinct:,}"
        rows.append(
            [
                shown(column.name, 2 * VALUE_LENGTH) + role,
                column.kind,
                missing,
                distinct,
                column.values,
            ]
        )
    return rows


def remarks(summary: DataSummary) -> list[str]:
    """Return sentences about what the table leaves out."""
    texts = []
    if (hidden := len(summary.columns) - MOST_COLUMNS) > 0:
        texts.append(f"{hidden} more columns are not shown.")
    if summary.sampled < summary.rows["train"]:
        texts.append(
            f"Distinct values and ranges are of a sample of {summary.sampled:,} rows; missing "
            "values are of all rows."
        )
    return texts


def data_messages(summary: DataSummary, space: Space) -> tuple[str, ...]:
    """Return the lines that `sweeps run` prints: one about the rows, and one for each warning."""
    lines = [
        f"data: {one_line(summary)}",
        *(f"warning: {warning.text}" for warning in warnings(summary, space)),
    ]
    return tuple(printable(line) for line in lines)
