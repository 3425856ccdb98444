"""Assign rows to splits.

The functions are pure: their results depend only on NumPy arrays and a seed.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from sweeps.core.errors import InputError
from sweeps.data.checks.label_checks import as_text
from sweeps.space import Split
from sweeps.space.yaml.scalars import Plain

# Codes of the splits
TRAIN = 0
VALID = 1
TEST = 2
# Number of random draws of groups; see `sample_groups`
_GROUP_TRIES = 32


def assign_splits(
    n: int,
    *,
    valid: Split | None,
    test: Split | None,
    columns: Mapping[str, np.ndarray],
    strata: np.ndarray | None,
    seed: int,
) -> np.ndarray:
    """Assign each row to a split.

    Test is chosen first, then valid, and all other rows are train. Every fraction refers to all `n`
    rows.

    Args:
        n: Number of rows.
        valid: Rule for the rows of valid. None if valid has a separate source.
        test: Rule for the rows of test. None if test has a separate source or there is no test
            split.
        columns: Values of the columns that are named in `valid` and `test`, by column name. Each
            array has shape (n,).
        strata: Class codes of shape (n,). A split by fraction keeps the share of each class. None
            if there are no classes.
        seed: Seed of splits by fraction and by group.

    Returns:
        int8 codes TRAIN, VALID and TEST of shape (n,). Train and each requested split have at least
        one row.

    Raises:
        InputError: A split would be empty, or no rows would remain to train on.
    """
    codes = np.zeros(n, dtype=np.int8)
    for key, split, code in (("test", test, TEST), ("valid", valid, VALID)):
        if split is None:
            continue
        unassigned = np.flatnonzero(codes == TRAIN)
        # A rule without a column needs only the number of rows, which `codes` has, too.
        column = codes if split.column is None else np.asarray(columns[str(split.column)])
        if split.kind == "column":
            chosen = _rows_with_value(key, split, column, unassigned)
        else:
            rng = np.random.default_rng([abs(int(seed)), code])
            chosen = _rows_by_fraction(key, split, column, unassigned, strata, rng)
        if chosen.all():
            raise InputError(
                f"data.{key}",
                f"this split takes all {len(unassigned)} rows, so no rows remain to train on",
            )
        codes[unassigned[chosen]] = code
    return codes


def _rows_by_fraction(
    key: str,
    split: Split,
    column: np.ndarray,
    unassigned: np.ndarray,
    strata: np.ndarray | None,
    rng: np.random.Generator,
) -> np.ndarray:
    """Choose a fraction of the rows for a split, and return a mask of `unassigned`.

    Args:
        key: Name of the split, "valid" or "test", for messages.
        split: The rule, of the kind fraction, time or group. Its fraction refers to all rows.
        column: Values of the rule's column in all rows.
        unassigned: Indices of the rows without a split, from which rows are chosen.
        strata: See `assign_splits`.
        rng: Source of random numbers.
    """
    rows = rows_in_fraction(len(column), split.fraction)
    if rows >= len(unassigned):
        raise InputError(
            f"data.{key}",
            f"{split.fraction} of {len(column)} rows is {rows}, but only {len(unassigned)} are "
            "available, so no rows remain to train on",
        )
    if split.kind == "fraction":
        classes = None if strata is None else strata[unassigned]
        chosen = sample_rows(len(unassigned), rows, rng, classes)
    elif split.kind == "time":
        chosen = select_latest(sortable_times(key, str(split.column), column)[unassigned], rows)
    else:
        chosen = sample_groups(column[unassigned], rows, rng)
    if not chosen.any():
        raise InputError(
            f"data.{key}",
            f"column `{split.column}` has the same value in all {len(unassigned)} rows, so it "
            "cannot split the rows",
        )
    return chosen


def _rows_with_value(
    key: str, split: Split, column: np.ndarray, unassigned: np.ndarray
) -> np.ndarray:
    """Choose the rows for a split `{column: ..., value: ...}`; see `_rows_by_fraction`."""
    chosen = equals(column[unassigned], split.value)
    if not chosen.any():
        examples = ", ".join(sorted({f"`{v}`" for v in pd.unique(column)[:8]}))
        raise InputError(
            f"data.{key}",
            f"no row has {split.value!r} in column `{split.column}`, which holds {examples}",
        )
    return chosen


def rows_in_fraction(n: int, share: float | None) -> int:
    """Return the number of rows in the fraction `share` of `n` rows: rounded, and at least 1."""
    return max(1, round(n * float(share or 0)))


def sample_rows(
    n: int, rows: int, rng: np.random.Generator, strata: np.ndarray | None
) -> np.ndarray:
    """Sample exactly `rows` of `n` rows at random.

    Each class keeps its share, up to a difference of about one row.

    If possible, at least one row of each class is not sampled, so that the remaining rows have all
    classes, too.

    Args:
        n: Number of rows to sample from.
        rows: Number of rows to sample.
        rng: Source of random numbers.
        strata: Class of each row; None if there are no classes.

    Returns:
        A mask of shape (n,).
    """
    chosen = np.zeros(n, dtype=bool)
    if strata is None:
        chosen[rng.permutation(n)[:rows]] = True
        return chosen
    _, codes = np.unique(strata, return_inverse=True)
    wanted = _rows_per_class(np.bincount(codes), rows)
    order = rng.permutation(n)
    codes = codes[order]
    # The number of each row among the rows of its class, from 0, in the random order
    number = pd.Series(codes).groupby(codes).cumcount().to_numpy()
    chosen[order[number < wanted[codes]]] = True
    return chosen


def _rows_per_class(counts: np.ndarray, rows: int) -> np.ndarray:
    """Distribute `rows` over classes by the largest-remainder method.

    Args:
        counts: Number of rows that each class has. The shares are in proportion to it.
        rows: Total of the result, at most the sum of `counts`.

    Returns:
        The number of rows to choose from each class: if possible, less than the class has.
    """
    limits = counts - 1 if (counts - 1).sum() >= rows else counts
    ideal = counts * (rows / counts.sum())
    chosen = np.minimum(np.floor(ideal).astype(np.int64), limits)
    while (missing := rows - int(chosen.sum())) > 0:
        below_limit = np.flatnonzero(chosen < limits)
        surplus = chosen[below_limit] - ideal[below_limit]
        neediest = below_limit[np.argsort(surplus, kind="stable")][:missing]
        chosen[neediest] += 1
    return np.asarray(chosen)


def equals(column: np.ndarray, value: Plain) -> np.ndarray:
    """Return a mask of the rows in which a column has a value.

    Values are also compared as text: 2 equals "2".

    Each row of the mask depends on its own value alone, so the blocks of a stream give the same
    rows as a whole table.
    """
    codes, distinct = pd.factorize(pd.Series(column))
    values = pd.Series(distinct)
    equal = np.asarray((values == value) | (values.map(as_text) == as_text(value)), dtype=bool)
    return np.asarray(np.append(equal, False)[codes])  # the code of a missing value is -1


def sortable_times(key: str, name: str, column: np.ndarray) -> np.ndarray:
    """Convert a column of times to numbers in the same order.

    Numbers stay as they are; text must be ISO 8601.

    Args:
        key: Name of the split, "valid" or "test", for the message.
        name: Name of the column, for the message.
        column: The values, shape (n,).

    Raises:
        InputError: A value is missing or is not a time.
    """
    series = pd.Series(column)
    missing = int(series.isna().sum())
    if missing:
        raise InputError(
            f"data.{key}",
            f"time column `{name}` has no value in {missing} rows; a split by time needs a value "
            "in each row",
        )
    if pd.api.types.is_numeric_dtype(series.dtype):
        return column
    times = pd.to_datetime(
        series, errors="coerce", utc=True, format=None if series.dtype.kind == "M" else "ISO8601"
    )  # the kind "M" is datetime64
    if times.isna().any():
        wrong = series[times.isna()].iloc[0]
        raise InputError(
            f"data.{key}",
            f"time column `{name}` holds {wrong!r}, which is not a time; write ISO 8601, or "
            "numbers",
        )
    return np.asarray(times.dt.as_unit("us").astype(np.int64))


def select_latest(times: np.ndarray, rows: int) -> np.ndarray:
    """Select the latest `rows` rows. Of rows with the same time, either all or none are selected.

    So more than `rows` rows may be selected. If all rows would be selected, the rows with the
    earliest time are left out.

    Returns:
        A mask of the rows.
    """
    index = len(times) - rows
    earliest = np.partition(times, index)[index]  # the earliest of the latest `rows` times
    chosen = times >= earliest
    return np.asarray(times > earliest if chosen.all() else chosen)


def group_codes(groups: np.ndarray) -> np.ndarray:
    """Return the number of each row's group, in the order in which the groups appear.

    Rows whose group is missing form one group.
    """
    return np.asarray(pd.factorize(pd.Series(groups, dtype=object), use_na_sentinel=False)[0])


def latest_of_groups(times: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Return the latest time of each row's group, so that no split by time divides a group."""
    return np.asarray(pd.Series(times).groupby(group_codes(groups)).transform("max"))


def sample_groups(groups: np.ndarray, rows: int, rng: np.random.Generator) -> np.ndarray:
    """Select whole groups at random, with about `rows` rows in total.

    The function draws several times, and returns the draw that is closest to `rows`.

    Rows whose group is missing form one group. If there are several groups, at least one group is
    selected and at least one is not. If there is only one group, it is not selected.

    Returns:
        A mask of the rows.
    """
    codes = group_codes(groups)
    counts = np.bincount(codes)
    if len(counts) < 2:
        return np.zeros(len(codes), dtype=bool)
    best: list[int] = []
    smallest_error = np.inf
    smallest_group = int(np.argmin(counts))
    for _ in range(_GROUP_TRIES):
        draw = []
        total = 0
        for group in rng.permutation(len(counts)):
            if abs(total + counts[group] - rows) < abs(total - rows):
                draw.append(group)
                total += counts[group]
        if not draw:
            draw = [smallest_group]
        elif len(draw) == len(counts):
            draw.remove(smallest_group)
        error = abs(int(counts[draw].sum()) - rows)
        if error < smallest_error:
            best = draw
            smallest_error = error
        if smallest_error == 0:
            break
    return np.isin(codes, best)
