"""Split a stream into train and valid, and encode its label, lazily."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from sweeps.data.checks.label_checks import missing_class_notes
from sweeps.data.checks.named_columns import split_columns
from sweeps.data.columns.missing import Markers
from sweeps.data.columns.parse import misfits_note
from sweeps.data.columns.parsed_columns import features_parse
from sweeps.data.sources.ingest import STREAM_MARK
from sweeps.data.splits.variants import TunedData, Variants
from sweeps.data.summary.data_summary import DataSummary
from sweeps.data.summary.table_summary import summarize
from sweeps.space.sections.data_models import variant_of

from .split_source import SplitSource, split_source

if TYPE_CHECKING:
    from ray.data import Dataset

    from sweeps.core.label_columns import Classes
    from sweeps.space import DataSpec


@dataclass(frozen=True)
class StreamSplits:
    """The splits of a trial, as lazy Ray Datasets of raw rows.

    For the other attributes, see `sweeps.data.splits.split_tables.Splits`.

    Attributes:
        train: Rows to train on. Each block is an Arrow table with the features and the encoded
            label.
        valid: Rows to validate on, with the same columns.
        schema: Names and types of these columns.
        rows: Number of rows by split.
    """

    train: Dataset
    valid: Dataset
    schema: pa.Schema
    label: str | None
    task: str | None
    classes: Classes | None
    features: tuple[str, ...]
    rows: dict[str, int]
    fingerprint: str
    notes: tuple[str, ...]
    class_notes: tuple[str, ...]
    parse: Mapping[str, str]
    missing: Markers
    summary: DataSummary | None = None

    def first_valid(self, count: int) -> pa.Table:
        """Return the features of the first rows of valid, at most `count`."""
        return first_rows(self.valid, count, self.schema).select(list(self.features))


def first_rows(dataset: Dataset, count: int, schema: pa.Schema) -> pa.Table:
    """Return the first rows of a lazy dataset, at most `count`."""
    blocks: list[pa.Table] = list(
        dataset.limit(count).iter_batches(batch_size=None, batch_format="pyarrow")
    )
    tables = [block.select(schema.names) for block in blocks] or [schema.empty_table()]
    return pa.concat_tables(tables).replace_schema_metadata(None)


class StreamVariants(Variants[SplitSource]):
    """All data variants of a sweep, as streams."""

    mark = STREAM_MARK

    def _read(self, variant: DataSpec) -> SplitSource:
        return split_source(variant, self.seed)

    def _columns(self, spec: DataSpec) -> list[str]:
        return list(self.sources[spec.source].schema.names)

    @property
    def first(self) -> StreamSplits:
        """The splits of the first source, with a summary of a sample of its rows."""
        source = next(iter(self.sources.values()))
        train = source.counts["train"]
        parts = {"train": train.sample}
        rows = {"train": train.rows}
        summary = summarize(
            self.spec, parts, source.classes, seed=self.seed, rows=rows, missing=train.nulls
        )
        return replace(self.splits({}), fingerprint=self.fingerprint, summary=summary)

    def _fingerprint(self, spec: DataSpec) -> str:
        source = self.sources[spec.source]
        return self._digest(
            [
                "stream",
                source.digest,
                str(source.schema),
                str(spec.label),
                str(source.task),
                repr(source.classes),
                spec.drop_missing_label,
                repr(spec.valid),
                # These keys change the fingerprint only if they are set.
                *filter(None, (spec.parse, spec.missing, spec.group)),
                sorted(set(spec.drop)),
                spec.rows,
                self.seed,
            ]
        )

    def splits(self, data: TunedData, added: Sequence[str] = ()) -> StreamSplits:
        """Return the splits of a trial.

        Args:
            data: The trial's values of the tuned keys of `data`.
            added: Names of splits whose rows are added to train. These rows also stay in their
                splits.
        """
        spec = variant_of(self.spec, data)
        source = self.sources[spec.source]
        label = spec.only_label
        no_features = {*spec.labels, *spec.drop, *split_columns(spec)}
        features = tuple(name for name in source.schema.names if name not in no_features)
        columns = features if label is None else (*features, label)
        lazy = source.encoded(columns, spec.rows)
        rows = {key: count.rows for key, count in source.counts.items()}
        if spec.rows < 1:  # a pass over the rows, because each row is chosen by its hash
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
            notes=tuple(
                note
                for key, count in source.counts.items()
                for note in misfits_note(count.misfits, key)
            ),
            class_notes=_missing_classes(source, label),
            parse=features_parse(spec, features),
            missing=source.missing,
        )


def _missing_classes(source: SplitSource, label: str | None) -> tuple[str, ...]:
    """Return a note for each split that lacks a class; see `missing_class_notes`."""
    if not label or not source.classes:
        return ()
    kind = source.schema.field(label).type
    classes = pa.array(source.classes, kind)
    present = {}
    for key, count in source.counts.items():
        codes = pc.index_in(count.values.cast(kind), value_set=classes)
        present[key] = pa.table({label: codes})
    return missing_class_notes(label, source.classes, present)
