"""Find columns that predict the label alone. Pure functions.

A column that is known only after the label, such as the date of a cancellation, makes a search
worthless: each trial has a perfect score.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sweeps.data.summary import ColumnSummary, sample_rows

if TYPE_CHECKING:
    from sweeps.space import DataSpec

# Number of rows on which the label is predicted, and the smallest number of rows for a finding.
ROWS, MIN_ROWS = 10_000, 100
# A column leaks the label if it removes this share of the errors of the best constant prediction.
EXPLAINED = 0.995
# Each of two halves of the rows must have this many rows outside of the most frequent class.
MIN_OTHERS = 10
# A column with more distinct values is compared by a threshold, not value by value.
MOST_VALUES = 100
MOST_CLASSES = 50


def find_leaks(
    spec: DataSpec,
    sample: pa.Table,
    features: Sequence[ColumnSummary],
    classes: Sequence[Any] | None,
    seed: int,
) -> Iterator[tuple[str, float]]:
    """Yield the name of each feature that predicts the label alone, and the share it explains.

    The share of the label is between 0 and 1.

    Args:
        spec: the `data` section.
        sample: rows with the label, which is not encoded.
        features: summaries of the features.
        classes: classes of the label; None for numbers.
        seed: seed of the rows that are looked at.
    """
    if len(spec.labels) != 1 or len(features) < 2 or spec.labels[0] in spec.parse:
        return
    rows = sample.filter(pc.is_valid(sample.column(spec.labels[0])))
    rows = sample_rows(rows, ROWS, seed)
    label = rows.column(spec.labels[0])
    if rows.num_rows < MIN_ROWS or (classes is not None and not 2 <= len(classes) <= MOST_CLASSES):
        return
    if classes is None:
        target = label.cast(pa.float64()).to_numpy()
    else:
        target = pc.index_in(label, value_set=pa.array(list(classes), label.type)).to_numpy()
    for feature in features:
        if feature.kind == "other" or feature.name in spec.parse:
            continue
        column = rows.column(feature.name)
        score = (
            _regression_score(column, target)
            if classes is None
            else _class_score(column, target, len(classes))
        )
        if score >= EXPLAINED:
            yield feature.name, float(score)


def _codes(column: pa.ChunkedArray) -> np.ndarray:
    """Return a code for each value of a column. A missing value has a code of its own."""
    encoded = column.combine_chunks()
    encoded = encoded if isinstance(encoded, pa.Array) else pa.concat_arrays(encoded.chunks)
    return (
        np.asarray(
            pc.fill_null(encoded.dictionary_encode().indices, -1).to_numpy(zero_copy_only=False),
            dtype=np.int64,
        )
        + 1
    )


def _numbers(column: pa.ChunkedArray) -> np.ndarray | None:
    """Return a column as floats, NaN for missing values.

    Return None if the column has neither numbers nor dates.
    """
    kind = column.type
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.int64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return None
    return np.asarray(
        column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), dtype=np.float64
    )


def _class_score(column: pa.ChunkedArray, target: np.ndarray, classes: int) -> float:
    """Return the share of the errors of the most frequent class that a column removes.

    The share is measured on rows that were not used to learn. 1.0 means that the column determines
    the class.
    """
    codes = _codes(column)
    if (numbers := _numbers(column)) is not None and codes.max() > MOST_VALUES:
        if classes != 2:
            return 0.0
        codes = _threshold_codes(numbers, target)
    return _held_out_score(codes, target, classes)


def _threshold_codes(numbers: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return 0 for missing values, and 1 or 2 for the values on each side of a threshold.

    The threshold is the one that separates two classes best. If no threshold separates the classes,
    all values have the code 1.
    """
    present = np.flatnonzero(~np.isnan(numbers))
    order = present[np.argsort(numbers[present], kind="stable")]
    values, ones = numbers[order], np.cumsum(target[order])
    codes = np.zeros(len(numbers), dtype=np.int64)
    codes[present] = 1
    if len(order) > 1:
        below = np.arange(1, len(order) + 1)
        right = np.maximum(
            below - ones + (ones[-1] - ones), ones + (len(order) - below - (ones[-1] - ones))
        )
        right = np.where(np.append(values[1:] != values[:-1], False), right, 0)
        if right.max() > max(ones[-1], len(order) - ones[-1]):
            codes[order[int(right.argmax()) + 1 :]] = 2
    return codes


def _first_half(rows: int) -> np.ndarray:
    """Return a random half of the rows, as a mask.

    Calls with the same number of rows return the same half.
    """
    return np.random.default_rng(rows).random(rows) < 0.5


def _held_out_score(codes: np.ndarray, target: np.ndarray, classes: int) -> float:
    """Learn the most frequent class of each code on half of the rows, and score the other half."""
    first = _first_half(len(codes))
    counts = np.zeros((codes.max() + 1, classes))
    np.add.at(counts, (codes[first], target[first]), 1)
    common = int(np.bincount(target[first], minlength=classes).argmax())
    learned = np.where(counts.sum(axis=1) > 0, counts.argmax(axis=1), common)
    base = int((target[~first] != common).sum())
    if base < MIN_OTHERS:
        return 0.0
    return 1.0 - int((target[~first] != learned[codes[~first]]).sum()) / base


def _regression_score(column: pa.ChunkedArray, target: np.ndarray) -> float:
    """Return the share of the variance of the label that a column explains.

    The column explains it by a line or by the mean for each value.
    """
    numbers, codes = _numbers(column), _codes(column)
    if numbers is not None and codes.max() > MOST_VALUES:
        present = ~np.isnan(numbers) & np.isfinite(numbers)
        for values in (numbers, target):  # one extreme row can make a correlation of 1
            low, high = np.quantile(values[present], (0.01, 0.99)) if present.any() else (0.0, 0.0)
            present &= (values >= low) & (values <= high)
        if (
            present.sum() < max(MIN_ROWS, len(numbers) // 2)
            or np.ptp(numbers[present]) == 0
            or np.ptp(target[present]) == 0
        ):
            return 0.0
        return float(np.corrcoef(numbers[present], target[present])[0, 1] ** 2)
    first = _first_half(len(codes))
    sums = np.bincount(codes[first], target[first], codes.max() + 1)
    sizes = np.bincount(codes[first], minlength=codes.max() + 1)
    means = np.where(sizes > 0, sums / np.maximum(sizes, 1), target[first].mean())
    variance = float(((target[~first] - target[first].mean()) ** 2).sum())
    return (
        1.0 - float(((target[~first] - means[codes[~first]]) ** 2).sum()) / variance
        if variance > 0
        else 0.0
    )
