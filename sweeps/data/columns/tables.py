"""Convert Arrow tables to a canonical form.

Equal rows then have the same types and the same fingerprint, whatever their source.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from sweeps.core.errors import InputError

from .column_types import is_text, null_texts

if TYPE_CHECKING:
    import pandas as pd
    import ray

# Tables by the name of their split ("train", "valid", "test")
Parts = dict[str, pa.Table]

# Column name of an unnamed pandas index in a Parquet file. Pandas writes such a column for each
# frame that was filtered or shuffled.
_UNNAMED_INDEX = re.compile(r"__index_level_\d+__")


def drop_index_names(names: Iterable[str]) -> list[str]:
    """Remove names such as `__index_level_0__`.

    Pandas uses such names to store an index that has no name. This index is not a feature.
    """
    return [name for name in names if not _UNNAMED_INDEX.fullmatch(name)]


def canonical_table(table: pa.Table) -> pa.Table:
    """Convert the columns of a table to canonical types.

    A dictionary-encoded column becomes a plain column of its values. Strings become `large_string`,
    whose offsets do not overflow when blocks are joined. Decimals and columns with only nulls
    become `double`, `float16` becomes `float32`, dates become timestamps, and NaN becomes null.
    Blank texts and the texts in `ALWAYS_MISSING` become null. The metadata and an index of pandas
    without a name are dropped.
    """
    return pa.table(
        {
            name: _canonical_column(table.column(name))
            for name in drop_index_names(table.column_names)
        }
    )


def _canonical_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Convert one column; see `canonical_table`."""
    kind = column.type
    if types.is_dictionary(kind):
        return _canonical_column(column.cast(kind.value_type))
    if is_text(kind):
        return null_texts(column.cast(pa.large_string()))
    if types.is_null(kind) or types.is_decimal(kind):
        return column.cast(pa.float64())
    if types.is_date(kind):
        return column.cast(pa.timestamp("us"))
    if types.is_float16(kind):
        return _canonical_column(column.cast(pa.float32()))
    if types.is_floating(kind):
        nan = pc.is_nan(column)
        if pc.any(nan).as_py():
            return pc.if_else(nan, pa.scalar(None, kind), column)
    return column


def rows_of_rank(dataset: ray.data.Dataset, ranks: int, rank: int) -> ray.data.Dataset:
    """Return the rows of a Ray Dataset for one of several ranks, as a Ray Dataset in memory.

    The rows are the same as in `split_equally(..., ranks)[rank]`.

    Raises:
        InputError: There are fewer rows than parts.
    """
    import ray.data

    table = pa.Table.from_pandas(dataset.to_pandas(), preserve_index=False)
    part = split_equally(table, ranks)[rank].to_pandas()
    rows: ray.data.Dataset = ray.data.from_blocks([part])
    return rows


def split_equally(table: pa.Table, ranks: int) -> list[pa.Table]:
    """Split a table into k tables of exactly n // k rows, one for each rank of a gang.

    Part r has the rows r, r + k, r + 2k, ..., so that each rank gets every class even if the rows
    are sorted by class. At most k - 1 rows at the end are dropped, because ranks with different
    numbers of rows would deadlock in a collective operation.

    Args:
        table: n rows.
        ranks: Number of ranks, k.

    Raises:
        InputError: There are fewer rows than parts.
    """
    if ranks == 1:
        return [table]
    size = table.num_rows // ranks
    if not size:
        raise InputError(
            "scaling.num_workers",
            f"the trial has {ranks} workers, but the train split has only {table.num_rows} rows",
        )
    return [table.take(pa.array(np.arange(rank, size * ranks, ranks))) for rank in range(ranks)]


def arrays_to_tensors(frame: pd.DataFrame, names: Collection[str] = ()) -> pd.DataFrame:
    """Convert columns of NumPy arrays to Ray Data's tensors.

    Arrow can store tensors, and training loops can read them in batches.

    Args:
        frame: Rows. Arrays with two or more dimensions become tensors. Arrays with one dimension
            are kept; Arrow stores them as lists.
        names: Columns whose arrays become tensors even if they have one dimension.
    """

    def holds_arrays(name: str) -> bool:
        """Return whether the first value is an array that becomes a tensor."""
        values = frame[name]
        first = values.iloc[0] if len(values) and values.dtype == object else None
        return (
            isinstance(first, np.ndarray)
            and first.dtype != object
            and (first.ndim > 1 or name in names)
        )

    tensors = [name for name in frame.columns if holds_arrays(name)]
    if not tensors:
        return frame
    from ray.data.extensions import TensorArray

    return frame.assign(**{name: TensorArray(list(frame[name])) for name in tensors})
