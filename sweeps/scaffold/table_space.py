"""Make the space of a table, for `sweeps run` or `sweeps plan` with `rows.csv --label y`."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sweeps.core import metrics
from sweeps.core.errors import InputError
from sweeps.core.plugins import references
from sweeps.core.text.suggestions import did_you_mean
from sweeps.space import Space, load
from sweeps.space.parse.space_source import SpaceSource
from sweeps.space.yaml.yaml12 import parse

from .table_search import TRAINERS, trainers_for

if TYPE_CHECKING:
    import pyarrow as pa

    from sweeps.data.summary.early_summary import TableReader

    from .from_data import Table

# Suffixes of files that are tables and no space files. They may be compressed.
SUFFIXES = (".csv", ".tsv", ".parquet", ".jsonl", ".ndjson")
# Path of a table that a script passed, in the sweep's folder
PASSED = "tables/train.parquet"


Task = Literal["binary", "multiclass", "regression"]


@dataclass(frozen=True)
class TableRequest:
    """The options of a command that takes a table in place of a space file.

    Attributes:
        label: The column to predict.
        task: "binary", "multiclass" or "regression"; None to infer it from the label.
        metric: The metric to optimize, such as `auc`; None for the usual metric of the task.
        trainer: Name of the trainer; None for all that are installed.
        read: Settings for reading text files: the keys of `data.read` in YAML; None for the
            defaults.
    """

    label: str
    task: Task | None = None
    metric: str | None = None
    trainer: str | None = None
    read: str | None = None


def request_of(source: Any, label: str | None, **options: Any) -> TableRequest | None:
    """Return the options about a table, or None if the user gave a search space and no table.

    Args:
        source: A path, or an object from a script.
        label: The column to predict.
        options: The other fields of `TableRequest`.

    Raises:
        InputError: A table lacks its label, or another option lacks the table.
    """
    is_path = isinstance(source, (str, os.PathLike))
    if label is not None:
        if is_path and Path(source).suffix in (".yaml", ".yml"):
            text = f"is for a table; the label of the space file {source} is its key data.label"
            raise InputError("--label", text)
        return TableRequest(label, **options)
    if is_path and any(suffix in SUFFIXES for suffix in Path(source).suffixes):
        from . import read_table

        keys, _ = read_table.read_keys(options["read"] or "")
        _, _, rows = read_table.open_table(str(source), None, keys)
        hint = read_table.label_hint(rows.column_names)
        raise InputError("--label", f"is required, because {Path(source).name} is a table; {hint}")
    for name, value in options.items():
        if value is not None:
            text = "needs a table and --label; a space file has keys for this"
            raise InputError(f"--{name}", text)
    return None


def table_space(table: Any, request: TableRequest) -> tuple[Space, dict[str, Any]]:
    """Return the space that `sweeps init` would write for a table, and the tables to save.

    Args:
        table: Path of a file, a folder, a glob or a URI; or a table in memory.
        request: Options of the user's command.

    Raises:
        InputError: The table cannot be read, or the request does not fit the table.
    """
    from sweeps.data.sources.passed_tables import save_tables

    from . import from_data, read_table

    tables = {} if isinstance(table, (str, os.PathLike)) else {"train": table}
    keys, read = read_table.read_keys(request.read or "")
    # A table in memory is read from a temporary file, as the sweep will read it from its folder.
    with tempfile.TemporaryDirectory() as folder:
        path = str(table)
        if tables:
            save_tables(tables, Path(folder, "tables"))
            path = str(Path(folder, PASSED))
        source, reader, rows = read_table.open_table(path, None, keys)
    source = PASSED if tables else source
    description = describe_request(source, reader, rows, request, Path.cwd())
    notes = tuple(from_data.choices(description, "the sweep's space.yaml"))
    text = from_data.space_text(description, read=read)
    root = parse(text, f"space file for {source}")
    space = SpaceSource(Path.cwd() / "space.yaml", text, root, Path.cwd(), notes=notes)
    return load(space), tables


def describe_request(
    source: str, reader: TableReader, rows: pa.Table, request: TableRequest, folder: Path
) -> Table:
    """Find out what the label is, summarise the table, and check the request.

    For `source`, `reader`, `rows` and `folder`, see `read_table.describe_table`.

    Raises:
        InputError: The request does not fit the table.
    """
    from . import read_table

    if request.trainer is not None and request.trainer not in TRAINERS:
        text = f"`{request.trainer}` is not one of {', '.join(TRAINERS)}"
        raise InputError("--trainer", f"{text}; for another trainer, write a space file")
    table = read_table.describe_table(
        source, reader, rows, request.label, folder, task=request.task
    )
    if request.metric is not None:
        table = replace(table, metric=full_metric_name(request.metric, table.task))
    if request.trainer is not None:
        return replace(table, trainers=(request.trainer,))
    suitable = trainers_for(len(table.summary.label))
    missing = tuple(name for name in suitable if references.source_of(name) is None)
    trainers = tuple(name for name in suitable if name not in missing)
    return replace(table, trainers=trainers, missing_trainers=missing)


def full_metric_name(metric: str, task: str) -> str:
    """Return the full name of a metric, such as `valid-auc` for `auc`.

    Raises:
        InputError: sweeps does not know the metric, or the metric does not fit the task.
    """
    name = metrics.base_name(metric)
    if metrics.find(name, task) is None or metrics.usual_goal(name) is None:
        known = [known_name for known_name, own in metrics.OWN.items() if task in own.tasks]
        raise InputError(
            "--metric", f"`{metric}` is no metric for {task}; {did_you_mean(metric, known)}"
        )
    return f"valid-{name}"
