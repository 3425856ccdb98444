"""Fit a preprocessing chain on a stream: one pass over the rows for each step that learns."""

from __future__ import annotations

import functools
import importlib
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa

from sweeps.data.columns.columns import InputColumn
from sweeps.data.columns.tables import arrays_to_tensors
from sweeps.data.preprocessing.fitted_chain import FittedChain, convert_inputs
from sweeps.data.preprocessing.fitted_steps import FittedStep

if TYPE_CHECKING:
    from ray.data import Dataset

# Number of rows at the beginning of train that decide the types and names of the prepared columns.
FIRST_ROWS = 10_000


@dataclass(frozen=True)
class RowStream:
    """The rows of train after some steps.

    Attributes:
        dataset: Lazy dataset of raw rows.
        roots: Folders of the user's modules.
        inputs: The raw columns.
        steps: Fitted steps.
    """

    dataset: Dataset
    roots: tuple[str, ...]
    inputs: tuple[InputColumn, ...] = ()
    steps: tuple[FittedStep, ...] = ()

    def after(self, inputs: Sequence[InputColumn], steps: Sequence[FittedStep]) -> RowStream:
        """Return the stream of the rows after these steps."""
        return RowStream(self.dataset, self.roots, tuple(inputs), tuple(steps))

    def results(self, function: Callable[[pd.DataFrame], Any]) -> Iterator[Any]:
        """Yield the result of a function for each block. The function runs in Ray Data's tasks."""
        apply = in_task(
            _result, self.roots, inputs=self.inputs, steps=self.steps, function=function
        )
        blocks = self.dataset.map_batches(apply, batch_format="pyarrow", batch_size=None)
        return (pickle.loads(row["result"]) for row in blocks.iter_rows())


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


def in_task(function: Callable[..., Any], roots: tuple[str, ...], /, **arguments: Any) -> Any:
    """Return a function of a block for Ray's tasks, which calls `function(block, **arguments)`.

    The arguments may contain functions and objects of the user's modules. They are pickled, and
    unpickled only after the modules can be imported from the folders `roots`.
    """
    pickler = importlib.import_module("ray.cloudpickle")
    pickled = pickler.dumps(functools.partial(function, **arguments))
    return functools.partial(_call_pickled, pickled=pickled, roots=roots)


def _call_pickled(block: pa.Table, pickled: bytes, roots: tuple[str, ...]) -> Any:
    """Call a pickled function with a block; see `in_task`."""
    return _unpickle(pickled, roots)(block)


@functools.lru_cache(maxsize=16)
def _unpickle(pickled: bytes, roots: tuple[str, ...]) -> Callable[[pa.Table], Any]:
    """Unpickle the function and its arguments, once for all blocks of a process."""
    sys.path[:0] = [root for root in roots if root not in sys.path]
    function: Callable[[pa.Table], Any] = pickle.loads(pickled)
    return function


def prepared_stream(
    dataset: Dataset, chain: FittedChain, schema: pa.Schema, roots: tuple[str, ...]
) -> Dataset:
    """Return the rows of a lazy dataset after a fitted chain, as a lazy dataset.

    Args:
        dataset: Raw rows with the label.
        chain: The fitted chain.
        schema: Names and types of the columns of the raw rows.
        roots: Folders of the user's modules.
    """
    tensors = frozenset(f.name for f in schema if isinstance(f.type, pa.BaseExtensionType))
    apply = in_task(_transform, roots, chain=chain, tensors=tensors)
    return dataset.map_batches(apply, batch_format="pyarrow", batch_size=None)


def _transform(block: pa.Table, chain: FittedChain, tensors: frozenset[str]) -> pd.DataFrame:
    """Apply a chain to a block; `tensors` names the columns of tensors."""
    return arrays_to_tensors(chain.transform(block.to_pandas()), tensors)
