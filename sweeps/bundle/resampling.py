"""Draw the rows of valid again. Pure functions, no I/O."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sweeps.data.splits.valid_rows import ValidRows

# Rows are pooled at random into at most this many units. This saves time, and changes no variance.
MOST_UNITS = 2000
# A split by time is drawn in this many blocks, because neighbours in time resemble each other.
TIME_BLOCKS = 40


@dataclass(frozen=True)
class Units:
    """The units in which the rows of valid are drawn: rows, groups of rows, or blocks of time.

    Attributes:
        of_row: Index of each row's unit, shape (n,).
        strata: Number of each unit's stratum, shape (units,). Units are drawn within strata.
        kind: The units in plural, for people.
        population: Number of rows from which the shares of the strata are known. None if the shares
            are given.
    """

    of_row: np.ndarray
    strata: np.ndarray
    kind: str
    population: int | None = None


def units_of(
    valid: ValidRows, has_classes: bool, population: int | None = None, seed: int = 0
) -> Units:
    """Return the units in which rows of valid are drawn.

    Args:
        valid: The rows.
        has_classes: True if the labels are classes. A holdout has the class shares of all rows, so
            each class is a stratum.
        population: Number of all rows of a holdout and its train rows; see `Units`.
        seed: Seed with which rows are pooled.
    """
    if valid.groups is not None:
        _, of_row = np.unique(valid.groups, return_inverse=True)
        return Units(of_row, _first(valid.folds, of_row), "groups")
    if valid.times is not None:
        return _time_blocks(valid)
    strata = valid.folds
    is_holdout = has_classes and valid.labels.ndim == 1 and not valid.folds.any()
    if is_holdout:
        _, strata = np.unique(valid.labels, return_inverse=True)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(strata))
    order = order[np.argsort(strata[order], kind="stable")]
    # Neighbours of this order belong to one unit, and a unit belongs to one stratum.
    size = max(1, -(-len(order) // MOST_UNITS))
    ranked = strata[order]
    starts = np.flatnonzero(np.diff(ranked, prepend=ranked[:1] - 1))
    place = np.arange(len(order)) - np.repeat(starts, np.diff(np.append(starts, len(order))))
    begins = (place % size == 0).astype(np.int64)
    of_row = np.empty(len(order), dtype=np.int64)
    of_row[order] = np.cumsum(begins) - 1
    return Units(of_row, _first(strata, of_row), "rows", population if is_holdout else None)


def _time_blocks(valid: ValidRows) -> Units:
    """Return blocks of neighbours in time, within folds."""
    of_row = np.empty(len(valid.folds), dtype=np.int64)
    count = 0
    for fold in np.unique(valid.folds):
        rows = np.flatnonzero(valid.folds == fold)
        ordered = rows[np.argsort(valid.times[rows], kind="stable")]  # type: ignore[index]
        for block in np.array_split(ordered, min(TIME_BLOCKS, len(ordered))):
            of_row[block] = count
            count += 1
    return Units(of_row, _first(valid.folds, of_row), "blocks of time")


def _first(values: np.ndarray, of_row: np.ndarray) -> np.ndarray:
    """Return the value of the first row of each unit."""
    _, first = np.unique(of_row, return_index=True)
    chosen: np.ndarray = values[first]
    return chosen


def bootstrap(units: Units, count: int, seed: int) -> np.ndarray:
    """Draw units with replacement.

    Each draw has as many units of a stratum as there are. With a `population`, the share of a
    stratum varies from draw to draw, as it varies between random samples of this size.

    Args:
        units: The units.
        count: Number of draws.
        seed: Seed of the draws.

    Returns:
        How many times each draw has each unit, shape (count, units).
    """
    rng = np.random.default_rng(seed)
    draws = np.zeros((count, len(units.strata)), dtype=np.int64)
    strata, sizes = np.unique(units.strata, return_counts=True)
    drawn_sizes = np.tile(sizes, (count, 1))
    if units.population is not None:
        shares = rng.multinomial(units.population, sizes / sizes.sum(), size=count)
        exact = shares / units.population * sizes.sum()
        drawn_sizes = np.floor(exact + rng.random(exact.shape)).astype(np.int64)
    for stratum, sizes_of_draws in zip(strata, drawn_sizes.T, strict=True):
        members = np.flatnonzero(units.strata == stratum)
        chances = np.full(len(members), 1 / len(members))
        draws[:, members] = rng.multinomial(sizes_of_draws, chances)
    return draws


def halves(units: Units, count: int, seed: int) -> np.ndarray:
    """Divide the units into two halves at random, several times.

    Each half has about the same share of each stratum.

    Args:
        units: The units.
        count: Number of divisions.
        seed: Seed of the divisions.

    Returns:
        True for each unit of the first half, shape (count, units).
    """
    rng = np.random.default_rng(seed)
    masks = []
    for _ in range(count):
        order = rng.permutation(len(units.strata))
        order = order[np.argsort(units.strata[order], kind="stable")]
        mask = np.empty(len(order), dtype=bool)
        mask[order] = np.arange(len(order)) % 2 == 0
        masks.append(mask)
    return np.array(masks)
