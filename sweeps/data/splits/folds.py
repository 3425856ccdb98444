"""Assign rows to the folds of a cross-validation, with scikit-learn's splitters.

The functions are pure.
"""

import numpy as np

from sweeps.core.errors import InputError
from sweeps.space import Split

from .split import group_codes, sortable_times

# The rows of one fold to train on, and the rows to validate on. Both are sorted indices.
Fold = tuple[np.ndarray, np.ndarray]
Folds = tuple[Fold, ...]


def assign_folds(
    rule: Split, n: int, column: np.ndarray | None, strata: np.ndarray | None, seed: int
) -> Folds:
    """Return the train rows and the valid rows of each fold.

    Args:
        rule: The rule `data.valid`, of the kind folds or rolling.
        n: Number of rows.
        column: Values of the column that the rule names, shape (n,). None if the rule names no
            column.
        strata: Class codes of shape (n,). Each fold then has about the same share of each class,
            unless the folds follow the time. None if there are no classes.
        seed: Seed for shuffling the rows or the groups.

    Raises:
        InputError: There are too few rows, groups, classes or times for this number of folds.
    """
    from sklearn import model_selection

    seed = abs(int(seed)) % 2**32
    if rule.kind == "rolling":
        assert column is not None
        return _rolling(sortable_times("valid", str(rule.column), column), rule)
    rows: np.ndarray = np.arange(n)
    splitter: model_selection.BaseCrossValidator
    if column is None:
        _check_number(rule, n, "rows")
        kind = model_selection.KFold if strata is None else model_selection.StratifiedKFold
        splitter = kind(rule.folds, shuffle=True, random_state=seed)
        groups = None
    else:
        groups = group_codes(column)
        _check_number(rule, len(np.unique(groups)), f"different values in column `{rule.column}`")
        group_kind = (
            model_selection.GroupKFold if strata is None else model_selection.StratifiedGroupKFold
        )
        splitter = group_kind(rule.folds, shuffle=True, random_state=seed)
    folds = tuple(splitter.split(rows, rows if strata is None else strata, groups))
    if any(len(valid) == 0 for _, valid in folds):
        raise InputError(
            "data.valid", f"a fold would have no rows; use fewer than {rule.folds} folds"
        )
    return folds


def _rolling(times: np.ndarray, rule: Split) -> Folds:
    """Cut the distinct times into `folds` + 1 blocks.

    Fold k trains on the first k blocks and validates on the next block.
    """
    from sklearn.model_selection import TimeSeriesSplit

    distinct, time_index = np.unique(times, return_inverse=True)
    _check_number(
        rule, len(distinct) - 1, f"different times after the first in column `{rule.column}`"
    )
    blocks = TimeSeriesSplit(rule.folds).split(distinct)
    return tuple(
        (np.flatnonzero(np.isin(time_index, train)), np.flatnonzero(np.isin(time_index, valid)))
        for train, valid in blocks
    )


def _check_number(rule: Split, count: int, noun: str) -> None:
    """Raise an InputError if there are fewer rows, groups or times (`noun`) than folds."""
    if count < rule.folds:
        raise InputError(
            "data.valid",
            f"{rule.folds} folds need at least {rule.folds} {noun}, got {count}; use fewer folds",
        )
