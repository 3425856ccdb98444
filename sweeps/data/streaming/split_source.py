"""Split a source into streams of train and valid rows, and encode their label, lazily."""

from __future__ import annotations

import functools
import pickle
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sweeps.core.errors import InputError, first_line
from sweeps.data.checks.label_checks import infer_task, missing_labels_problem, order_classes
from sweeps.data.checks.named_columns import check_columns
from sweeps.data.columns.hashing import SHARE_PURPOSE, VALID_PURPOSE, hash_mask
from sweeps.data.columns.missing import Markers, ambiguous_label_problems, decide_markers
from sweeps.data.columns.parse import count_misfits, parse_values
from sweeps.data.load_data import encode_label
from sweeps.data.sources.data_files import raise_problem, sources_of
from sweeps.data.splits.split import equals
from sweeps.data.summary.data_summary import SAMPLE_ROWS, kind_of, sample_rows

from .block_types import Convert, unify_schemas
from .stream_source import LazySource, open_source

if TYPE_CHECKING:
    from ray.data import Dataset

    from sweeps.core.label_columns import Classes
    from sweeps.space import DataSpec, Split

# A label with more distinct values than this number is an error, unless it is for a regression.
MOST_CLASSES = 10_000
# Number of rows of each block that are part of the sample for the summary of the data.
BLOCK_SAMPLE = 200


@dataclass(frozen=True)
class SelectRows:
    """Function that returns the rows of one split from each block of a source.

    Attributes:
        convert: Function that gives each block the types of the whole source.
        split: "train" or "valid".
        rule: Rule that selects the rows of valid among the rows of the block. None if the source
            has only the rows of `split`.
        seed: Seed of the sweep.
        label: The label column. None if there is no label.
        drop_missing: True to leave out rows without a label.
    """

    convert: Convert
    split: str
    rule: Split | None
    seed: int
    label: str | None
    drop_missing: bool = False

    def __call__(self, block: pa.Table) -> pa.Table:
        """Return the rows of the split, with all columns."""
        table = self.convert(block)
        if self.rule is not None:
            valid = rows_of_valid(table, self.rule, self.seed)
            table = table.filter(pa.array(valid if self.split == "valid" else ~valid))
        if self.drop_missing and self.label:
            table = table.filter(pc.is_valid(table.column(self.label)))
        return table


def rows_of_valid(table: pa.Table, rule: Split, seed: int) -> np.ndarray:
    """Return a mask of the rows that belong to valid.

    Args:
        table: n rows of a source, with all columns.
        rule: A rule of the kind fraction, group or column.
        seed: Seed of the sweep.
    """
    if rule.kind == "column":
        return equals(table.column(str(rule.column)).to_numpy(), rule.value)
    names = [str(rule.column)] if rule.kind == "group" else table.column_names
    return hash_mask(table, names, float(rule.fraction or 0), VALID_PURPOSE, seed)


def count_rows(block: pa.Table, select: SelectRows, parse: Mapping[str, str]) -> pa.Table:
    """Return one row with the pickled `SplitCount` of a block.

    Args:
        block: Rows of the source.
        select: Function that returns the rows of the split.
        parse: The rules of `data.parse`, by column. Each value is checked.
    """
    table = select(block)
    raw = table.select(list(parse)).to_pandas()
    parsed = {name: parse_values(raw[name], rule, name) for name, rule in parse.items()}
    labels = table.column(select.label) if select.label else pa.chunked_array([[]])
    count = SplitCount(
        rows=table.num_rows,
        missing=labels.null_count,
        # A regression may have millions of values. More than MOST_CLASSES are not needed.
        values=pc.unique(labels.drop_null())[: MOST_CLASSES + 1],
        nulls={name: table.column(name).null_count for name in table.column_names},
        sample=_sample(table, select.seed),
        misfits=count_misfits(raw, parsed),
    )
    return pa.table({"count": [pickle.dumps(count)]})


@dataclass(frozen=True)
class SplitCount:
    """Facts about the rows of a split.

    Attributes:
        rows: Number of rows.
        missing: Number of rows without a label.
        values: Distinct values of the label: all of them, or more than `MOST_CLASSES`.
        nulls: Number of missing values of each column.
        sample: Some rows, for a summary of the data. Their columns of lists and tensors have no
            values.
        misfits: Number of texts that do not fit their rule of `data.parse` and are missing values,
            by column.
    """

    rows: int
    missing: int
    values: pa.Array
    nulls: Mapping[str, int]
    sample: pa.Table
    misfits: Counter[str]

    def merged(self, other: SplitCount) -> SplitCount:
        """Return the facts about the rows of two blocks."""
        values = self.values
        if len(values) <= MOST_CLASSES and len(other.values):
            values = pc.unique(pa.chunked_array([values, other.values]))
        sample = pa.concat_tables([self.sample, other.sample])
        if sample.num_rows > 2 * SAMPLE_ROWS:  # the seed of this sample may be any number
            sample = sample_rows(sample, SAMPLE_ROWS, sample.num_rows)
        return SplitCount(
            rows=self.rows + other.rows,
            missing=self.missing + other.missing,
            values=values,
            nulls={name: count + other.nulls[name] for name, count in self.nulls.items()},
            sample=sample,
            misfits=self.misfits + other.misfits,
        )


def _sample(table: pa.Table, seed: int) -> pa.Table:
    """Return `BLOCK_SAMPLE` rows of a block; see `SplitCount.sample`."""
    sample = sample_rows(table, BLOCK_SAMPLE, seed)
    columns = {}
    for field in table.schema:
        is_simple = kind_of(field) != "other"
        nulls = pa.nulls(sample.num_rows, field.type)
        columns[field.name] = sample.column(field.name) if is_simple else nulls
    return pa.table(columns)


def encode_rows(
    block: pa.Table,
    select: SelectRows,
    classes: Classes | None,
    columns: tuple[str, ...],
    share: float,
) -> pa.Table:
    """Return the columns of a trial, with an encoded label.

    Args:
        block: Rows of the source.
        select: Function that returns the rows of the split.
        classes: See `Splits.classes`.
        columns: Columns to return: the features, and the label if there is one.
        share: Fraction of the rows to return, in (0, 1].
    """
    table = select(block)
    if share < 1:
        mask = hash_mask(table, table.column_names, share, SHARE_PURPOSE, select.seed)
        table = table.filter(pa.array(mask))
    if select.label is not None:
        table = encode_label(table, select.label, classes)
    return table.select(list(columns))


@dataclass(frozen=True)
class SplitSource:
    """A source whose rows were counted once, with the rules that split it.

    Attributes:
        sources: The source of each split. The two sources are the same object if valid is a part of
            train's source.
        selects: For each split, the function that returns its rows.
        schema: Names and types of all columns.
        counts: Facts about each split.
        task: See `Splits.task`.
        classes: See `Splits.classes`.
        missing: See `Splits.missing`.
    """

    sources: Mapping[str, LazySource]
    selects: Mapping[str, SelectRows]
    schema: pa.Schema
    counts: Mapping[str, SplitCount]
    task: str | None
    classes: Classes | None
    missing: Markers

    @property
    def digest(self) -> str:
        """Text that changes if the source changes."""
        return " ".join(dict.fromkeys(source.digest for source in self.sources.values()))

    def encoded(self, columns: tuple[str, ...], share: float) -> dict[str, Dataset]:
        """Return the rows of each split as a lazy Ray Dataset, with an encoded label.

        Args:
            columns: See `encode_rows`.
            share: Fraction of the rows of train to return, in (0, 1]. Valid keeps all rows.
        """
        lazy = {}
        for key, select in self.selects.items():
            encode = functools.partial(
                encode_rows,
                select=select,
                classes=self.classes,
                columns=columns,
                share=share if key == "train" else 1.0,
            )
            dataset = self.sources[key].dataset
            lazy[key] = dataset.map_batches(encode, batch_format="pyarrow", batch_size=None)
        return lazy


def split_source(spec: DataSpec, seed: int) -> SplitSource:
    """Open the sources of a `data` section, and read them once to count rows and find classes.

    Raises:
        InputError: A source cannot be read, columns are missing, the label cannot be used, or a
            split is empty.
    """
    rule = spec.valid
    assert rule is not None
    sources = {key: open_source(spec, source) for key, source in sources_of(spec).items()}
    problems = check_columns(spec, {key: source.schema.names for key, source in sources.items()})
    problems += ambiguous_label_problems(
        spec, {key: source.profiles for key, source in sources.items()}
    )
    if problems:
        raise InputError(problems)
    missing = decide_markers(spec, sources["train"].schema.names, sources["train"].profiles)
    schema = unify_schemas(
        {f"data.{key}": source.schema for key, source in sources.items()}, "data.valid"
    )
    sources.setdefault("valid", sources["train"])
    selects: dict[str, SelectRows] = {}
    counts: dict[str, SplitCount] = {}
    for key, source in sources.items():
        convert = Convert(schema, source.text, missing)
        selects[key] = SelectRows(
            convert,
            key,
            rule=None if rule.kind == "path" else rule,
            seed=seed,
            label=spec.only_label,
            drop_missing=spec.drop_missing_label,
        )
        count = functools.partial(count_rows, select=selects[key], parse=spec.parse)
        counts[key] = _count(source, count, f"data.{key}")
    task, classes = _find_task(spec, schema, counts)
    for key, split_count in counts.items():
        if not split_count.rows:
            raise InputError(
                "data.valid", f"the {key} split has no rows; give another split or another seed"
            )
    return SplitSource(
        sources,
        selects,
        schema,
        counts=counts,
        task=task,
        classes=classes,
        missing=missing,
    )


def _count(source: LazySource, count: Callable[[pa.Table], pa.Table], place: str) -> SplitCount:
    """Read a source once, and return the facts about a split.

    Args:
        source: The source.
        count: `count_rows` with all arguments but the block.
        place: Key of the space file that names the source, for messages.
    """
    total: SplitCount | None = None
    try:
        counts = source.dataset.map_batches(count, batch_format="pyarrow", batch_size=None)
        for row in counts.iter_rows():
            block_count: SplitCount = pickle.loads(row["count"])
            total = block_count if total is None else total.merged(block_count)
    except InputError:
        raise
    except Exception as e:
        reason = first_line(e).removeprefix("ValueError: ")
        raise_problem(place, f"the data cannot be read: {reason}", e)
    if total is None:
        raise_problem(place, "the data has no rows")
    return total


def _find_task(
    spec: DataSpec, schema: pa.Schema, counts: Mapping[str, SplitCount]
) -> tuple[str | None, Classes | None]:
    """Return the task and the classes of the label; see `infer_task`.

    Both are None if there is no label.
    """
    label = spec.only_label
    if label is None:
        return None, None
    kind = schema.field(label).type
    for key, count in counts.items():
        if count.missing:
            raise InputError(missing_labels_problem(label, count.missing, key))
    task, classes = infer_task(
        label,
        spec.task,
        {key: pa.chunked_array([count.values.cast(kind)], kind) for key, count in counts.items()},
    )
    if classes is not None and len(classes) > MOST_CLASSES:
        advice = "set data.task, or write `ingest: memory`"
        raise InputError(
            "data.label",
            f"`{label}` has more than {MOST_CLASSES:,} classes, the most that a stream can have; "
            f"{advice}",
        )
    return task, order_classes(spec, task, classes)
