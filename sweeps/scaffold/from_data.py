"""Write a space file that fits a table. Pure functions: the table is already summarised."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sweeps.data.summary import ColumnSummary, DataSummary, Finding, percent, shown
from sweeps.data.summary_text import label_text, one_line
from sweeps.data.summary_warnings import groups, missing_entry, parse_entry
from sweeps.scaffold.yaml_text import comment_lines, line, quoted, sweep_name
from sweeps.space.yaml_writer import flow

# A column of texts with more different texts is encoded as one column of codes.
ONE_HOT = 30
# From this number of rows on, a test split is cut off. Below the second number, trials are compared by cross-validation.
TEST_FROM, FOLDS_BELOW = 500, 200
# Number of dropped columns that the command names.
NAMED = 10
METRICS = {"binary": "valid-logloss", "multiclass": "valid-mlogloss", "regression": "valid-rmse"}


@dataclass(frozen=True)
class Columns:
    """The use of each column of a table in the space file.

    Attributes:
        drop: reason for each column that is dropped.
        parse: rule and reason for each column that is parsed. A rule is a text or a mapping.
        texts: the columns that stay texts and need an encoder.
        prose: the columns of texts that are hashed word by word.
        numbers: the columns that a trainer reads as they are, or after they are parsed.
    """

    drop: dict[str, str] = field(default_factory=dict)
    parse: dict[str, tuple[Any, str]] = field(default_factory=dict)
    texts: tuple[ColumnSummary, ...] = ()
    prose: tuple[str, ...] = ()
    numbers: tuple[ColumnSummary, ...] = ()


@dataclass(frozen=True)
class Table:
    """A table for which a space file is written.

    Attributes:
        source: path of the file, as the space file names it.
        label: the label column.
        task: "binary", "multiclass" or "regression".
        given_task: True if the space file must name the task, because sweeps would infer another one.
        label_rule: rule of `data.parse` for the label; "" if there is none.
        missing_labels: number of rows without a label.
        label_words: the words among the classes that may mean a missing label; "" if there are none.
        summary: summary of the rows.
        exact: False if the number of rows is an estimate.
    """

    source: str
    label: str
    task: str
    given_task: bool
    label_rule: str
    missing_labels: int
    summary: DataSummary
    exact: bool = True
    label_words: str = ""


def columns_of(summary: DataSummary) -> Columns:
    """Decide what becomes of each feature, by the findings in the data."""
    found = {f.column: f for f in reversed(summary.findings) if f.column and not f.loose}
    drop: dict[str, str] = {}
    parse: dict[str, tuple[Any, str]] = {}
    texts, numbers = [], []
    for column in (c for c in summary.columns if c.role == "feature"):
        finding = found.get(column.name, Finding(""))
        if (reason := _drop_reason(column, finding)) is not None:
            drop[column.name] = reason
        elif finding.kind in ("number_text", "date_text"):
            parse[column.name] = parse_entry(finding), _parse_reason(finding)
        elif column.kind == "date":
            parse[column.name] = "%Y-%m-%d", "dates become the days since 1970-01-01"
        if column.kind == "text" and column.name not in {**drop, **parse}:
            texts.append(column)
        elif column.name not in drop:
            numbers.append(column)
    prose = tuple(f.column for f in summary.findings if f.kind == "prose")
    return Columns(drop, parse, tuple(texts), prose, tuple(numbers))


def _parse_reason(finding: Finding) -> str:
    """Return why a column is parsed."""
    what = "numbers" if finding.kind == "number_text" else "dates"
    example = shown(finding.example) + f" in row {finding.row:,}" * (finding.row > 1)
    if finding.count:
        return f"{what}; other texts, such as {example}, become missing"
    other = f"; or {quoted(finding.other_rule)}, which also fits" if finding.other_rule else ""
    return f"{what} as text, such as {example}{other}"


def dropped_lines(columns: Columns, file: str) -> list[str]:
    """Return a line for each column that is dropped, at most `NAMED` lines and a count.

    Args:
        columns: the use of the columns.
        file: name of the space file, which has all of them.
    """
    lines = [
        f"dropped {shown(name)} ({shown(reason, 110)})" for name, reason in columns.drop.items()
    ]
    more = len(lines) - NAMED
    return [
        *lines[:NAMED],
        *(
            [f"dropped {more} more column{'s' * (more > 1)}; see data.drop in {file}"]
            if more > 0
            else []
        ),
    ]


def _drop_reason(column: ColumnSummary, finding: Finding) -> str | None:
    """Return why a column is dropped; None if the trainer can read it, as it is or after a step."""
    if finding.kind == "leak":
        return f"alone explains {percent(finding.share)} of the label: keep it only if it is known before the label"
    if finding.kind == "identifier":
        return f"identifies rows: {finding.count:,} different values"
    if column.kind == "other":
        return f"has the type {column.values}, which this trainer cannot read"
    return _DROPPED.get(finding.kind)


_DROPPED = {
    "row_number": "numbers the rows",
    "empty": "has no value",
    "constant": "has the same value in all rows",
    "infinite": "has infinite values, which this trainer refuses",
}


def space_text(table: Table, name: str = "", read: str = "") -> str:
    """Return the text of a space file for a table. The file runs as it stands.

    Args:
        table: the table.
        name: text from which the name of the sweep is made; "" for the name of the table.
        read: value of `data.read`; "" if text files are read as usual.
    """
    columns = columns_of(table.summary)
    small = table.summary.rows["train"] < FOLDS_BELOW
    parts = [
        _head(table, name),
        _data(table, columns, small, read),
        _search(table, small),
        _space(table, columns, small),
    ]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _head(table: Table, name: str) -> list[str]:
    about = "" if table.exact else "about "
    name = name or table.source.rpartition("/")[2].partition(".")[0]
    return [
        *comment_lines(
            f"Written by `sweeps init` from {table.source}: {about}{one_line(table.summary)}."
        ),
        "#",
        "#   sweeps plan FILE --data   shows the trials, the columns, and warnings about them",
        "#   sweeps run FILE           searches the space and exports the best trial",
        f"name: {quoted(sweep_name(name))}",
        line(
            "trainer: xgboost",
            "gradient-boosted trees; docs/how-to/trainers.md lists the other trainers",
        ),
    ]


def _data(table: Table, columns: Columns, small: bool, read: str) -> list[str]:
    """Return the section `data`."""
    lines = [
        "data:",
        line(f"train: {quoted(table.source)}", indent=2),
        line(f"label: {quoted(table.label)}", _label_comment(table), 2),
    ]
    if read:
        lines.insert(2, line(f"read: {read}", indent=2))
    if table.given_task:
        lines.append(line(f"task: {table.task}", "the label has numbers that are classes", 2))
    if table.task == "binary":
        positive = f"positive: {quoted(list(table.summary.label)[1])}"
        lines.append(line(positive, "the class that F1 and the signs of constraints refer to", 2))
    if small:
        lines.append(
            line(
                "valid: {folds: 5}",
                "few rows: each trial trains on four fifths of them, five times",
                2,
            )
        )
    else:
        lines.append(line("valid: 0.2", "trials are compared on a fifth of the rows", 2))
        if dates := [name for name, (rule, _) in columns.parse.items() if "%" in str(rule)]:
            lines.append(
                f"  # valid: {{time: {quoted(dates[0])}, last: 0.2}}  for a model that predicts later rows than it has seen"
            )
    if table.summary.rows["train"] >= TEST_FROM:
        lines.append(
            line(
                "test: 0.1",
                "the search never uses these rows; the best trial is scored on them once",
                2,
            )
        )
    if table.missing_labels:
        lines.append(
            line("drop_missing_label: true", f"{table.missing_labels:,} rows have no label", 2)
        )
    missing: dict[str, list[Any]] = {table.label: []} if table.label_words else {}
    if missing:
        comment = f"{table.label_words} is a class; or else drop_missing_label: true"
        lines.append(line(f"missing: {flow(missing)}", comment, 2))
    suspects = groups(table.summary.findings, "marker")
    for group in suspects:
        for column, markers in missing_entry(group).items():
            missing[column] = missing.get(column, []) + markers
    if suspects:
        comment = "if these texts and numbers mean missing values"
        lines.append(line(f"# missing: {flow(missing)}", comment, 2))
    for finding in table.summary.findings:
        if finding.kind == "duplicates":
            lines.append(
                line(
                    "drop_duplicates: true",
                    f"about {percent(finding.share)} of the rows are copies of others",
                    2,
                )
            )
    lines += _entries(
        "drop", {f"- {quoted(name)}": reason for name, reason in columns.drop.items()}
    )
    rules = {
        f"{flow(name)}: {quoted(rule)}": reason for name, (rule, reason) in columns.parse.items()
    }
    own = (
        {f"{flow(table.label)}: {quoted(table.label_rule)}": "the label"}
        if table.label_rule
        else {}
    )
    return [*lines, *_entries("parse", own | rules)]


def _entries(key: str, entries: Mapping[str, str]) -> Iterator[str]:
    """Yield a key of the section `data` with one line for each entry."""
    if entries:
        yield f"  {key}:"
    for entry, reason in entries.items():
        yield line(entry, shown(reason, 110), 4)


def _label_comment(table: Table) -> str:
    """Return the comment about the label: its classes with their shares, or its range."""
    balance = table.summary.label.values()
    rare = bool(balance) and min(balance) < 0.05 * sum(balance)
    shares = label_text(table.summary).removeprefix(f"{table.label} ")
    if table.task == "multiclass" and next(iter(table.summary.label)).isdigit():
        shares += "; for a label of numbers, add `task: regression`"
    return f"{table.task}: {shares}" + (
        "; a class is rare: consider `class_weight: balanced`" if rare else ""
    )


def _search(table: Table, small: bool) -> list[str]:
    metric = METRICS[table.task]
    lines = [line(f"objective: {{metric: {metric}, goal: minimize}}")]
    if not small:
        lines.append(
            line(
                "scheduler: {name: asha, max_t: 100, grace_period: 10}",
                "a step is one tree; poor trials stop early",
            )
        )
    return [*lines, line("limits: {max_trials: 30, timeout: 30m}", "whichever comes first")]


def _space(table: Table, columns: Columns, small: bool) -> list[str]:
    """Return the section `space`: encoders for the texts, and the parameters of the trainer."""
    lines = ["space:"]
    if columns.texts:
        lines += _preprocessor(table, columns)
    rounds = (
        [line("num_boost_round: {choice: [25, 50, 100]}", "number of trees", 4)] if small else []
    )
    return [
        *lines,
        "  params:",
        line("eta: {loguniform: [0.01, 0.3]}", "learning rate", 4),
        line("max_depth: {randint: [2, 11]}", "2 to 10", 4),
        line("min_child_weight: {loguniform: [0.5, 20]}", "", 4),
        line("subsample: {uniform: [0.5, 1.0]}", "share of the rows for each tree", 4),
        line("colsample_bytree: {uniform: [0.5, 1.0]}", "share of the columns for each tree", 4),
        *rounds,
    ]


def _preprocessor(table: Table, columns: Columns) -> list[str]:
    """Return the steps that turn texts into numbers. Missing numbers stay missing, because the trainer reads them."""
    lines = ["  preprocessor:"]
    if any(column.missing for column in columns.texts) or not table.exact:
        lines.append(
            line(
                "- SimpleImputer: {columns: categorical, strategy: constant, fill_value: missing}",
                "",
                4,
            )
        )
    prose = list(columns.prose)
    if prose:
        text = f"- HashingVectorizer: {{columns: {quoted(prose)}, num_features: 64}}"
        lines.append(line(text, "prose: the number of each word, in 64 columns", 4))
    others = [column for column in columns.texts if column.name not in prose]
    many = [column.name for column in others if (column.distinct or 0) > ONE_HOT]
    few = len(others) - len(many)
    if many:
        lines.append(
            line(
                f"- OrdinalEncoder: {{columns: {quoted(many)}}}",
                f"more than {ONE_HOT} different texts",
                4,
            )
        )
    if few:
        what = f"the other {few} column{'s' * (few > 1)} of text" if many else "the columns of text"
        lines.append(line("- choice: [OneHotEncoder, OrdinalEncoder]", what, 4))
    return lines
