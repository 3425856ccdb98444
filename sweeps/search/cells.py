"""Which cell of the grid comes next: pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

Cell = Mapping[str, Any]


def key_of(cell: Cell) -> str:
    """A cell as text, to count trials by."""
    return json.dumps(cell, sort_keys=True, default=str)


def cell_of(values: Mapping[str, Any], cells: Sequence[Cell]) -> int | None:
    """The index of the cell that a trial's parameters lie in; the most specific where grids are nested."""
    matching = [i for i, cell in enumerate(cells) if all(k in values and values[k] == v for k, v in cell.items())]
    return max(matching, key=lambda i: len(cells[i])) if matching else None


def next_cell(cells: Sequence[Cell], counts: Sequence[int]) -> int:
    """The index of the cell to visit next, so that at any time no cell is more than one trial ahead of another.

    Within a round, cells of equal scaling come one after another, and every other round runs backwards: so a gang of
    a shape is started about once a round, not once a trial.

    Args:
        cells: all of them; at least one.
        counts: trials begun in each.
    """
    fewest = min(counts)
    order = sorted(range(len(cells)), key=lambda i: (scaling_key(cells[i]), i))
    if fewest % 2:
        order.reverse()
    return next(i for i in order if counts[i] == fewest)


def scaling_key(cell: Cell) -> str:
    """What of a cell decides the shape of its trials."""
    return json.dumps({k: v for k, v in cell.items() if k == "scaling" or k.startswith("scaling.")}, sort_keys=True, default=str)
