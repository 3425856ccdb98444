"""Fit a chain on raw rows, and put the prepared rows into Ray's object store."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import ray

from sweeps.core.errors import InputError
from sweeps.core.label_columns import GROUP_COLUMN, label_columns
from sweeps.space.sections.trainer_definition import TrainerDefinition

from .columns.columns import unread_by
from .columns.tables import arrays_to_tensors, split_equally
from .columns.weights import WEIGHT_COLUMN, row_weights
from .prepared_data import PreparedData, Shards
from .prepared_store import PreparedStore
from .preprocessing.fit import fit_transform
from .splits.row_parts import nested_order, rows_at
from .splits.split_tables import Splits
from .streaming.stream_splits import StreamSplits, first_rows
from .streaming.streamed_fit import FIRST_ROWS, RowStream, prepared_stream

if TYPE_CHECKING:
    import pandas as pd

    from sweeps.space import Step

    from .preprocessing.fitted_chain import FittedChain

# Number of rows of valid for which a trainer stores predictions with its checkpoints. A bundle must
# reproduce these predictions.
CHECK_ROWS = 32
# Size in bytes from which a table is stored without a copy in the data actor's own memory: columns
# of numbers stay separate arrays. Below this size, columns of the same type are copied into one
# array, because pandas works faster with it.
LARGE_TABLE = 64 << 20
# A large table with more columns is copied, too: pandas warns about a frame of so many arrays.
MOST_ARRAYS = 100


def is_large(table: pa.Table) -> bool:
    """Return whether a table has at least `LARGE_TABLE` bytes."""
    return bool(table.nbytes >= LARGE_TABLE)


@dataclass(frozen=True)
class PreparedRows:
    """The prepared rows of a chain.

    Attributes:
        key: Name of the prepared data.
        train: Rows of train, with the label, and with the column of weights if there is one.
        valid: Rows of valid, with the label.
        check: The first rows of valid, without the label; in a fold, those of the first fold.
        weight: Name of the column of weights; None if there is none.
        copied: True if the columns of a shard may be copied into one array.
        unread: See `PreparedData`.
    """

    key: str
    train: pa.Table
    valid: pd.DataFrame
    check: pd.DataFrame
    weight: str | None
    copied: bool
    unread: Mapping[str, str]


@dataclass(frozen=True)
class ChainFitter:
    """Fits chains, and cuts the prepared rows into shards.

    Attributes:
        store: Folder of the fitted chains.
        roots: Folders of the user's modules.
        workers: Every number of workers for which shards are cut.
        trainers: Definition of each trainer, by label. At least one trainer must be able to read
            the prepared rows.
        row_steps: See `DataActorConfig`.
    """

    store: PreparedStore
    roots: tuple[str, ...]
    workers: tuple[int, ...]
    trainers: Mapping[str, TrainerDefinition]
    row_steps: tuple[int, ...]

    def fit_rows(
        self, key: str, steps: tuple[Step, ...], splits: Splits, seed: int
    ) -> PreparedRows:
        """Fit a chain on train, and transform train and valid.

        Args:
            key: Name of the prepared data.
            steps: The chain.
            splits: The raw rows.
            seed: Seed of the sweep, which orders the rows if the scheduler counts rows.

        Raises:
            InputError: The chain cannot be fitted, or no trainer can read its output.
        """
        label = splits.label
        weights = row_weights(splits)
        copied = not is_large(splits.train) or splits.train.num_columns > MOST_ARRAYS
        columns = {*splits.features, *label_columns(label)}
        rows = splits.train.select([n for n in splits.train.column_names if n in columns])
        fitted, prepared = self._fit_once(key, steps, rows, splits=splits, copied=copied)
        valid = fitted.transform(splits.valid.to_pandas(split_blocks=True), copied)
        unread = unread_by(valid, label, self.trainers)
        # The check has arrays instead of Ray Data's tensors, as a bundle passes rows to the model.
        check = valid.head(CHECK_ROWS).drop(columns=[*label_columns(label)], errors="ignore")
        if splits.check is not None:
            first = splits.check.slice(0, CHECK_ROWS).select(list(splits.features))
            check = fitted.transform(first.to_pandas(), copied)
        extension_columns = {
            f.name for f in splits.train.schema if isinstance(f.type, pa.BaseExtensionType)
        }
        prepared = arrays_to_tensors(prepared, extension_columns)
        valid = arrays_to_tensors(valid, extension_columns)
        if weights is not None:
            if WEIGHT_COLUMN in prepared.columns:
                raise InputError(
                    "data.drop",
                    f"the prepared rows have a column `{WEIGHT_COLUMN}`, which is the name of the "
                    "column of weights; rename the column, or drop it",
                )
            prepared[WEIGHT_COLUMN] = weights
        if GROUP_COLUMN in splits.train.column_names:  # no step gets it
            prepared[GROUP_COLUMN] = splits.train.column(GROUP_COLUMN).to_numpy()
            valid[GROUP_COLUMN] = splits.valid.column(GROUP_COLUMN).to_numpy()
        if self.row_steps:
            codes = None
            if isinstance(label, str) and splits.classes:
                codes = splits.train.column(label).to_numpy()
            # The part of each step then has the first rows.
            prepared = prepared.iloc[nested_order(len(prepared), codes, seed)]
        return PreparedRows(
            key=key,
            train=pa.Table.from_pandas(prepared, preserve_index=False),
            valid=valid,
            check=check,
            weight=None if weights is None else WEIGHT_COLUMN,
            copied=copied,
            unread=unread,
        )

    def fit_streams(self, key: str, steps: tuple[Step, ...], splits: StreamSplits) -> PreparedData:
        """Fit a chain on the train split, and return the prepared streams."""
        first = first_rows(splits.train, FIRST_ROWS, splits.schema)
        stream = RowStream(splits.train, self.roots)
        fitted, prepared = self._fit_once(key, steps, first, splits=splits, stream=stream)
        unread = unread_by(prepared, splits.label, self.trainers)
        check = fitted.transform(splits.first_valid(CHECK_ROWS).to_pandas())
        streams = {"train": splits.train, "valid": splits.valid}
        shards = {
            name: (ray.put(prepared_stream(dataset, fitted, splits.schema, self.roots)),)
            for name, dataset in streams.items()
        }
        by_workers = dict.fromkeys(self.workers, shards)
        return PreparedData(key, by_workers, ray.put(check), stream=True, unread=unread)

    def _fit_once(
        self,
        key: str,
        steps: tuple[Step, ...],
        rows: pa.Table,
        *,
        splits: Splits | StreamSplits,
        copied: bool = True,
        stream: RowStream | None = None,
    ) -> tuple[FittedChain, pd.DataFrame]:
        """Fit and store a chain, or load it in a resumed sweep. Also return its prepared rows.

        Args:
            key: Name of the prepared data.
            steps: The chain.
            rows: The raw rows of train. If there is a stream, the first rows of the stream.
            splits: The splits that the rows come from.
            copied: See `PreparedRows`.
            stream: All rows of train as a stream. None if `rows` has all rows.
        """
        stored = None
        with contextlib.suppress(InputError):  # damaged or not trusted: the chain is fitted again
            stored = self.store.find_chain(key)
        if stored is not None:
            return stored, stored.transform(rows.to_pandas(split_blocks=True), copied)
        fitted, prepared = fit_transform(
            steps, rows, splits.label, copy=copied, stream=stream, parse=splits.parse
        )
        self.store.save_chain(key, fitted)
        return fitted, prepared

    def put(self, rows: PreparedRows) -> PreparedData:
        """Copy prepared rows to Ray's object store, and return the references.

        If the scheduler counts rows, the rows of each step below the last one are copied, too.
        """
        # The blocks are pandas frames, because NumPy reads the columns from `to_pandas` of an Arrow
        # block as objects. `from_pandas` would run a task for each frame, to find out the frame's
        # schema.
        valid = (ray.put(ray.data.from_blocks([rows.valid])),)
        check = ray.put(rows.check)

        def put_train(train: pa.Table) -> PreparedData:
            """Copy these rows of train, and return them with the references to valid."""
            return PreparedData(
                rows.key,
                self._shards(train, valid, rows.copied),
                check,
                size=train.nbytes,
                rows=train.num_rows,
                weight=rows.weight,
                unread=rows.unread,
            )

        whole = put_train(rows.train)
        parts = {}
        for step in self.row_steps[:-1]:
            count = rows_at(step, self.row_steps[-1], rows.train.num_rows)
            parts[step] = put_train(rows.train.slice(0, count))
        size = sum(part.size for part in (whole, *parts.values()))
        size += int(rows.valid.memory_usage(index=False).sum())
        return replace(whole, size=size, parts=parts)

    def _shards(
        self,
        train: pa.Table,
        valid: tuple[ray.ObjectRef[ray.data.Dataset], ...],
        copied: bool,
    ) -> dict[int, Shards]:
        """Cut train into one shard for each rank, for every number of workers.

        Args:
            train: The prepared rows of train.
            valid: The reference to the rows of valid, which all ranks share.
            copied: See `PreparedRows`.
        """
        shards: dict[int, Shards] = {}
        for workers in self.workers:
            frames = (
                part.to_pandas(split_blocks=not copied) for part in split_equally(train, workers)
            )
            shards[workers] = {
                "train": tuple(ray.put(ray.data.from_blocks([frame])) for frame in frames),
                "valid": valid,
            }
        return shards
