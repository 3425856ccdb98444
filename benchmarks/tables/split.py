"""The tables that are held back, and the rows of each table that are held back. Pure functions."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import pandas as pd

# The tables for development, which never are held back.
DEVELOPMENT = (
    "german_credit",
    "stroke",
    "abalone",
    "california_housing",
    "made_many_levels",
    "made_unequal_classes",
)
PARTS = 4  # One part of the rows is held back.


def is_held(table: str) -> bool:
    """Return whether a table is held back: a third of all names is, by their hash.

    Nobody chooses these tables, and a table never changes its side when others are added.
    """
    return int(hashlib.sha256(table.encode()).hexdigest(), 16) % 3 == 0


def held_out(groups: Sequence[object] | pd.Series, seed: int) -> np.ndarray:
    """Draw a quarter of the rows of each group at random, and return a mask of these rows.

    A group with n rows gives n // 4 rows, so each class has rows to train on.

    Args:
        groups: Group of each row: its class, or one value for all rows of a regression.
        seed: Seed of the draw.
    """
    order = np.random.RandomState(seed).permutation(len(groups))
    shuffled = pd.Series(np.asarray(groups)[order])
    place = shuffled.groupby(shuffled, dropna=False).cumcount().to_numpy()
    mask = np.zeros(len(order), dtype=bool)
    mask[order] = place % PARTS == PARTS - 1
    return mask


def latest(times: Sequence[float] | pd.Series) -> np.ndarray:
    """Return a mask of the last quarter of the rows in the order of time."""
    order = np.argsort(np.asarray(times), kind="stable")
    mask = np.zeros(len(order), dtype=bool)
    mask[order[len(order) - len(order) // PARTS :]] = True
    return mask
