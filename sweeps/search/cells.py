"""Which cell of the grid comes next: pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sweeps.core.resources import Shape, shape_of

if TYPE_CHECKING:
    from sweeps.space import Dimension, Space

Cell = Mapping[str, Any]


def key_of(cell: Cell) -> str:
    """A cell as text, to count trials by."""
    return json.dumps(cell, sort_keys=True, default=str)


def cell_of(values: Mapping[str, Any], cells: Sequence[Cell]) -> int | None:
    """The index of the cell that a trial's parameters lie in; the most specific where grids are nested."""
    matching = [i for i, cell in enumerate(cells) if all(k in values and values[k] == v for k, v in cell.items())]
    return max(matching, key=lambda i: len(cells[i])) if matching else None


def next_cell(cells: Sequence[Cell], counts: Sequence[int], fixed: Mapping[str, Any] | None = None) -> int:
    """The index of the cell to visit next, so that at any time no cell is more than one trial ahead of another.

    Within a round, cells of equal scaling come one after another, and every other round runs backwards: so a gang of
    a shape is started about once a round, not once a trial.

    Args:
        cells: all of them; at least one.
        counts: trials begun in each.
        fixed: what some dimensions of the trial are; of the cells that have the grids among them, and the same there, if there are any.
    """
    fixed = {name: key for name, key in (fixed or {}).items() if any(name in cell for cell in cells)}
    able = [i for i, cell in enumerate(cells) if all(name in cell and cell[name] == key for name, key in fixed.items())]
    able = able or [i for i, cell in enumerate(cells) if all(name not in cell or cell[name] == key for name, key in fixed.items())]
    able = able or list(range(len(cells)))
    fewest = min(counts[i] for i in able)
    order = sorted(able, key=lambda i: (scaling_key(cells[i]), i))
    if fewest % 2:
        order.reverse()
    return next(i for i in order if counts[i] == fewest)


def scaling_key(cell: Cell) -> str:
    """What of a cell decides the shape of its trials."""
    return json.dumps({k: v for k, v in cell.items() if k == "scaling" or k.startswith("scaling.")}, sort_keys=True, default=str)


def first_shapes(space: Space, count: int) -> list[Shape]:
    """The shapes of the trials that are begun first, as far as the grid decides them.

    Args:
        space: what will be searched.
        count: trials.
    """
    counts, shapes = [0] * len(space.cells), []
    grids = {d.name for d in space.dimensions if d.is_grid}
    for _ in range(count):
        index = next_cell(space.cells, counts)
        counts[index] += 1
        cell = space.cells[index]
        scaling = [d for d in space.dimensions if d.name.split(".")[0] == "scaling"]
        if any(not d.is_grid or any(term.name not in grids for term in d.when) for d in scaling):
            break  # the search has a part in it

        def choose(dimension: Dimension, cell: Cell = cell) -> Any:
            """Its option in the cell; what else there is has no part in the shape."""
            if dimension.name in cell:
                return cell[dimension.name]
            return dimension.options[0].key if dimension.options else 0.5 if dimension.lower is None else dimension.lower

        filled = space.fill(choose)
        shapes.append(shape_of(filled["scaling"], space.trainer.backend))
    return shapes
