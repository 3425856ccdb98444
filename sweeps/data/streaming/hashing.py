"""Assign rows to splits by a hash of their values. The functions are pure.

The split of a row depends only on the row and the seed, not on other rows. So a stream can be split without a pass over the data. Copies
of a row are always in the same split.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pyarrow as pa

from sweeps.core.errors import InputError, Problem

VALID, SHARE = "valid", "rows"


def is_hashable(kind: pa.DataType) -> bool:
    """Return whether the values of a type enter the hash of a row: numbers, booleans, times and text."""
    plain = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind) or pa.types.is_timestamp(kind)
    return bool(plain or pa.types.is_large_string(kind) or pa.types.is_string(kind))


def below(table: pa.Table, columns: Sequence[str], share: float, purpose: str, seed: int) -> np.ndarray:
    """Return which rows are among the fraction `share` of all rows, as a mask of shape (n,).

    Args:
        table: n rows.
        columns: columns whose values decide. Columns of lists and arrays among them are left out.
        share: fraction between 0 and 1.
        purpose: `VALID` or `SHARE`. Masks of different purposes are independent.
        seed: seed of the sweep.

    Raises:
        InputError: none of the columns has values that can be hashed.
    """
    chosen = [name for name in columns if is_hashable(table.schema.field(name).type)]
    if not chosen:
        raise InputError(Problem("data.valid", "no column has numbers or text, by which a stream could be split; give a path"))
    start = hashlib.blake2b(f"{purpose} {int(seed)}".encode(), digest_size=8).digest()
    state = np.full(table.num_rows, int.from_bytes(start, "little"), dtype=np.uint64)
    for name in chosen:
        state = _mixed(state ^ _hashes(table.column(name)))
    return np.asarray((state >> np.uint64(11)) * 2.0**-53 < share)


def _mixed(state: np.ndarray) -> np.ndarray:
    """Mix the bits of 64-bit integers, as the generator SplitMix64 does."""
    state = state + np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(state ^ (state >> np.uint64(31)))


def _hashes(column: pa.ChunkedArray) -> np.ndarray:
    """Return a hash of each value, uint64 of shape (n,). It does not depend on the block in which the value is."""
    kind = column.type
    if pa.types.is_large_string(kind) or pa.types.is_string(kind):
        return np.asarray(pd.util.hash_array(column.fill_null("\0missing").to_numpy(zero_copy_only=False).astype(object), categorize=True))
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
    elif pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    numbers = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return np.asarray(pd.util.hash_array(np.where(np.isnan(numbers), np.nan, numbers + 0.0)))
