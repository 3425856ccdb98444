"""Fit a preprocessing chain on a stream: one pass over the rows for each step that learns from them."""

from __future__ import annotations

import functools
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa

from sweeps.data.columns import InputColumn
from sweeps.data.preprocessing.fit import fit_transform
from sweeps.data.preprocessing.fitted_chain import FittedChain, convert_inputs
from sweeps.data.preprocessing.fitted_steps import FittedStep
from sweeps.data.streaming.splits import StreamSplits
from sweeps.data.tables import arrays_to_tensors

if TYPE_CHECKING:
    from sweeps.space import Step

# Number of rows at the beginning of train that decide the types and names of the prepared columns.
FIRST_ROWS = 10_000


def fit_on_stream(
    steps: Iterable[Step], splits: StreamSplits, roots: tuple[str, ...]
) -> tuple[FittedChain, pd.DataFrame]:
    """Fit a chain on the train split. Return the chain, and the first prepared rows.

    Args:
        steps: the steps in order.
        splits: the splits.
        roots: folders of the user's modules.

    Raises:
        InputError: a step names a missing column, has invalid parameters, fails, or cannot be
            fitted on a stream.
    """
    first = first_rows(splits.train, FIRST_ROWS, splits.schema)
    return fit_transform(
        steps,
        first,
        splits.label,
        stream=RowStream(splits.train, splits.label, roots),
        parse=splits.parse,
    )


def first_rows(dataset: Any, count: int, schema: pa.Schema) -> pa.Table:
    """Return the first rows of a lazy dataset, at most `count`."""
    blocks = list(dataset.limit(count).iter_batches(batch_size=None, batch_format="pyarrow"))
    table = (
        pa.concat_tables([block.select(schema.names) for block in blocks])
        if blocks
        else schema.empty_table()
    )
    return table.replace_schema_metadata(None)


@dataclass(frozen=True)
class RowStream:
    """The rows of train after some steps. It implements `fit.Stream`.

    Attributes:
        dataset: lazy dataset of raw rows.
        label: the label column, which steps do not get.
        roots: folders of the user's modules.
        inputs: the raw columns.
        steps: fitted steps.
    """

    dataset: Any
    label: str | None
    roots: tuple[str, ...]
    inputs: tuple[InputColumn, ...] = ()
    steps: tuple[FittedStep, ...] = ()

    def after(self, inputs: Sequence[InputColumn], steps: Sequence[FittedStep]) -> RowStream:
        """Return the stream of the rows after these steps."""
        return RowStream(self.dataset, self.label, self.roots, tuple(inputs), tuple(steps))

    def frames(self, function: Callable[[pd.DataFrame], pd.DataFrame]) -> StreamedFrames:
        """Return the frames that a function returns for the blocks of the stream."""
        apply = InTask.create(
            functools.partial(_apply, inputs=self.inputs, steps=self.steps, function=function),
            self.roots,
        )
        return StreamedFrames(
            self.dataset.map_batches(apply, batch_format="pyarrow", batch_size=None)
        )


def _apply(
    block: pa.Table,
    inputs: tuple[InputColumn, ...],
    steps: tuple[FittedStep, ...],
    function: Callable[[pd.DataFrame], pd.DataFrame],
) -> pa.Table:
    frame = convert_inputs(inputs, block.to_pandas(), keep_integers=False)
    for step in steps if len(frame) else ():
        frame = step.apply(frame)
    # An empty block lacks the columns that steps create, so it is left out.
    part = function(frame) if len(frame) else pd.DataFrame()
    return pa.Table.from_pandas(part, preserve_index=False).replace_schema_metadata(None)


class StreamedFrames:
    """Rows of a stream on which Ray's own preprocessors can be fitted; see `in_memory_dataset.InMemoryDataset`.

    Each aggregation runs block by block in Ray Data's tasks. This process merges the results, which
    are small.

    Args:
        dataset: lazy dataset of Arrow blocks.
    """

    def __init__(self, dataset: Any):
        self.dataset = dataset

    def __iter__(self) -> Iterator[pd.DataFrame]:
        """Yield the rows of each block that has rows."""
        blocks = self.dataset.iter_batches(batch_size=None, batch_format="pyarrow")
        return (block.to_pandas() for block in blocks if block.num_rows)

    def aggregate(self, *functions: Any) -> dict[str, Any]:
        """Compute Ray's aggregations over all rows.

        Return the result of each aggregation, by the aggregation's name.
        """
        return dict(self._aggregated(functions).to_pylist()[0])

    def groupby(self, key: None) -> Any:
        """Return all rows as one group; see `InMemoryDataset.groupby`."""
        import ray

        return SimpleNamespace(
            aggregate=lambda *functions: SimpleNamespace(
                to_arrow_refs=lambda: [ray.put(self._aggregated(functions))]
            )
        )

    def map_batches(self, function: Callable[[Any], Any], *, batch_format: str) -> Any:
        """Return an object whose method `iter_batches` applies the function to each block."""

        def iter_batches(batch_size: None) -> Iterator[Any]:
            return self._results(
                functools.partial(_converted, function=function, batch_format=batch_format)
            )

        return SimpleNamespace(iter_batches=iter_batches)

    def _results(self, function: Callable[[pa.Table], Any]) -> Iterator[Any]:
        """Yield what a function returns for each block that has rows."""
        pickled = self.dataset.map_batches(
            _Pickled(function), batch_format="pyarrow", batch_size=None
        )
        return (pickle.loads(row["result"]) for row in pickled.iter_rows())

    def _aggregated(self, functions: Sequence[Any]) -> pa.Table:
        """Return one row with a column for each aggregation."""
        merged: list[Any] | None = None
        for parts in self._results(functools.partial(_accumulated, functions=tuple(functions))):
            merged = (
                parts
                if merged is None
                else [f.merge(*pair) for f, *pair in zip(functions, merged, parts, strict=True)]
            )
        merged = [f.init(None) for f in functions] if merged is None else merged
        return pa.Table.from_pylist(
            [{f.name: f.finalize(value) for f, value in zip(functions, merged, strict=True)}]
        )


def _converted(block: pa.Table, function: Callable[[Any], Any], batch_format: str) -> Any:
    from ray.data.block import BlockAccessor

    return function(BlockAccessor.for_block(block).to_batch_format(batch_format))


def _accumulated(block: pa.Table, functions: tuple[Any, ...]) -> list[Any]:
    return [f.accumulate_block(f.init(None), block) for f in functions]


@dataclass(frozen=True)
class _Pickled:
    function: Callable[[pa.Table], Any]

    def __call__(self, block: pa.Table) -> pa.Table:
        return pa.table(
            {
                "result": pa.array(
                    [pickle.dumps(self.function(block))] if block.num_rows else [], pa.binary()
                )
            }
        )


@dataclass(frozen=True)
class InTask:
    """Function that runs in Ray's tasks, although it may contain functions and objects of the user's modules.

    Attributes:
        pickled: the function, pickled. It is unpickled only after the folders can be imported from.
        roots: folders of the user's modules.
    """

    pickled: bytes
    roots: tuple[str, ...]

    @classmethod
    def create(cls, function: Callable[[pa.Table], Any], roots: tuple[str, ...]) -> InTask:
        """Return a picklable form of a function."""
        from ray import cloudpickle

        pickler: Any = cloudpickle
        return cls(pickler.dumps(function), roots)

    def __call__(self, block: pa.Table) -> Any:
        """Call the function."""
        return _unpickled(self.pickled, self.roots)(block)


@functools.lru_cache(maxsize=16)
def _unpickled(pickled: bytes, roots: tuple[str, ...]) -> Callable[[pa.Table], Any]:
    sys.path[:0] = [root for root in roots if root not in sys.path]
    function: Callable[[pa.Table], Any] = pickle.loads(pickled)
    return function


def prepared(dataset: Any, chain: FittedChain, schema: pa.Schema, roots: tuple[str, ...]) -> Any:
    """Return the rows of a lazy dataset after a fitted chain, as a lazy dataset.

    Args:
        dataset: raw rows with the label.
        chain: the fitted chain.
        schema: names and types of the columns of the raw rows.
        roots: folders of the user's modules.
    """
    tensors = frozenset(f.name for f in schema if isinstance(f.type, pa.BaseExtensionType))
    apply = InTask.create(functools.partial(_transform, chain=chain, tensors=tensors), roots)
    return dataset.map_batches(apply, batch_format="pyarrow", batch_size=None)


def _transform(block: pa.Table, chain: FittedChain, tensors: frozenset[str]) -> pd.DataFrame:
    return arrays_to_tensors(chain.transform(block.to_pandas()), tensors)
