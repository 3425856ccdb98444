"""Tables at the limits: many rows, many columns, many classes, and columns that say nothing.

A tool should make a model of such a table, or say in one line why not. The peak of its memory is
what counts here, beside the score.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

import numpy as np
import pandas as pd

from benchmarks.tables.generated import LABEL, Recipe, table_of

RECIPES = {
    "extreme_rows": Recipe(1_000_000, 17, (4, 12, 60)),
    "extreme_columns": Recipe(500, 2_000),
    "extreme_classes": Recipe(20_000, 16, (6,), shares=(1 / 50,) * 50, signal=4.0),
    "extreme_lone_class": Recipe(4_000, 8, (5,), shares=(0.6, 0.3, 0.1)),
    "extreme_constant": Recipe(3_000, 6, (4,), shares=()),
    "extreme_texts": Recipe(6_000, 0, (2, 5, 20, 200, 3_000), shares=(0.7, 0.3)),
}


def _with_lone_class(table: pd.DataFrame) -> pd.DataFrame:
    """Give the first row a class of its own."""
    table.loc[0, LABEL] = "lone"
    return table


def _with_constant(table: pd.DataFrame) -> pd.DataFrame:
    """Add a column with one value, one without values, and one that numbers the rows."""
    nothing = {"constant": "same", "empty": np.nan, "row": range(len(table))}
    return table.assign(**nothing)[[*nothing, *table.columns]]


CHANGES: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "extreme_lone_class": _with_lone_class,
    "extreme_constant": _with_constant,
}


def generate(name: str) -> pd.DataFrame:
    """Return the table of a name."""
    table = table_of(RECIPES[name], zlib.crc32(name.encode()))
    return CHANGES.get(name, lambda same: same)(table)
