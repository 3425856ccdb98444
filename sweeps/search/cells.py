"""Choose the next grid cell. A cell is one combination of grid values. Pure functions, no I/O."""

import json
from collections.abc import Mapping, Sequence

from sweeps.core.resources import Shape, shape_of
from sweeps.space import Space
from sweeps.space.model.conditions import Key
from sweeps.space.model.enumeration import any_key
from sweeps.space.sections.trainer_spec import backends_of

Cell = Mapping[str, Key]


def cell_of(values: Mapping[str, Key], cells: Sequence[Cell]) -> int | None:
    """Return the index of the cell that a trial belongs to.

    Args:
        values: Key of the trial's option in each grid dimension, by the name of the dimension.
            Other entries are ignored.
        cells: All cells of the space.

    Returns:
        The index of the cell in `cells`, or None if no cell matches. With nested grids, several
        cells can match. Then the index of the cell with the most dimensions is returned.
    """
    matching = [i for i, cell in enumerate(cells) if cell.items() <= values.items()]
    return max(matching, key=lambda i: len(cells[i])) if matching else None


def next_cell(
    cells: Sequence[Cell], counts: Sequence[int], fixed: Mapping[str, Key] | None = None
) -> int:
    """Return the index of the cell for the next trial: the cell with the fewest trials.

    If several cells have the fewest trials, the order of the current round decides. One round
    visits every cell once. Within a round, cells with equal values of the `scaling` section are
    adjacent, and every second round runs backwards. Most consecutive trials therefore have the same
    scaling, and can run on the same workers.

    Args:
        cells: All cells of the space, at least one.
        counts: Number of trials that started in each cell.
        fixed: Values of the trial that are already known, by dimension; None if no value is known.
            Only cells that contain all these values are considered. If no cell contains them all,
            all cells that do not contradict these values are considered. If every cell contradicts
            these values, all cells are considered.
    """
    grids = set().union(*cells)
    fixed = {name: key for name, key in (fixed or {}).items() if name in grids}
    allowed = [i for i, cell in enumerate(cells) if fixed.items() <= cell.items()]
    if not allowed:
        # A cell may lack a fixed dimension, but it must not have another value of the dimension.
        allowed = [
            i
            for i, cell in enumerate(cells)
            if all(cell.get(name, key) == key for name, key in fixed.items())
        ]
    if not allowed:
        allowed = list(range(len(cells)))
    fewest = min(counts[i] for i in allowed)
    order = sorted(allowed, key=lambda i: (scaling_key(cells[i]), i))
    if fewest % 2:  # every second round
        order.reverse()
    return next(i for i in order if counts[i] == fewest)


def scaling_key(cell: Cell) -> str:
    """Return the cell's values of the `scaling` section as JSON text.

    Cells with equal texts can use the same workers.
    """
    return json.dumps(
        {name: key for name, key in cell.items() if name.split(".")[0] == "scaling"},
        sort_keys=True,
        default=str,
    )


def first_shapes(space: Space, count: int) -> list[Shape]:
    """Return the shapes of the first trials if they follow from the grid alone.

    A shape is a number of workers and the resources of each worker.

    Args:
        space: The search space.
        count: Number of trials.

    Returns:
        One shape for each trial, in the order in which the trials start. [] if the sampler chooses
        a part of the `scaling` section, or one of several backends.
    """
    grids = {d.name for d in space.dimensions if d.is_grid}
    scaling = [d for d in space.dimensions if d.name.split(".")[0] == "scaling"]
    deciding = {d.name for d in scaling} | {term.name for d in scaling for term in d.when}
    if len({*backends_of(space.trainers).values()}) > 1:
        deciding.add("trainer")
    if not deciding <= grids:
        return []
    counts = [0] * len(space.cells)
    shapes = []
    for _ in range(count):
        index = next_cell(space.cells, counts)
        counts[index] += 1
        shapes.append(_shape_in(space.cells[index], space))
    return shapes


def _shape_in(cell: Cell, space: Space) -> Shape:
    """Return the shape of the trials in a cell, in a space whose `scaling` follows from the cell.

    Dimensions that are not grids do not affect the shape, so they get any valid key.
    """
    values = {dim.name: cell.get(dim.name, any_key(dim)) for dim in space.dimensions}
    filled = space.fill(lambda dimension: values[dimension.name])
    return shape_of(filled["scaling"], space.trainer_of(values).backend)
