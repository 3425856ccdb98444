"""Format the summary of the data for `sweeps run`, `sweeps plan --data` and the report.

The summary is one line for `sweeps run`, and a table for the other two. The functions are pure.
"""

from collections import Counter

from sweeps.core.text.shell_text import printable
from sweeps.space import Space

from .data_summary import VALUE_LENGTH, DataSummary, percent, short_text
from .summary_warnings import warnings

HEAD = ("column", "kind", "missing", "distinct", "values")
# The columns of `HEAD` that are aligned to the right
RIGHT_ALIGNED = (2, 3)
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
    if len(summary.rows) == 1:
        rows = f"{summary.rows['train']:,}"
    text = f"{rows} rows"
    if features:
        text += f", {len(features)} feature{'s' * (len(features) != 1)} ({', '.join(texts)})"
    if missing:
        text += f"; {missing:,} missing value{'s' * (missing != 1)}"
    if label := label_text(summary):
        text += f"; {label}"
    return text


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
    largest = sorted(summary.label.items(), key=lambda item: -item[1])[:MOST_CLASSES]
    shares = [f"{short_text(name)} {percent(count / total)}" for name, count in largest]
    text = f"{labels[0].name} {', '.join(shares)}"
    if len(summary.label) == 2:
        text += f" (positive: {short_text(list(summary.label)[1])})"
    elif len(summary.label) > MOST_CLASSES:
        text += f", … {len(summary.label)} classes"
    return text


def table_rows(summary: DataSummary) -> list[list[str]]:
    """Return the cells of a table of the columns, without the head. The label comes first."""
    ordered = sorted(summary.columns, key=lambda column: column.role != "label")
    rows = []
    for column in ordered[:MOST_COLUMNS]:
        marks = [] if column.role == "feature" else [column.role]
        if column.parsed:
            marks.append("parsed")
        name = short_text(column.name, 2 * VALUE_LENGTH)
        if marks:
            name += f" ({', '.join(marks)})"
        missing = f"{column.missing:,}" if column.missing else ""
        distinct = "" if column.distinct is None else f"{column.distinct:,}"
        rows.append([name, column.kind, missing, distinct, column.values])
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
