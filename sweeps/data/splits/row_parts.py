"""Order the train rows for a scheduler that counts rows, and compute the sizes of the parts.

Pure functions, no I/O.

At step n of `max_t`, a trial trains on n / `max_t` of the rows: the first ones in this order. The
rows of a step are therefore rows of all later steps, too.
"""

import numpy as np
import pandas as pd

from sweeps.core.errors import InputError

# Part of the seed. It makes this order independent of the splits, which use the same seed of the
# sweep with other numbers.
ORDER = 3


def nested_order(n: int, strata: np.ndarray | None, seed: int) -> np.ndarray:
    """Return the rows in a random order of which every beginning is a sample of all rows.

    If there are classes, the order begins with one row of each class. In every longer beginning,
    each class has its share of the rows, up to a difference of about one row for each class.

    Args:
        n: Number of rows.
        strata: Class of each row, shape (n,). None if there are no classes.
        seed: Seed of the sweep.

    Returns:
        The indices 0 to n - 1 in the new order, shape (n,).
    """
    order = np.random.default_rng([abs(int(seed)), ORDER]).permutation(n)
    if strata is None:
        return order
    _, codes = np.unique(np.asarray(strata)[order], return_inverse=True)
    counts = np.bincount(codes)
    # The number of each row among the rows of its class, from 0, in the random order
    number = pd.Series(codes).groupby(codes).cumcount().to_numpy()
    # The rows of a class are placed at equal distances between 0 and 1, but its first row at 0.
    place = np.where(number == 0, 0.0, (number + 0.5) / counts[codes])
    return order[np.argsort(place, kind="stable")]


def rows_at(step: int, max_t: int, n: int) -> int:
    """Return the number of train rows at a step: step / max_t of the rows, rounded up.

    Args:
        step: The step, at least 1 and at most `max_t`.
        max_t: The step with all rows.
        n: Number of rows of the train split.
    """
    return -(-n * step // max_t)  # `math.ceil(n * step / max_t)` without rounding errors


def check_parts(steps: tuple[int, ...], n: int, classes: int, workers: int) -> None:
    """Check that the first part of the train rows is large enough.

    Args:
        steps: The steps of all parts in ascending order; the last one has all rows.
        n: Number of rows of the train split.
        classes: Number of classes; 0 if there are none.
        workers: Largest number of workers of a trial.

    Raises:
        InputError: The first part has fewer rows than classes or workers.
    """
    first = steps[0]
    max_t = steps[-1]
    rows = rows_at(first, max_t, n)
    needed = max(2, classes, workers)
    if rows >= needed:
        return
    reason = ""
    if needed == classes:
        reason = f", one for each of {classes} classes"
    elif needed == workers:
        reason = f", one for each of {workers} workers"
    raise InputError(
        "scheduler.grace_period",
        f"step {first} of {max_t} has only {rows} of the {n} train rows, but needs at least "
        f"{needed}{reason}; raise scheduler.grace_period, or lower scheduler.max_t",
    )
