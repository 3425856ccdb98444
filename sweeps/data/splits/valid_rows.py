"""The rows of valid to which the kept predictions of trials belong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa

from sweeps.data.preprocessing.fit import label_values

from .split_tables import Splits

if TYPE_CHECKING:
    from sweeps.data.streaming.stream_splits import StreamSplits

# This many rows are hashed at once.
HASHED_ROWS = 100_000


@dataclass(frozen=True)
class ValidRows:
    """Facts about n rows of valid, without their features.

    In a cross-validation, these are the rows of all folds, one fold after the other.

    Attributes:
        ids: Hash of each row, uint64. Copies of a row have the same hash.
        labels: The encoded labels, shape (n,), or (n, k) for k label columns.
        folds: Index of each row's fold, from 0. All are 0 without a cross-validation.
        weights: Weight of each row; None if the rows have no weights.
        groups: Number of each row's group if there is `data.group`; else None.
        times: Number that orders the rows, if `data.valid` splits by time; else None.
    """

    ids: np.ndarray
    labels: np.ndarray
    folds: np.ndarray
    weights: np.ndarray | None = None
    groups: np.ndarray | None = None
    times: np.ndarray | None = None


def valid_rows(splits: Splits | StreamSplits) -> ValidRows | None:
    """Return facts about the rows of valid; None for a stream, and if the data has no label."""
    if not isinstance(splits, Splits):
        return None
    indices = [rows for _, rows in splits.folds]
    table = splits.train if indices else splits.valid
    labels = label_values(table, splits.label)
    if labels is None:
        return None
    order = np.concatenate(indices) if indices else np.arange(table.num_rows)
    weights = None if splits.weight is None else table.column(splits.weight).to_numpy()
    counts = [len(rows) for rows in indices] or [len(order)]

    def ordered(values: np.ndarray | None) -> np.ndarray | None:
        return None if values is None else values[order]

    return ValidRows(
        ids=_hashes(table)[order],
        labels=labels[order],
        folds=np.repeat(np.arange(len(counts)), counts),
        weights=ordered(weights),
        groups=ordered(splits.valid_groups),
        times=ordered(splits.valid_times),
    )


def _hashes(table: pa.Table) -> np.ndarray:
    """Return a hash of each row. Columns of lists and tensors do not count."""
    names = [
        field.name
        for field in table.schema
        if not (pa.types.is_nested(field.type) or isinstance(field.type, pa.BaseExtensionType))
    ]
    if not names:
        return np.arange(table.num_rows, dtype=np.uint64)
    hashes = np.zeros(table.num_rows, dtype=np.uint64)
    for start in range(0, table.num_rows, HASHED_ROWS):  # A copy of all rows may not fit.
        part = table.select(names).slice(start, HASHED_ROWS).to_pandas()
        hashes[start : start + len(part)] = pd.util.hash_pandas_object(part, index=False)
    return hashes
