"""Count the trials of each grid cell and of each shape."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sweeps.core.resources import Shape
from sweeps.search.cells import Cell, scaling_key
from sweeps.space import Dimension, Option, Space, Step
from sweeps.space.conditions import ABSENT, holds
from sweeps.space.enumeration import shapes_of
from sweeps.space.templates import Chain, Template, dimensions


def visiting_order(cells: Sequence[Cell]) -> Iterator[list[int]]:
    """Yield the order of the cells in the first round, in the second round, and so on, without end.

    `sweeps.search.cells.next_cell` chooses the cells in the same order.
    """
    order = sorted(range(len(cells)), key=lambda i: (scaling_key(cells[i]), i))
    return itertools.cycle((order, order[::-1]))


def trials_per_cell(cells: Sequence[Cell], trials: int) -> list[int]:
    """Return the number of trials of each cell.

    Args:
        cells: The cells of a space.
        trials: Number of trials of all cells together.
    """
    whole, rest = divmod(trials, len(cells))
    counts = [whole] * len(cells)
    for i in next(itertools.islice(visiting_order(cells), whole % 2, None))[:rest]:
        counts[i] += 1
    return counts


def has_conditional_grid(template: Template) -> bool:
    """Return True if a grid is nested in an option of a choice. The grid's cells are visited only when the sampler chooses this option."""
    choices = (dim for dim in dimensions(template) if dim.kind == "choice")
    return any(inner.is_grid for choice in choices for option in choice.options for inner in dimensions(option.value))


def fix_cell(template: Template, cell: Mapping[str, Any], undecided: Collection[str] = ()) -> Template:
    """Replace each grid in a template by the cell's option, and resolve the conditions that depend only on the cell.

    A condition on a sampled dimension of the template itself stays unchanged. A condition on a sampled dimension outside the template
    becomes a choice between the two outcomes of the condition.

    Args:
        template: One section of the space, or several sections.
        cell: Key of the option in the cell, by the name of the grid dimension.
        undecided: Names of the dimensions that are not grids, so that no cell decides their values.
    """
    own = {dim.name for dim in dimensions(template)}

    def pin(at: Template) -> Template:
        if isinstance(at, Dimension):
            if holds(at.when, cell, undecided) is False:
                return pin(at.otherwise)
            if at.name in cell:
                return pin(at.value(cell[at.name]))
            options = tuple(Option(o.key, pin(o.value)) for o in at.options)
            open_terms = [term for term in at.when if term.name not in cell]
            inside = replace(at, options=options, when=tuple(term for term in open_terms if term.name in own))
            if all(term.name in own for term in open_terms):
                return inside
            return Dimension(f"{at.name}?", "choice", (Option(True, inside), Option(False, pin(at.otherwise))))
        if isinstance(at, Chain):
            items = (pin(item) for item in at.items)
            flat = itertools.chain.from_iterable(i.items if isinstance(i, Chain) else (i,) for i in items if i is not ABSENT)
            return Chain(tuple(flat))
        if isinstance(at, Step):
            columns = pin(at.columns)
            return Step(at.name, None if columns is ABSENT else columns, pin(at.params))
        if isinstance(at, dict):
            pinned = {key: pin(value) for key, value in at.items()}
            return {key: value for key, value in pinned.items() if value is not ABSENT}
        if isinstance(at, (list, tuple)):
            return type(at)(value for value in map(pin, at) if value is not ABSENT)
        return at

    return pin(template)


def cell_templates(space: Space, sections: tuple[str, ...], counts: Iterable[int]) -> list[tuple[dict[str, Template], int]]:
    """Return the distinct templates that `fix_cell` returns for some sections over all cells.

    Args:
        space: The search space.
        sections: Names of the sections.
        counts: Number of trials of each cell.

    Returns:
        (template, number of trials) of each distinct template. A template maps the names of the sections to their templates.
    """
    template = {name: space.sections.get(name, ()) for name in sections}
    dims = list(dimensions(template))
    deciding = {dim.name for dim in dims} | {term.name for dim in dims for term in dim.when}
    undecided = {dim.name for dim in space.dimensions if not dim.is_grid}
    trials: Counter[str] = Counter()
    templates: dict[str, Template] = {}
    for cell, count in zip(space.cells, counts, strict=True):
        own = {name: key for name, key in cell.items() if name in deciding}
        name = json.dumps(own, sort_keys=True, default=str)
        trials[name] += count
        if name not in templates:
            templates[name] = fix_cell(template, own, undecided)
    return [(templates[name], trials[name]) for name in templates]


@dataclass(frozen=True)
class ShapeCount:
    """Number of trials of one shape.

    Attributes:
        shape: The shape.
        least, most: Lower and upper bound of the number of trials. The bounds differ only if the sampler influences the scaling, or if the
            number of repeats is unknown.
    """

    shape: Shape
    least: int
    most: int


def count_shapes(space: Space, counts: Sequence[int]) -> tuple[ShapeCount, ...]:
    """Return the number of trials of each shape, without repeats. The shapes are in the order of the space file.

    Args:
        space: The search space.
        counts: Number of trials of each cell.
    """
    trials = sum(counts)
    least, most = dict.fromkeys(space.shapes, 0), dict.fromkeys(space.shapes, 0)
    for template, count in cell_templates(space, ("scaling",), counts):
        shapes = [shape for shape in shapes_of(template["scaling"] or {}, space.trainer.backend) if shape in most]  # some may be impossible
        for shape in shapes:
            most[shape] += count
        if len(shapes) == 1:
            least[shapes[0]] += count
    if len(space.shapes) > 1 and has_conditional_grid(space.sections):
        least, most = dict.fromkeys(space.shapes, 0), dict.fromkeys(space.shapes, trials)
    return tuple(ShapeCount(shape, least[shape], most[shape]) for shape in space.shapes)


def add_repeats(shapes: Sequence[ShapeCount], again: int, ending: int) -> tuple[ShapeCount, ...]:
    """Add the repeats to the number of trials of each shape. A repeat has the same shape as the trial that it repeats.

    Args:
        shapes: Number of trials of each shape, as `count_shapes` returns it.
        again: Number of repeats of each complete trial, a trial that the scheduler does not stop.
        ending: How many trials are complete at least, over all shapes together. If the shapes of these trials are unknown, no repeats are
            added to `least`.
    """
    sure = len(shapes) == 1 or ending >= sum(e.least for e in shapes)  # if False, the shapes of the complete trials are unknown
    return tuple(ShapeCount(e.shape, e.least + again * min(e.least, ending) * sure, e.most * (1 + again)) for e in shapes)
