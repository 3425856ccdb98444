"""Fit a preprocessing chain on a stream: one pass over the rows for each step that learns."""

from __future__ import annotations

import functools
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
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
        stream=RowStream(splits.train, roots),
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
        roots: folders of the user's modules.
        inputs: the raw columns.
        steps: fitted steps.
    """

    dataset: Any
    roots: tuple[str, ...]
    inputs: tuple[InputColumn, ...] = ()
    steps: tuple[FittedStep, ...] = ()

    def after(self, inputs: Sequence[InputColumn], steps: Sequence[FittedStep]) -> RowStream:
        """Return the stream of the rows after these steps."""
        return RowStream(self.dataset, self.roots, tuple(inputs), tuple(steps))

    def results(self, function: Callable[[pd.DataFrame], Any]) -> Iterator[Any]:
        """Yield what a function returns for each block. The function runs in Ray Data's tasks."""
        apply = InTask.create(
            functools.partial(_result, inputs=self.inputs, steps=self.steps, function=function),
            self.roots,
        )
        found = self.dataset.map_batches(apply, batch_format="pyarrow", batch_size=None)
        return (pickle.loads(row["result"]) for row in found.iter_rows())


def _result(
    block: pa.Table,
    inputs: tuple[InputColumn, ...],
    steps: tuple[FittedStep, ...],
    function: Callable[[pd.DataFrame], Any],
) -> pa.Table:
    """Return one row with the pickled result of a function; no row for an empty block."""
    results = []
    if block.num_rows:
        frame = convert_inputs(inputs, block.to_pandas(), keep_integers=False)
        for step in steps:
            frame = step.apply(frame)
        results.append(pickle.dumps(function(frame)))
    return pa.table({"result": pa.array(results, pa.binary())})


@dataclass(frozen=True)
class InTask:
    """Function for Ray's tasks that may contain functions and objects of the user's modules.

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
