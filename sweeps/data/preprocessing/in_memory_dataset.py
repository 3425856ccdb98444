"""What Ray Data's preprocessors ask of a Dataset to be fitted, answered from rows in this process.

Through Ray Data a fit of a hundred rows starts five processes and takes seconds. The rows are at hand, so the same aggregations are run
on them here, block by block and merged, as Ray Data would.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import ray
from ray.data.block import BlockAccessor


class InMemoryDataset:
    """Rows that Ray's own preprocessors can be fitted on.

    Args:
        blocks: at least one table; all of the same columns.
    """

    def __init__(self, blocks: Sequence[pa.Table]):
        self._blocks = tuple(blocks)

    def aggregate(self, *functions: Any) -> dict[str, Any]:
        """The result of each of Ray's aggregations over all rows, by its name."""
        return self._aggregated(functions).to_pylist()[0]

    def groupby(self, key: None) -> InMemoryDataset:
        """All rows as one group, for `_Group.aggregate`."""
        return _Group(self._blocks)

    def map_batches(self, function: Callable[[Any], dict[str, Any]], *, batch_format: str) -> _Batches:
        """What a function makes of each block, when it is asked for."""
        return _Batches(lambda: (function(BlockAccessor.for_block(block).to_batch_format(batch_format)) for block in self._blocks))

    def _aggregated(self, functions: Sequence[Any]) -> pa.Table:
        """One row, a column for each aggregation."""
        row = {}
        for f in functions:
            parts = (f.accumulate_block(f.init(None), block) for block in self._blocks)
            row[f.name] = f.finalize(functools.reduce(f.merge, parts))
        return pa.Table.from_pylist([row])


class _Group(InMemoryDataset):
    def aggregate(self, *functions: Any) -> Any:
        return _Stored(self._aggregated(functions))


class _Stored:
    def __init__(self, table: pa.Table):
        self._table = table

    def to_arrow_refs(self) -> list[ray.ObjectRef]:
        return [ray.put(self._table)]


class _Batches:
    def __init__(self, make: Callable[[], Iterator[dict[str, Any]]]):
        self._make = make

    def iter_batches(self, *, batch_size: None) -> Iterator[dict[str, Any]]:
        return self._make()
