"""Split a stream into train and valid, and encode its label, lazily."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sweeps.core.errors import InputError, Problem
from sweeps.data.files import raise_problem
from sweeps.data.ingest import STREAM_MARK
from sweeps.data.label_checks import (
    check_columns,
    check_dropped,
    check_same_task,
    infer_task,
    missing_class_notes,
    missing_labels,
    positive_last,
)
from sweeps.data.load import encode_label
from sweeps.data.missing import decide, label_problems
from sweeps.data.parse import count_misfits, misfits_note, parse_values
from sweeps.data.parsed_columns import features_parse
from sweeps.data.sources import task_error
from sweeps.data.split import equals
from sweeps.data.streaming.block_types import Convert, unify_schemas
from sweeps.data.streaming.hashing import SHARE, VALID, below
from sweeps.data.streaming.source import LazySource, hash_of, open_source
from sweeps.data.summary import SAMPLE_ROWS, DataSummary, kind_of, sample_rows, summarize
from sweeps.space.section_models import variant_of

if TYPE_CHECKING:
    from sweeps.space import DataSpec, Split

# A label with more distinct values than this number is an error, unless it is for a regression.
MOST_CLASSES = 10_000
# Number of rows of each block that are part of the sample for the summary of the data.
BLOCK_SAMPLE = 200


@dataclass(frozen=True)
class SelectRows:
    """Function that returns the rows of one split from each block of a source.

    Attributes:
        convert: see `LazySource.convert`.
        split: "train" or "valid".
        rule: rule that selects the rows of valid among the rows of the block. None if the source
            has only the rows of `split`.
        seed: seed of the sweep.
        label: the label column. None if there is no label.
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
        rule: a rule of the kind fraction, group or column.
        seed: seed of the sweep.
    """
    if rule.kind == "column":
        return equals(table.column(str(rule.column)).to_numpy(), rule.value)
    names = [str(rule.column)] if rule.kind == "group" else table.column_names
    return below(table, names, float(rule.fraction or 0), VALID, seed)


@dataclass(frozen=True)
class CountRows:
    """Function that returns one row for each block.

    The row has the number of rows in the split, and the distinct values of the label.

    Attributes:
        select: function that returns the rows of the split.
        parse: the rules of `data.parse`, by column. Each value is checked.
    """

    select: SelectRows
    parse: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, block: pa.Table) -> pa.Table:
        """Count the rows of a block."""
        table = self.select(block)
        raw = table.select(list(self.parse)).to_pandas()
        parsed = {name: parse_values(raw[name], rule, name) for name, rule in self.parse.items()}
        label = self.select.label
        labels = table.column(label) if label else pa.chunked_array([[]])
        counted = SplitCount(
            rows=table.num_rows,
            missing=labels.null_count,
            # A regression may have millions of values. More than MOST_CLASSES are not needed.
            values=pc.unique(labels.drop_null())[: MOST_CLASSES + 1],
            nulls={name: table.column(name).null_count for name in table.column_names},
            sample=_sampled(table, self.select.seed),
            misfits=count_misfits(raw, parsed),
        )
        return pa.table({"count": [pickle.dumps(counted)]})


@dataclass(frozen=True)
class SplitCount:
    """Facts about the rows of a split.

    Attributes:
        rows: number of rows.
        missing: number of rows without a label.
        values: distinct values of the label: all of them, or more than `MOST_CLASSES`.
        nulls: number of missing values of each column.
        sample: some rows, for a summary of the data. Their columns of lists and tensors have no
            values.
        misfits: number of texts that do not fit their rule of `data.parse` and are missing values,
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
        if sample.num_rows > 2 * SAMPLE_ROWS:
            sample = sample_rows(sample, SAMPLE_ROWS, sample.num_rows)
        return SplitCount(
            rows=self.rows + other.rows,
            missing=self.missing + other.missing,
            values=values,
            nulls={name: count + other.nulls[name] for name, count in self.nulls.items()},
            sample=sample,
            misfits=self.misfits + other.misfits,
        )


def _sampled(table: pa.Table, seed: int) -> pa.Table:
    """Return some rows of a block."""
    some = sample_rows(table, BLOCK_SAMPLE, seed)
    simple = {
        f.name: some.column(f.name) if kind_of(f) != "other" else pa.nulls(some.num_rows, f.type)
        for f in table.schema
    }
    return pa.table(simple)


@dataclass(frozen=True)
class EncodeRows:
    """Function that returns the columns of a trial from each block of a split.

    Attributes:
        select: function that returns the rows of the split.
        classes: see `Splits.classes`.
        columns: columns to return: the features, and the label if there is one.
        share: fraction of the rows to return, in (0, 1].
    """

    select: SelectRows
    classes: tuple[Any, ...] | None
    columns: tuple[str, ...]
    share: float = 1.0

    def __call__(self, block: pa.Table) -> pa.Table:
        """Return rows with an encoded label."""
        table = self.select(block)
        if self.share < 1:
            table = table.filter(
                pa.array(below(table, table.column_names, self.share, SHARE, self.select.seed))
            )
        if self.select.label is not None:
            table = encode_label(table, self.select.label, self.classes)
        return table.select(list(self.columns))


@dataclass(frozen=True)
class StreamSplits:
    """The splits of a trial, as lazy Ray Datasets of raw rows.

    For the other attributes, see `sweeps.data.load.Splits`.

    Attributes:
        train: rows to train on. Each block is an Arrow table with the features and the encoded
            label.
        valid: rows to validate on, with the same columns.
        schema: names and types of these columns.
        rows: number of rows by split.
    """

    train: Any
    valid: Any
    schema: pa.Schema
    label: str | None
    task: str | None
    classes: tuple[Any, ...] | None
    features: tuple[str, ...]
    rows: dict[str, int]
    fingerprint: str
    notes: tuple[str, ...]
    parse: Mapping[str, str]
    missing: Mapping[str, list[Any]]


@dataclass(frozen=True)
class SplitSource:
    """A source whose rows were counted once, with the rules that split it.

    Attributes:
        sources: the source of each split. The two sources are the same object if valid is a part of
            train's source.
        selects: for each split, the function that returns its rows.
        schema: names and types of all columns.
        counts: facts about each split.
        task: see `Splits.task`.
        classes: see `Splits.classes`.
        removed: columns that are not features: the label, and the column of a split `{column: ...,
            value: ...}`. None if there is none.
        missing: see `Splits.missing`.
    """

    sources: Mapping[str, LazySource]
    selects: Mapping[str, SelectRows]
    schema: pa.Schema
    counts: Mapping[str, SplitCount]
    task: str | None
    classes: tuple[Any, ...] | None
    removed: tuple[str | None, ...]
    missing: Mapping[str, list[Any]]

    @property
    def digest(self) -> str:
        """Text that changes if the source changes."""
        return " ".join(dict.fromkeys(source.digest for source in self.sources.values()))


def split_source(spec: DataSpec, seed: int) -> SplitSource:
    """Open the sources of a `data` section, and read them once to count rows and find classes.

    Raises:
        InputError: a source cannot be read, columns are missing, the label cannot be used, or a
            split is empty.
    """
    rule = spec.valid
    assert rule is not None
    sources = {"train": open_source(spec, spec.train, "data.train", spec.args)}
    if rule.kind == "path":
        sources["valid"] = open_source(spec, str(rule.path), "data.valid", rule.args)
    problems = check_columns(spec, {key: source.schema.names for key, source in sources.items()})
    problems += label_problems(spec, {key: source.profiles for key, source in sources.items()})
    if problems:
        raise InputError(problems)
    missing = decide(spec, sources["train"].schema.names, sources["train"].profiles)
    schema = unify_schemas(
        {f"data.{key}": source.schema for key, source in sources.items()}, "data.valid"
    )
    inside = None if rule.kind == "path" else rule
    sources.setdefault("valid", sources["train"])
    selects: dict[str, SelectRows] = {}
    counts: dict[str, SplitCount] = {}
    for key, source in sources.items():
        convert = replace(source.convert, schema=schema, missing=missing)
        selects[key] = SelectRows(
            convert, key, inside, seed, spec.only_label, spec.drop_missing_label
        )
        counts[key] = _count(source, CountRows(selects[key], spec.parse), f"data.{key}")
    task, classes = None, None
    if spec.only_label is not None:
        task, classes = _task(spec, schema, counts)
    for key, count in counts.items():
        if not count.rows:
            text = f"the {key} split has no rows; give another split or another seed"
            raise InputError("data.valid", text)
    removed = (spec.only_label, rule.column if rule.kind == "column" else None)
    return SplitSource(sources, selects, schema, counts, task, classes, removed, missing)


def _count(source: LazySource, count: CountRows, place: str) -> SplitCount:
    """Read a source once, and return the facts about a split."""
    total: SplitCount | None = None
    try:
        counted = source.dataset.map_batches(count, batch_format="pyarrow", batch_size=None)
        for row in counted.iter_rows():
            found: SplitCount = pickle.loads(row["count"])
            total = found if total is None else total.merged(found)
    except InputError:
        raise
    except Exception as e:
        raise_problem(place, f"the data cannot be read: {task_error(e)}", e)
    if total is None:
        raise_problem(place, "the data has no rows")
    return total


def _task(
    spec: DataSpec, schema: pa.Schema, counts: Mapping[str, SplitCount]
) -> tuple[str, tuple[Any, ...] | None]:
    """Return the task and the classes of the label; see `infer_task`."""
    label = str(spec.label)
    kind = schema.field(label).type
    for key, count in counts.items():
        if count.missing:
            raise InputError(missing_labels(label, count.missing, key))
    task, classes = infer_task(
        label,
        spec.task,
        {key: pa.chunked_array([count.values.cast(kind)], kind) for key, count in counts.items()},
    )
    if classes is not None and len(classes) > MOST_CLASSES:
        advice = "set data.task, or write `ingest: memory`"
        text = (
            f"`{label}` has more than {MOST_CLASSES:,} classes, the most that a stream can have; "
            f"{advice}"
        )
        raise InputError("data.label", text)
    return task, positive_last(spec, task, classes)


class StreamVariants:
    """All data variants of a sweep, as streams.

    The counterpart for data in memory is `sweeps.data.variants.DataVariants`.

    Args:
        spec: see `sweeps.space.Space.data`.
        variants: see `sweeps.space.Space.variants`.
        seed: seed of the sweep, also for splits by fraction and by group.

    Attributes:
        sources: each distinct source, by `DataSpec.source`.
        fingerprint: hash of all variants.

    Raises:
        InputError: see `split_source`. Also raised if a column in a tuned `drop` does not exist, or
            the sources differ in task or classes.
    """

    def __init__(self, spec: DataSpec, variants: Sequence[DataSpec], seed: int):
        self.spec = spec
        self.seed = seed
        self.sources: dict[Any, SplitSource] = {}
        problems: list[Problem] = []
        tasks = []
        for variant in variants:
            if variant.source not in self.sources:
                source = split_source(variant, seed)
                self.sources[variant.source] = source
                tasks.append((variant.train, source.task, source.classes))
            problems += check_dropped(variant, self.sources[variant.source].schema.names)
        problems += check_same_task(tasks)
        if problems:
            raise InputError(dict.fromkeys(problems))
        fingerprints = [self._fingerprint(variant) for variant in variants]
        self.fingerprint = fingerprints[0] if len(fingerprints) == 1 else _digest(fingerprints)

    @property
    def summary(self) -> DataSummary:
        """Summary of the first source, from a sample of its rows."""
        source = next(iter(self.sources.values()))
        train = source.counts["train"]
        return summarize(
            self.spec,
            {"train": train.sample},
            source.classes,
            self.seed,
            {"train": train.rows},
            train.nulls,
        )

    def fingerprint_of(self, data: Mapping[str, Any]) -> str:
        """Return the fingerprint of a variant."""
        return self._fingerprint(variant_of(self.spec, data))

    def _fingerprint(self, spec: DataSpec) -> str:
        source = self.sources[spec.source]
        return _digest(
            [
                "stream",
                source.digest,
                str(source.schema),
                str(spec.label),
                str(source.task),
                repr(source.classes),
                spec.drop_missing_label,
                repr(spec.valid),
                *filter(None, (spec.parse, spec.missing)),
                sorted(set(spec.drop)),
                spec.rows,
                self.seed,
            ]
        )

    def splits(self, data: Mapping[str, Any], added: Sequence[str] = ()) -> StreamSplits:
        """Return the splits of a trial.

        Args:
            data: the trial's values of the tuned keys of `data`.
            added: names of splits whose rows are added to train. These rows also stay in their
                splits.
        """
        spec = variant_of(self.spec, data)
        source = self.sources[spec.source]
        label = spec.only_label
        features = tuple(
            name for name in source.schema.names if name not in (*source.removed, *spec.drop)
        )
        columns = features if label is None else (*features, label)
        lazy = {}
        for key, select in source.selects.items():
            share = spec.rows if key == "train" else 1.0
            encode = EncodeRows(select, source.classes, columns, share)
            lazy[key] = source.sources[key].dataset.map_batches(
                encode, batch_format="pyarrow", batch_size=None
            )
        rows = {key: count.rows for key, count in source.counts.items()}
        if spec.rows < 1:
            rows["train"] = lazy["train"].count()
        train = lazy["train"]
        for name in added:
            train = train.union(lazy[name])
            rows["train"] += rows[name]
        types = {name: source.schema.field(name).type for name in columns}
        if label is not None:
            types[label] = pa.float64() if source.classes is None else pa.int64()
        return StreamSplits(
            train=train,
            valid=lazy["valid"],
            schema=pa.schema(types),
            label=label,
            task=source.task,
            classes=source.classes,
            features=features,
            rows=rows,
            fingerprint=self._fingerprint(spec),
            notes=_notes(source, label),
            parse=features_parse(spec, features),
            missing=source.missing,
        )


def _notes(source: SplitSource, label: str | None) -> tuple[str, ...]:
    """Return notes about splits without rows of a class, and about texts that do not fit.

    The texts do not fit their rule of `data.parse`.
    """
    present = {}
    if label and source.classes:
        kind = source.schema.field(label).type
        classes = pa.array(source.classes, kind)
        for key, count in source.counts.items():
            codes = pc.index_in(count.values.cast(kind), value_set=classes)
            present[key] = pa.table({label: codes})
    notes = missing_class_notes(label, source.classes, present)
    for key, count in source.counts.items():
        notes += misfits_note(count.misfits, key)
    return notes


def _digest(parts: Sequence[Any]) -> str:
    """Return a fingerprint of a stream.

    It has as many characters as the fingerprint of data in memory.
    """
    return (STREAM_MARK + hash_of(parts))[:64]
