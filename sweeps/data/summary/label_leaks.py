"""Find columns that predict the label alone. Pure functions.

A column that is known only after the label, such as the date of a cancellation, makes a search
worthless: each trial has a perfect score.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from sweeps.core.label_columns import Classes
from sweeps.space import DataSpec

from .data_summary import ColumnSummary, sample_rows

# Number of rows on which the label is predicted, and the smallest number of rows for a finding.
ROWS = 10_000
MIN_ROWS = 100
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
    classes: Classes | None,
    seed: int,
) -> Iterator[tuple[str, float]]:
    """Yield the name of each feature that predicts the label alone, and the share it explains.

    The share of the label is between 0 and 1.

    Args:
        spec: The `data` section.
        sample: Rows with the label, which is not encoded.
        features: Summaries of the features.
        classes: Classes of the label; None for numbers.
        seed: Seed of the rows that are looked at.
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
        numeric = feature.kind in ("number", "date")
        count = None if classes is None else len(classes)
        score = _score(column, numeric, target, classes=count)
        if score >= EXPLAINED:
            yield feature.name, float(score)


def _score(
    column: pa.ChunkedArray, numeric: bool, target: np.ndarray, classes: int | None
) -> float:
    """Return the share of the errors of the best constant prediction that a column removes.

    The share is measured on rows that were not used to learn. 1.0 means that the column determines
    the label.

    Args:
        column: The column.
        numeric: True if the column has numbers or dates.
        target: The label: codes of classes, or numbers.
        classes: Number of classes; None for numbers.
    """
    codes, distinct = pd.factorize(column.to_pandas(), use_na_sentinel=False)
    if numeric and len(distinct) > MOST_VALUES:
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.int64())
        numbers = np.asarray(column.cast(pa.float64(), safe=False), dtype=np.float64)
        if classes is None:
            return _correlation(numbers, target)
        if classes != 2:
            return 0.0
        codes = _threshold_codes(numbers, target)
    return _held_out_score(codes, target, classes)


def _threshold_codes(numbers: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return 0 for missing values, and 1 or 2 for the values on each side of a threshold.

    The threshold is the one at which the shares of two classes below it differ most.
    """
    codes = np.zeros(len(numbers), dtype=np.int64)
    present = ~np.isnan(numbers)
    values, value_index = np.unique(numbers[present], return_inverse=True)
    shares = []  # for each class, the share of its rows up to each value
    for code in (0, 1):
        counts = np.bincount(value_index[target[present] == code], minlength=len(values))
        shares.append(np.cumsum(counts) / max(1, counts.sum()))
    threshold = values[np.abs(shares[0] - shares[1]).argmax()]
    codes[present] = np.where(numbers[present] > threshold, 2, 1)
    return codes


def _held_out_score(codes: np.ndarray, target: np.ndarray, classes: int | None) -> float:
    """Learn the best prediction for each code on half of the rows, and score the other half.

    The best prediction is the most frequent class, or the mean. See `_score` for the score.

    Args:
        codes: Code of the column's value in each row.
        target: See `_score`.
        classes: See `_score`.
    """
    learn = np.random.default_rng(len(codes)).random(len(codes)) < 0.5
    learn_codes = codes[learn]
    learn_target = target[learn]
    test_target = target[~learn]
    size = codes.max() + 1
    counts = np.bincount(learn_codes, minlength=size)
    if classes is None:
        constant = learn_target.mean()
        best = np.bincount(learn_codes, learn_target, size) / np.maximum(counts, 1)
    else:
        constant = np.bincount(learn_target).argmax()
        pairs = np.bincount(learn_codes * classes + learn_target, minlength=size * classes)
        best = pairs.reshape(size, classes).argmax(axis=1)
    predicted = np.where(counts > 0, best, constant)[codes[~learn]]
    wrong = test_target != constant
    if wrong.sum() < MIN_OTHERS:
        return 0.0
    if classes is None:
        return float(
            1.0 - ((test_target - predicted) ** 2).sum() / ((test_target - constant) ** 2).sum()
        )
    return float(1.0 - (test_target != predicted).sum() / wrong.sum())


def _correlation(numbers: np.ndarray, target: np.ndarray) -> float:
    """Return the share of the variance of the label that a line through the numbers explains."""
    usable = np.isfinite(numbers)
    for values in (numbers, target):  # one extreme row can make a correlation of 1
        low, high = np.quantile(values[usable], (0.01, 0.99)) if usable.any() else (0.0, 0.0)
        usable &= (values >= low) & (values <= high)
    numbers = numbers[usable]
    target = target[usable]
    if len(numbers) < max(MIN_ROWS, len(usable) // 2):
        return 0.0
    if np.ptp(numbers) == 0 or np.ptp(target) == 0:
        return 0.0
    return float(np.corrcoef(numbers, target)[0, 1] ** 2)
