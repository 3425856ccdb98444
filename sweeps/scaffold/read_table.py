"""Read the table for which `sweeps init` writes a space file, and find out what its label is.

Nothing is started.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import JsonValue

from sweeps.core.errors import InputError, Problem
from sweeps.core.label_columns import LabelValue
from sweeps.core.text.suggestions import did_you_mean
from sweeps.data.checks.label_checks import drop_unlabeled, infer_task
from sweeps.data.columns.column_types import is_text
from sweeps.data.columns.missing import Profile, profile_columns
from sweeps.data.columns.parse import parse_texts
from sweeps.data.columns.parsed_columns import read_rows
from sweeps.data.sources import ingest, schema_probe
from sweeps.data.sources.data_files import Source, find_files
from sweeps.data.summary.data_summary import DataSummary, Finding
from sweeps.data.summary.early_summary import TableReader
from sweeps.data.summary.table_summary import summarize
from sweeps.data.summary.text_findings import text_findings
from sweeps.space.parse.nodes import Problems, locate
from sweeps.space.parse.section_checks import check
from sweeps.space.sections.data_models import READ_DEFAULTS, DataSpec, ReadKeys, Split
from sweeps.space.yaml import yaml12
from sweeps.space.yaml.yaml_writer import flow

from .from_data import Table, columns_of

# Largest number of classes of a label.
MOST_CLASSES = 1_000
# Rows that are sorted by fewer different dates than this are no time series.
LEAST_TIMES = 20
# Names that a label often has, in lower case.
LABEL_NAMES = ("target", "label", "class", "y", "outcome")


def read_keys(text: str) -> tuple[ReadKeys, str]:
    """Parse the option `--read`, which has the keys of `data.read` in YAML.

    Returns:
        The keys, and the value of `data.read` in the space file: YAML in one line, or "" if the
        option is empty.

    Raises:
        InputError: The text is not YAML, or a key or its value is wrong.
    """
    node = yaml12.parse(text, "--read", override=True)
    problems = Problems()
    keys = check(ReadKeys, locate(node, problems, "read"))
    if keys is None:
        raise InputError([Problem("--read", problem.text) for problem in problems.sorted()])
    return keys, flow(node.plain()) if text else ""


def open_table(
    path: str, folder: Path | None, read: ReadKeys = READ_DEFAULTS
) -> tuple[str, TableReader, pa.Table]:
    """Read a data file, or some rows of a large one.

    Args:
        path: The file, a folder, a glob or a URI, as the user gave it.
        folder: Folder of the space file; None to name the file by its absolute path.
        read: Settings for reading text files.

    Returns:
        The source as the space file names it, the reader, and the rows.

    Raises:
        InputError: The file cannot be read.
    """
    try:
        source = source_in(path, folder)
        folder = folder or Path.cwd()
        is_large = False
        if not source.startswith("sklearn:"):
            files = find_files(Source(source, folder, "--data", read=read))
            schema_probe.probe_schemas(files)
            is_large = ingest.estimate_bytes(files) >= ingest.STREAM_FROM
        reader = TableReader(is_large)
        return source, reader, reader(Source(source, folder, "data.train", read=read))
    except InputError as e:
        texts = [re.sub("`data.read: (.*?)`", r"`--read '\1'`", p.text) for p in e.problems]
        raise InputError([Problem("--data", text) for text in texts]) from None


def source_in(path: str, folder: Path | None) -> str:
    """Return the text that names a file in a space file in `folder`.

    It is a relative path if the file is in this folder.
    """
    if "://" in path or path.startswith("sklearn:"):
        return path
    absolute = Path(path).expanduser().absolute()
    if folder is None or not absolute.is_relative_to(folder.absolute()):
        return str(absolute)
    return str(absolute.relative_to(folder.absolute()))


def likely_label(names: list[str]) -> str:
    """Return the column that is probably the label: one with a usual name, or else the last one."""
    by_lower = {name.lower(): name for name in reversed(names)}
    return next((by_lower[word] for word in LABEL_NAMES if word in by_lower), names[-1])


def label_hint(names: list[str]) -> str:
    """Return a text that asks for the label, with the first columns of a table."""
    first_names = ", ".join(names[:20]) + ", ..." * (len(names) > 20)
    return f"name one of the {len(names)} columns, such as {likely_label(names)}: {first_names}"


def describe_table(
    source: str,
    reader: TableReader,
    table: pa.Table,
    label: str,
    folder: Path,
    task: str | None = None,
) -> Table:
    """Find out what the label is, and summarise the table.

    Args:
        source: The source as the space file names it.
        reader: The reader of the table.
        table: The rows.
        label: The column to predict.
        folder: Folder of the space file.
        task: "binary", "multiclass" or "regression"; None to infer it.

    Raises:
        InputError: The table has no such column, or the column cannot be a label.
    """
    _require_label(source, table, label)
    rule = _label_rule(table, label)
    parse = {label: rule} if rule else {}
    valid = Split("fraction", fraction=0.2)
    spec = DataSpec(
        train=source,
        label=label,
        valid=valid,
        test=None,
        task=None,
        base=folder,
        parse=parse,
        drop_missing_label=True,
    )
    # A frequent word such as `none` is a class, and not a marker of a missing label.
    profile = profile_columns(spec, table.select([label])).get(label, Profile(0))
    words = " and ".join(repr(word) for word in profile.markers if profile.is_value(word))
    spec = replace(spec, missing={label: ()} if words else {})
    try:
        parts = read_rows(spec, {"train": table}).parts
        missing = parts["train"].column(label).null_count
        parts = drop_unlabeled((label,), parts)[0] if missing else parts
        task, classes, names_task = _task(label, parts, task)
    except InputError as e:
        option = {"data.task": "--task"}
        problems = [Problem(option.get(p.place, "--label"), p.text) for p in e.problems]
        raise InputError(problems) from None
    total_rows = dict(reader.rows) if reader.stream else None  # `parts` has only some of the rows
    summary = summarize(spec, parts, classes, rows=total_rows)
    if missing:
        findings = (_with_unlabeled(finding, table) for finding in summary.findings)
        summary = replace(summary, findings=tuple(findings))
    described = Table(
        source,
        label,
        task,
        given_task=names_task,
        label_rule=rule,
        missing_labels=missing,
        summary=summary,
        exact=reader.exact,
        label_words=words,
    )
    columns = columns_of(summary)
    _require_features(summary, columns.drop)
    if reader.stream:
        return described
    rules = {name: columns.parse[name][0] for name in columns.dates}
    times = [name for name, rule in rules.items() if _is_sorted(table.column(name), rule)]
    return replace(described, time=times[0]) if len(times) == 1 else described


def _require_label(source: str, table: pa.Table, label: str) -> None:
    """Raise an InputError if a table has no such column, or has no other column."""
    if label not in table.column_names:
        hint = did_you_mean(label, table.column_names)
        raise InputError("--label", f"the data has no column `{label}`; {hint}")
    if table.num_columns == 1:
        raise InputError("--label", f"`{source}` has only the column `{label}`")


def _require_features(summary: DataSummary, dropped: Mapping[str, str]) -> None:
    """Raise an InputError if no feature is left; `dropped` has the reasons by column."""
    if all(column.name in dropped for column in summary.columns if column.role == "feature"):
        reasons = ", ".join(f"{name} ({reason})" for name, reason in dropped.items())
        text = (
            f"no column is left that this trainer can read: {reasons[:200]}; write a loop of your "
            "own (docs/how-to/own-loop.md)"
        )
        raise InputError("--data", text)


def _is_sorted(column: pa.ChunkedArray, rule: JsonValue) -> bool:
    """Return whether rows are sorted by a date, and have at least `LEAST_TIMES` different dates.

    Args:
        column: Dates, or texts of dates.
        rule: Rule of `data.parse` for texts of dates. A mapping allows texts that are no dates.
    """
    times = column.combine_chunks()
    if is_text(times.type):
        if not isinstance(rule, str):
            return False
        times = parse_texts(times, rule)
    if times.null_count or pc.count_distinct(times).as_py() < LEAST_TIMES:
        return False
    earlier = times[:-1]
    later = times[1:]
    orders = (pc.less_equal, pc.greater_equal)  # ascending or descending
    return any(pc.all(compare(earlier, later)).as_py() for compare in orders)


def _with_unlabeled(finding: Finding, table: pa.Table) -> Finding:
    """Return a finding with the number of texts that do not fit its rule in any row of a table.

    `data.parse` also reads rows without a label, which the finding does not count.
    """
    if finding.kind not in ("number_text", "date_text"):
        return finding
    texts = pc.unique(table.column(finding.column)).drop_null()
    unparsed = texts.filter(parse_texts(texts, finding.rule).is_null())
    if not len(unparsed):
        return finding
    return replace(finding, count=len(unparsed), example=unparsed[0].as_py(), row=0)


def _label_rule(table: pa.Table, label: str) -> str:
    """Return the rule of `data.parse` for a label of numbers that are written as text.

    Return "" for any other label.
    """
    column = table.column(label)
    if pa.types.is_large_string(column.type):
        for finding in text_findings(column, label):
            if finding.kind == "number_text" and not finding.count:
                return finding.rule
    return ""


def _task(
    label: str, parts: dict[str, pa.Table], wanted: str | None
) -> tuple[str, tuple[LabelValue, ...] | None, bool]:
    """Return the task, the classes, and whether the space file must name the task.

    The classes are None for a regression. The space file must name the task if sweeps would infer
    another one. `wanted` is the task that the user named.

    Raises:
        InputError: The label has too many classes, and the user named no task.
    """
    column = parts["train"].column(label)
    inferred, classes = infer_task(label, None, {"train": column})
    task = wanted or inferred
    if wanted is None and inferred == "regression" and _has_numbered_classes(column):
        task = "multiclass"
    if task != inferred:
        task, classes = infer_task(label, task, {"train": column})
    most_classes = max(20, min(MOST_CLASSES, len(column) // 5))
    if wanted is None and classes is not None and len(classes) > most_classes:
        advice = "name another column"
        marker = next(text_findings(column, label), None) if is_text(column.type) else None
        if marker is not None and marker.kind == "marker":
            advice = (
                f"all are numbers but {marker.example!r}: if such a label is missing, make it empty"
            )
        text = (
            f"`{label}` has {len(classes):,} different values in {len(column):,} rows, which are "
            f"too many classes; {advice}"
        )
        raise InputError("--label", text)
    return task, classes, task != inferred


def _has_numbered_classes(column: pa.ChunkedArray) -> bool:
    """Return whether a label has few integers, read as floats because a label was missing."""
    if not pa.types.is_floating(column.type):
        return False
    values = pc.unique(column)
    has_integers = pc.all(pc.equal(values, pc.floor(values))).as_py()
    return bool(has_integers) and 2 < len(values) <= 20 and len(column) >= 20 * len(values)
