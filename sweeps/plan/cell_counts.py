"""Count the trials of each grid cell and of each shape.

A shape is a number of workers and the resources of each worker.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sweeps.core.resources import Shape
from sweeps.search.cells import Cell, scaling_key
from sweeps.space import Space
from sweeps.space.model.conditions import ABSENT, Key
from sweeps.space.model.enumeration import shape_assignments
from sweeps.space.model.templates import Template, dimensions


def trials_per_cell(cells: Sequence[Cell], trials: int) -> list[int]:
    """Return how many trials each cell gets. `sweeps.search.cells.next_cell` chooses the cells.

    A round has one trial in each cell. Every other round visits the cells in reverse order.

    Args:
        cells: All cells of a space.
        trials: Number of trials in all cells together.
    """
    rounds, rest = divmod(trials, len(cells))
    counts = [rounds] * len(cells)
    order = sorted(range(len(cells)), key=lambda i: (scaling_key(cells[i]), i))
    if rounds % 2:
        order.reverse()
    for i in order[:rest]:
        counts[i] += 1
    return counts


def has_conditional_grid(template: Template) -> bool:
    """Return True if a grid is nested in an option of a choice.

    The grid's cells are visited only when the sampler chooses this option.
    """
    choices = (dim for dim in dimensions(template) if dim.kind == "choice")
    return any(
        inner.is_grid
        for choice in choices
        for option in choice.options
        for inner in dimensions(option.value)
    )


@dataclass(frozen=True)
class ShapeCount:
    """Number of trials of one shape.

    Attributes:
        shape: The number of workers of a trial, and the resources of each worker.
        trials: The largest possible number of trials.
    """

    shape: Shape
    trials: int


def count_shapes(space: Space, counts: Sequence[int]) -> tuple[ShapeCount, ...]:
    """Return the number of trials of each shape, without repeats, in the order of the space file.

    Args:
        space: The search space.
        counts: Number of trials of each cell of `space.cells`.
    """
    if has_conditional_grid(space.sections):
        return tuple(ShapeCount(shape, sum(counts)) for shape in space.shapes)
    pairs = list(shape_assignments(space.sections, space.trainer.backend))
    grids = [dim.name for dim in space.dimensions if dim.is_grid]
    # the grids on which the shape depends
    deciding = [
        name for name in grids if len({repr(values.get(name, ABSENT)) for _, values in pairs}) > 1
    ]

    def key(cell: Mapping[str, Key]) -> str:
        return repr([cell.get(name, ABSENT) for name in deciding])

    shapes: dict[str, set[Shape]] = defaultdict(set)
    for shape, values in pairs:
        shapes[key(values)].add(shape)
    trials = dict.fromkeys(space.shapes, 0)
    for cell, count in zip(space.cells, counts, strict=True):
        for shape in shapes[key(cell)]:
            trials[shape] += count
    return tuple(ShapeCount(shape, number) for shape, number in trials.items())
