"""Assign rows to splits by a hash of their values. The functions are pure.

The split of a row depends only on the row and the seed, not on other rows. So a stream can be split
without a pass over the data. Copies of a row are always in the same split.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

VALID, SHARE = "valid", "rows"


def below(
    table: pa.Table, columns: Sequence[str], share: float, purpose: str, seed: int
) -> np.ndarray:
    """Return which rows are among the fraction `share` of all rows, as a mask of shape (n,).

    Args:
        table: n rows.
        columns: columns whose values decide.
        share: fraction between 0 and 1.
        purpose: `VALID` or `SHARE`. Masks of different purposes are independent.
        seed: seed of the sweep.
    """
    return np.asarray(
        (row_hashes(table, columns, f"{purpose} {int(seed)}") >> np.uint64(11)) * 2.0**-53 < share
    )


def row_hashes(table: pa.Table, columns: Sequence[str], start: str = "") -> np.ndarray:
    """Return a hash of the values of each row in some columns, uint64 of shape (n,).

    With another `start`, the hashes are others.
    """
    digest = hashlib.blake2b(start.encode(), digest_size=8).digest()
    state = np.full(table.num_rows, int.from_bytes(digest, "little"), dtype=np.uint64)
    for name in columns:
        state = _mixed(state ^ _hashes(table.column(name)))
    return state


def _mixed(state: np.ndarray) -> np.ndarray:
    """Mix the bits of 64-bit integers, as the generator SplitMix64 does."""
    state = state + np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(state ^ (state >> np.uint64(31)))


def _hashes(column: pa.ChunkedArray) -> np.ndarray:
    """Return a hash of each value, uint64 of shape (n,).

    It does not depend on the block in which the value is.
    """
    kind = column.type
    if pa.types.is_large_string(kind) or pa.types.is_string(kind):
        return np.asarray(
            pd.util.hash_array(
                column.fill_null("\0missing").to_numpy(zero_copy_only=False).astype(object),
                categorize=True,
            )
        )
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", kind.tz), safe=False).cast(pa.int64())
    elif pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        values = np.empty(len(column), dtype=object)
        values[:] = [
            _to_bytes(value)
            for chunk in column.chunks
            for value in getattr(chunk, "storage", chunk).to_numpy(zero_copy_only=False)
        ]
        return np.asarray(pd.util.hash_array(values, categorize=False))
    numbers = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return np.asarray(pd.util.hash_array(np.where(np.isnan(numbers), np.nan, numbers + 0.0)))


def _to_bytes(value: Any) -> bytes:
    """Return the bytes of a value that is neither a number nor text, such as an encoded image, a list or a struct."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, np.ndarray):
        return (
            value.tobytes()
            if value.dtype != object
            else b"".join(b"[" + _to_bytes(part) for part in value)
        )
    if isinstance(value, dict):
        return b"".join(
            b"{" + name.encode() + b":" + _to_bytes(part) for name, part in sorted(value.items())
        )
    return repr(value).encode()
