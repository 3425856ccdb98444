"""Count the trials of each grid cell and of each shape.

A shape is a number of workers and the resources of each worker.
"""

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
    """Yield the order in which the first round of trials visits the cells, then the order of the second round, and so on, without end.

    A round has one trial in each cell. An order is a list of indices into `cells`.
    `sweeps.search.cells.next_cell` chooses the cells in the same order.
    """
    order = sorted(range(len(cells)), key=lambda i: (scaling_key(cells[i]), i))
    return itertools.cycle((order, order[::-1]))


def trials_per_cell(cells: Sequence[Cell], trials: int) -> list[int]:
    """Return how many trials each cell gets if the sweep visits the cells in `visiting_order`.

    Args:
        cells: All cells of a space.
        trials: Number of trials in all cells together.
    """
    whole, rest = divmod(trials, len(cells))
    counts = [whole] * len(cells)
    for i in next(itertools.islice(visiting_order(cells), whole % 2, None))[:rest]:
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


def fix_cell(
    template: Template, cell: Mapping[str, Any], undecided: Collection[str] = ()
) -> Template:
    """Replace each grid in a template by the option that the cell has for this grid, and resolve conditions that depend only on the cell.

    A condition on a sampled dimension inside the template stays unchanged. A condition on a sampled
    dimension outside the template becomes a `choice` between the two outcomes of the condition.

    Args:
        template: One or several sections of the space, with dimensions in them (see
            `sweeps.space.templates`).
        cell: For each grid dimension, the key of the option that belongs to the cell.
        undecided: Names of the sampled dimensions, whose values do not follow from the cell.
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
            inside = replace(
                at, options=options, when=tuple(term for term in open_terms if term.name in own)
            )
            if all(term.name in own for term in open_terms):
                return inside
            return Dimension(
                f"{at.name}?", "choice", (Option(True, inside), Option(False, pin(at.otherwise)))
            )
        if isinstance(at, Chain):
            items = (pin(item) for item in at.items)
            flat = itertools.chain.from_iterable(
                i.items if isinstance(i, Chain) else (i,) for i in items if i is not ABSENT
            )
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


def cell_templates(
    space: Space, sections: tuple[str, ...], counts: Iterable[int]
) -> list[tuple[dict[str, Template], int]]:
    """Apply `fix_cell` to some sections of the space for every cell.

    Cells that differ only in other sections are counted together.

    Args:
        space: The search space.
        sections: Names of the sections, such as `("data", "preprocessor")`.
        counts: Number of trials of each cell of `space.cells`.

    Returns:
        (templates, number of trials) for each group of cells that are counted together. `templates`
        maps the name of each section to the section's result of `fix_cell`.
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
        shape: The number of workers of a trial, and the resources of each worker.
        least, most: Lower and upper bound of the number of trials. The bounds differ only if the
            sampler chooses a part of the `scaling` section, or if the number of repeats is unknown.
    """

    shape: Shape
    least: int
    most: int


def count_shapes(space: Space, counts: Sequence[int]) -> tuple[ShapeCount, ...]:
    """Return the number of trials of each shape, without repeats.

    The shapes are in the order of the space file.

    Args:
        space: The search space.
        counts: Number of trials of each cell of `space.cells`.
    """
    trials = sum(counts)
    least, most = dict.fromkeys(space.shapes, 0), dict.fromkeys(space.shapes, 0)
    for template, count in cell_templates(space, ("scaling",), counts):
        shapes = [
            shape
            for shape in shapes_of(template["scaling"] or {}, space.trainer.backend)
            if shape in most
        ]  # some may be impossible
        for shape in shapes:
            most[shape] += count
        if len(shapes) == 1:
            least[shapes[0]] += count
    if len(space.shapes) > 1 and has_conditional_grid(space.sections):
        least, most = dict.fromkeys(space.shapes, 0), dict.fromkeys(space.shapes, trials)
    return tuple(ShapeCount(shape, least[shape], most[shape]) for shape in space.shapes)


def add_repeats(
    shapes: Sequence[ShapeCount], repeats: int, min_complete: int
) -> tuple[ShapeCount, ...]:
    """Add the repeats to the number of trials of each shape.

    A repeat has the same shape as the trial that it repeats.

    Args:
        shapes: Number of trials of each shape, as `count_shapes` returns it.
        repeats: Number of repeats of each complete trial. A trial is complete if the scheduler does
            not stop it.
        min_complete: Lower bound of the number of complete trials, over all shapes together. If it
            is unknown which shapes these trials have, no repeats are added to `least`.
    """
    sure = len(shapes) == 1 or min_complete >= sum(
        e.least for e in shapes
    )  # if False, the shapes of the complete trials are unknown
    return tuple(
        ShapeCount(
            e.shape, e.least + repeats * min(e.least, min_complete) * sure, e.most * (1 + repeats)
        )
        for e in shapes
    )
