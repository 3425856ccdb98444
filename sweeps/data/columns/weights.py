"""Check and compute the weights of train rows, from `data.weight` and `data.class_weight`.

Pure functions, no I/O.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from sweeps.core.errors import InputError, Problem
from sweeps.space.sections.data_section import CLASS_WEIGHT_TASK

from .column_types import describe_type, is_numeric

if TYPE_CHECKING:
    from sweeps.data.splits.folds import Folds
    from sweeps.data.splits.split_tables import Splits
    from sweeps.space import DataSpec

    from .tables import Parts

# Name of the column that the shard of train has if its rows have weights.
WEIGHT_COLUMN = "sample_weight"
RULE = "a weight must be a finite number of at least 0"


def check_weights(spec: DataSpec, parts: Parts) -> list[Problem]:
    """Check that the columns of weights have only finite numbers of at least 0.

    Args:
        spec: The `data` section.
        parts: Tables by split: "train", and the splits that have separate sources. They have the
            columns of weights.

    Returns:
        At most one problem for each column.
    """
    problems = []
    for name in spec.weight_columns:
        texts = (_weight_problem(part.column(name), key) for key, part in parts.items())
        if text := next((text for text in texts if text is not None), None):
            problems.append(
                Problem(
                    "data.weight",
                    f"`{name}` {text}; {RULE}; correct the column, or name another one",
                )
            )
    return problems


def _weight_problem(column: pa.ChunkedArray, key: str) -> str | None:
    """Return what is wrong with a column of weights of the split `key`; None if nothing is."""
    if not is_numeric(column.type):
        example = f", such as {column[0].as_py()!r}" if len(column) else ""
        return f"holds {describe_type(column.type)} in data.{key}{example}"
    if count := column.null_count:
        return f"has {count} missing value{'s' * (count > 1)} in data.{key}"
    values = column.to_numpy()
    wrong = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
    if not len(wrong):
        return None
    return f"is {values[wrong[0]]} in row {wrong[0] + 1} of data.{key}"


def check_class_weight(spec: DataSpec, task: str | None) -> list[Problem]:
    """Return a problem if `data.class_weight` is given, but the task is a regression."""
    if spec.class_weight is None or task != "regression":
        return []
    return [Problem("data.class_weight", CLASS_WEIGHT_TASK)]


def check_train_weights(spec: DataSpec, train: pa.Table, folds: Folds) -> list[Problem]:
    """Check that at least one train row has a weight above 0.

    With a cross-validation, check the train rows of each fold.

    Args:
        spec: The `data` section.
        train: The train split.
        folds: See `Splits.folds`.
    """
    problems = []
    for name in spec.weight_columns:
        values = train.column(name).to_numpy()
        empty_folds = [
            number for number, (rows, _) in enumerate(folds, 1) if not values[rows].any()
        ]
        if not values.any():
            problems.append(_no_weight(name, "of the train split"))
        elif empty_folds:
            problems.append(_no_weight(name, f"of fold {empty_folds[0]}"))
    return problems


def _no_weight(name: str, where: str) -> Problem:
    """Return the problem that all train rows `where`, such as "of fold 2", have the weight 0."""
    return Problem(
        "data.weight",
        f"`{name}` is 0 in every train row {where}; at least one weight must be above 0; correct "
        "the column",
    )


def row_weights(splits: Splits) -> np.ndarray | None:
    """Return the weight of each train row, float64 of shape (n,). None if the rows have no weights.

    Args:
        splits: The splits. For a cross-validation, these are the splits of one fold.

    Raises:
        InputError: Every weight is 0, for example because `data.rows` has sampled only rows with
            the weight 0.
    """
    if splits.weight is None and splits.class_weight is None:
        return None
    from sklearn.utils.class_weight import compute_sample_weight

    weights = np.ones(splits.train.num_rows)
    if splits.weight is not None:
        weights = splits.train.column(splits.weight).to_numpy().astype(np.float64)
        if not weights.any():
            raise InputError(_no_weight(splits.weight, "of this trial"))
    if splits.class_weight is not None:
        codes = splits.train.column(splits.label).to_numpy()
        weights = weights * compute_sample_weight("balanced", codes)
    return weights
