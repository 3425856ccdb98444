"""Count the trials of each grid cell and shape, the preprocessing chains, and the data variants.

A shape is a number of workers and the resources of each worker. Trials with the same chain and the
same data variant share one fitted chain. A data variant is one combination of the values in the
`data` section.
"""

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sweeps.core.resources import Shape
from sweeps.search.cells import Cell, scaling_key
from sweeps.space import Dimension, Space, Step
from sweeps.space.model.conditions import ABSENT, Key
from sweeps.space.model.enumeration import assignments, shape_assignments
from sweeps.space.model.templates import Template, dimensions, walk

# The largest number of combinations of values that are listed.
MAX_ENUMERATED = 512


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


def count_shapes(space: Space, counts: Sequence[int]) -> dict[Shape, int]:
    """Return the largest possible number of trials of each shape, in the order of the space file.

    The backends of the shapes are left out.

    Args:
        space: The search space.
        counts: Number of trials of each cell of `space.cells`.
    """
    shapes = dict.fromkeys(replace(shape, backend="none") for shape in space.shapes)
    if has_conditional_grid(space.sections):
        return dict.fromkeys(shapes, sum(counts))
    # (shape, values of the dimensions) pairs
    pairs = list(shape_assignments(space.sections, {}))
    # The shape depends on the grids that have several values in these pairs.
    deciding_grids = []
    for dim in space.dimensions:
        different = {repr(values.get(dim.name, ABSENT)) for _, values in pairs}
        if dim.is_grid and len(different) > 1:
            deciding_grids.append(dim.name)

    def grid_values(values: Mapping[str, Key]) -> str:
        return repr([values.get(name, ABSENT) for name in deciding_grids])

    possible_shapes: dict[str, set[Shape]] = defaultdict(set)
    for shape, values in pairs:
        possible_shapes[grid_values(values)].add(shape)
    trials = dict.fromkeys(shapes, 0)
    for cell, count in zip(space.cells, counts, strict=True):
        for shape in possible_shapes[grid_values(cell)]:
            trials[shape] += count
    return trials


@dataclass(frozen=True)
class FitCount:
    """Number of preprocessing chains to fit. Chains without steps are not counted.

    Attributes:
        most: The largest possible number of chains.
        exact: True if no part of a chain is sampled. The number of chains is then `most`.
    """

    most: int
    exact: bool


def count_fits(space: Space, counts: Sequence[int]) -> FitCount:
    """Count the chains to fit in a sweep.

    A chain that is used with several data variants is counted once for each of these variants.

    Args:
        space: The search space.
        counts: Number of trials of each cell of `space.cells`.
    """
    chain = space.sections.get("preprocessor")
    trials = sum(counts)
    if not any(isinstance(part, Step) for part in walk(chain)):
        return FitCount(0, exact=True)
    dims = [*dimensions(space.sections.get("data")), *dimensions(chain)]
    listed = _combinations(space, dims)
    if listed is None:
        return FitCount(trials, exact=False)
    chains = {
        repr((sections.get("data"), sections["preprocessor"]))
        for sections in listed
        if sections["preprocessor"]
    }
    # The dimensions of a chain, and those on which it depends that one of them is active
    deciding = {dim.name for dim in dims} | {term.name for dim in dims for term in dim.when}
    exact = all(dim.is_grid or dim.size == 1 for dim in space.dimensions if dim.name in deciding)
    return FitCount(min(len(chains), trials), exact)


def count_variants(space: Space) -> int | None:
    """Return how many different `data` sections trials may have; None if there are very many."""
    listed = _combinations(space, list(dimensions(space.sections.get("data"))))
    return None if listed is None else len({repr(sections.get("data")) for sections in listed})


def _combinations(space: Space, dims: Sequence[Dimension]) -> list[dict[str, Any]] | None:
    """Return the sections of the space for each combination of the values of some dimensions.

    Return None if one of the dimensions is continuous, or if there are too many combinations.
    """
    if any(dim.size > MAX_ENUMERATED for dim in dims):
        return None
    pairs = assignments(space.sections, [dim.name for dim in dims])
    listed = [filled for filled, _ in itertools.islice(pairs, MAX_ENUMERATED + 1)]
    return None if len(listed) > MAX_ENUMERATED else listed
