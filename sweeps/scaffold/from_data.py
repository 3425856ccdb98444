"""Write a space file that fits a table. Pure functions: the table is already summarised."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sweeps.core.installed_package import install_command
from sweeps.core.metrics import usual_goal
from sweeps.data.summary.data_summary import (
    ColumnSummary,
    DataSummary,
    Finding,
    percent,
    short_text,
)
from sweeps.data.summary.summary_text import label_text, one_line
from sweeps.data.summary.summary_warnings import groups, missing_entry, parse_entry
from sweeps.space.yaml.yaml_writer import flow

from .table_search import ENSEMBLE, FOLDS, TableSearch, choose_search
from .yaml_text import comment_lines, line, sweep_name, yaml_value

if TYPE_CHECKING:
    from pydantic import JsonValue

# Number of dropped columns that the command names.
MOST_NAMES = 10
# A search ends after this time, or after this number of trials, if the user gives no minutes.
MINUTES = 5
MOST_TRIALS = 1_000
# Numbers with at most so many different values may be classes.
FEW_VALUES = 50
# A class with a smaller share of the rows is rare.
RARE_SHARE = 0.05
# Why a column is dropped, by the kind of the finding about it.
_DROP_REASONS = {
    "row_number": "numbers the rows",
    "empty": "has no value",
    "constant": "has the same value in all rows",
    "infinite": "has infinite values, which this trainer refuses",
}
METRICS = {"binary": "valid-logloss", "multiclass": "valid-mlogloss", "regression": "valid-rmse"}


@dataclass(frozen=True)
class Columns:
    """The use of each column of a table in the space file.

    Attributes:
        drop: Reason for each column that is dropped.
        parse: Rule and reason for each column that is parsed. A rule is a text or a mapping.
        texts: The columns that stay texts and need an encoder.
        prose: The columns of texts that are hashed word by word.
    """

    drop: dict[str, str] = field(default_factory=dict)
    parse: dict[str, tuple[JsonValue, str]] = field(default_factory=dict)
    texts: tuple[ColumnSummary, ...] = ()
    prose: tuple[str, ...] = ()

    @property
    def dates(self) -> list[str]:
        """The columns that are parsed as dates."""
        return [name for name, (rule, _) in self.parse.items() if "%" in str(rule)]


@dataclass(frozen=True)
class Table:
    """A table for which a space file is written.

    Attributes:
        source: Path of the file, as the space file names it.
        label: The label column.
        task: "binary", "multiclass" or "regression".
        given_task: True if the space file must name the task, because sweeps would infer another
            one.
        label_rule: Rule of `data.parse` for the label; "" if there is none.
        missing_labels: Number of rows without a label.
        label_words: The words among the classes that may mean a missing label; "" if there are
            none.
        summary: Summary of the rows.
        exact: False if the number of rows is an estimate.
        metric: The metric to optimize; "" for the usual metric of the task.
        trainers: Names of the trainers.
        missing_trainers: Names of trainers whose packages are not installed.
        time: The column of dates by which the rows are sorted; "" if there is none.
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
    metric: str = ""
    trainers: tuple[str, ...] = ("xgboost",)
    missing_trainers: tuple[str, ...] = ()
    time: str = ""

    @property
    def search(self) -> TableSearch:
        """The splits, the scheduler, the limits and the parameters for the table."""
        rows = self.summary.rows["train"]
        classes = self.summary.label
        smallest = min(classes.values(), default=rows)
        foldable = not self.time and smallest >= FOLDS
        return choose_search(self.trainers, rows, len(classes), foldable)


def columns_of(summary: DataSummary) -> Columns:
    """Decide what becomes of each feature, by the findings in the data."""
    # The first finding about each column. A loose finding does not fit all values.
    findings = {f.column: f for f in reversed(summary.findings) if f.column and not f.loose}
    drop: dict[str, str] = {}
    parse: dict[str, tuple[JsonValue, str]] = {}
    texts = []
    features = [column for column in summary.columns if column.role == "feature"]
    for column in features:
        finding = findings.get(column.name, Finding(""))
        reason = _drop_reason(column, finding)
        if reason is not None:
            drop[column.name] = reason
        elif finding.kind in ("number_text", "date_text"):
            parse[column.name] = parse_entry(finding), _parse_reason(finding)
        elif column.kind == "date":
            parse[column.name] = "%Y-%m-%d", "dates become the days since 1970-01-01"
        if column.kind == "text" and column.name not in drop and column.name not in parse:
            texts.append(column)
    prose = tuple(f.column for f in summary.findings if f.kind == "prose")
    return Columns(drop, parse, tuple(texts), prose)


def _parse_reason(finding: Finding) -> str:
    """Return why a column is parsed."""
    values = "numbers" if finding.kind == "number_text" else "dates"
    example = short_text(finding.example)
    if finding.row > 1:
        example += f" in row {finding.row:,}"
    if finding.count:
        return f"{values}; other texts, such as {example}, become missing"
    other = f"; or {yaml_value(finding.other_rule)}, which also fits" if finding.other_rule else ""
    return f"{values} as text, such as {example}{other}"


def choices(table: Table, file: str) -> list[str]:
    """Return lines about what was chosen for a table and how to change it.

    These are the task and the metric, the rows on which trials are compared if they are the latest
    ones, and the columns that are dropped: at most `MOST_NAMES` of them, and the number of the
    others.

    Args:
        table: The table.
        file: Name of the space file, which has all dropped columns.
    """
    lines = [_task_line(table)]
    if table.time:
        change = "for a random fifth: --set data.valid=0.2"
        lines.append(
            f"trials are compared on the latest fifth by {short_text(table.time)} ({change})"
        )
    drop = columns_of(table.summary).drop
    for name, reason in [*drop.items()][:MOST_NAMES]:
        lines.append(f"dropped {short_text(name)} ({short_text(reason, 110)})")
    for trainer in table.missing_trainers:
        lines.append(f"left out {trainer}, which is not installed: {install_command(trainer)}")
    others = len(drop) - MOST_NAMES
    if others > 0:
        lines.append(f"dropped {others} more column{'s' * (others > 1)}; see data.drop in {file}")
    return lines


def _task_line(table: Table) -> str:
    """Return a line about the task and the metric that were taken, and how to change them."""
    label = next(column for column in table.summary.columns if column.role == "label")
    change = ""
    if table.task == "multiclass" and next(iter(table.summary.label)).lstrip("-").isdigit():
        change = "for numbers: --task regression; "
    elif table.task == "regression" and (label.distinct or 0) <= FEW_VALUES:
        change = "for classes: --task multiclass; "
    change += "for another metric: --metric"
    return f"{label_text(table.summary)}: {table.task}, {_metric(table)} ({change})"


def _drop_reason(column: ColumnSummary, finding: Finding) -> str | None:
    """Return why a column is dropped; None if the trainer can read it, as it is or after a step."""
    if finding.kind == "leak":
        return (
            f"alone explains {percent(finding.share)} of the label: keep it only if it is known "
            "before the label"
        )
    if finding.kind == "identifier":
        return f"identifies rows: {finding.count:,} different values"
    if column.kind == "other":
        return f"has the type {column.values}, which this trainer cannot read"
    return _DROP_REASONS.get(finding.kind)


def space_text(table: Table, name: str = "", read: str = "") -> str:
    """Return the text of a space file for a table. The file runs as it stands.

    Args:
        table: The table.
        name: Text from which the name of the sweep is made; "" for the name of the table.
        read: Value of `data.read`; "" if text files are read as usual.
    """
    columns = columns_of(table.summary)
    search = table.search
    parts = [
        _head(table, name),
        ["data:", *_lines(_data(table, columns, search, read), 2), *_column_lines(table, columns)],
        _lines(_sections(table, search), 0),
        ["space:", *_preprocessor(columns), "  params:", *_params(search)],
    ]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _lines(entries: Mapping[str, str], indent: int) -> list[str]:
    """Return a line for each entry, with its comment."""
    return [line(entry, comment, indent) for entry, comment in entries.items()]


def _head(table: Table, name: str) -> list[str]:
    """Return the first lines of the file: comments, the name and the trainer."""
    about = "" if table.exact else "about "
    name = name or table.source.rpartition("/")[2].partition(".")[0]
    return [
        *comment_lines(
            f"Written by `sweeps init` from {table.source}: {about}{one_line(table.summary)}."
        ),
        "#",
        "#   sweeps plan FILE --data   shows the trials, the columns, and warnings about them",
        "#   sweeps run FILE           searches the space and exports the best trial",
        f"name: {yaml_value(sweep_name(name))}",
        line(
            f"trainer: {_trainer(table)}",
            "gradient-boosted trees; docs/how-to/trainers.md lists the other trainers",
        ),
    ]


def _trainer(table: Table) -> str:
    """Return the value of the key `trainer`."""
    if len(table.trainers) == 1:
        return table.trainers[0]
    return f"{{choice: [{', '.join(table.trainers)}]}}"


def _params(search: TableSearch) -> list[str]:
    """Return the lines of `params`: one block for each trainer, if there are several."""
    blocks = search.params
    if len(blocks) == 1:
        return _lines(next(iter(blocks.values())), 4)
    lines = []
    for trainer, entries in blocks.items():
        lines += [f"    {trainer}:", *_lines(entries, 6)]
    return lines


def _data(table: Table, columns: Columns, search: TableSearch, read: str) -> dict[str, str]:
    """Return the keys of the section `data` without the lists of columns, each with its comment."""
    findings = table.summary.findings
    keys = {f"train: {yaml_value(table.source)}": ""}
    if read:
        keys[f"read: {read}"] = ""
    keys[f"label: {yaml_value(table.label)}"] = _label_comment(table)
    if table.given_task:
        keys[f"task: {table.task}"] = "or else sweeps would infer another task"
    if table.task == "binary":
        positive = f"positive: {yaml_value(list(table.summary.label)[1])}"
        keys[positive] = "the class that F1 and the signs of constraints refer to"
    if table.time:
        comment = "the rows are sorted by this date: trials are compared on the latest fifth"
        keys[f"valid: {_latest(table.time, 0.2)}"] = comment
        keys["# valid: 0.2   if new rows are not later than these"] = ""
    elif search.folds:
        comment = "few rows: each trial trains on four fifths of them, five times"
        keys[f"valid: {{folds: {search.folds}}}"] = comment
    else:
        keys["valid: 0.2"] = "trials are compared on a fifth of the rows"
    if columns.dates and not table.time:
        latest = _latest(columns.dates[0], 0.2)
        keys[f"# valid: {latest}   if new rows are later than these"] = ""
    if search.has_test:
        comment = "the search never uses these rows; the best trial is scored on them once"
        keys[f"test: {_latest(table.time, 0.1) if table.time else 0.1}"] = comment
    if table.missing_labels:
        keys["drop_missing_label: true"] = f"rows without a label: {table.missing_labels:,}"
    missing: dict[str, list[JsonValue]] = {}  # the markers of each column
    if table.label_words:
        missing[table.label] = []
        comment = f"{table.label_words} is a class; or else drop_missing_label: true"
        keys[f"missing: {flow(missing)}"] = comment
    marker_groups = groups(findings, "marker")
    for group in marker_groups:
        for column, markers in missing_entry(group).items():
            missing[column] = missing.get(column, []) + markers
    if marker_groups:
        comment = "if these texts and numbers mean missing values"
        keys[f"# missing: {flow(missing)}"] = comment
    for finding in findings:
        if finding.kind == "duplicates":
            comment = f"about {percent(finding.share)} of the rows are copies of others"
            keys["drop_duplicates: true"] = comment
    return keys


def _latest(column: str, share: float) -> str:
    """Return the value of a split that has the latest rows."""
    return f"{{time: {yaml_value(column)}, last: {share}}}"


def _column_lines(table: Table, columns: Columns) -> list[str]:
    """Return the keys `drop` and `parse` of the section `data`."""
    drop = {f"- {yaml_value(name)}": reason for name, reason in columns.drop.items()}
    parse = {}
    if table.label_rule:
        parse[f"{flow(table.label)}: {yaml_value(table.label_rule)}"] = "the label"
    for name, (rule, reason) in columns.parse.items():
        parse[f"{flow(name)}: {yaml_value(rule)}"] = reason
    lines = []
    for key, entries in {"drop": drop, "parse": parse}.items():
        if entries:
            lines.append(f"  {key}:")
        lines += [line(entry, short_text(reason, 110), 4) for entry, reason in entries.items()]
    return lines


def _label_comment(table: Table) -> str:
    """Return the comment about the label: its classes with their shares, or its range."""
    counts = table.summary.label.values()  # number of rows of each class
    text = label_text(table.summary).removeprefix(f"{table.label} ")
    if table.task == "multiclass" and next(iter(table.summary.label)).isdigit():
        text += "; for a label of numbers, `sweeps init --task regression`"
    if counts and min(counts) < RARE_SHARE * sum(counts):
        text += "; a class is rare: consider `class_weight: balanced`"
    return f"{table.task}: {text}"


def _metric(table: Table) -> str:
    """Return the metric that the user named, or else the usual one of the task."""
    return table.metric or METRICS[table.task]


def _sections(table: Table, search: TableSearch) -> dict[str, str]:
    """Return the sections about the search and the bundle, each with its comment."""
    metric = _metric(table)
    goal = usual_goal(metric) or "minimize"
    sections = {f"objective: {{metric: {metric}, goal: {goal}, choose: auto}}": ""}
    if "xgboost" in table.trainers:
        sections["search: {portfolio: xgboost}"] = "configurations that were good on other tables"
    if search.scheduler is not None:
        value, comment = search.scheduler
        sections[f"scheduler: {value}"] = comment
    limits = f"limits: {{timeout: {MINUTES}m, max_trials: {MOST_TRIALS}}}"
    sections[limits] = "whichever comes first; or `sweeps run FILE --minutes 2`"
    ensemble = f"ensemble: {ENSEMBLE}"
    if search.trains_on_all:
        comment = "the best models are averaged, and trained on all rows"
        sections[f"bundle: {{{ensemble}, train_on: all}}"] = comment
    else:
        sections[f"bundle: {{{ensemble}}}"] = "the best models of all folds are averaged"
    return sections


def _preprocessor(columns: Columns) -> list[str]:
    """Return the steps for columns of texts. The trainer reads categories and missing values."""
    if not columns.texts:
        return []
    steps = {}
    if columns.prose:
        fill = "strategy: constant, fill_value: missing"
        steps[f"- SimpleImputer: {{columns: {yaml_value([*columns.prose])}, {fill}}}"] = ""
        text = f"- HashingVectorizer: {{columns: {yaml_value([*columns.prose])}, num_features: 64}}"
        steps[text] = "prose: the number of each word, in 64 columns"
    if len(columns.texts) > len(columns.prose):
        steps["- Categorizer"] = "the columns of text; the trainer reads categories as they are"
    return ["  preprocessor:", *_lines(steps, 4)]
