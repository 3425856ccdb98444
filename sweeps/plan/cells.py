"""How often each cell of the grid is visited, and the shapes of its trials."""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sweeps.core.resources import Shape
from sweeps.search.cells import Cell, scaling_key
from sweeps.space import Dimension, Option, Space, Step
from sweeps.space.conditions import ABSENT, holds
from sweeps.space.enumeration import shapes_of
from sweeps.space.templates import Chain, Template, children, dimensions


def rounds(cells: Sequence[Cell]) -> Iterator[list[int]]:
    """The cells in the order in which they are visited, round by round: what `sweeps.search.cells.next_cell` does, all at once."""
    order = sorted(range(len(cells)), key=lambda i: (scaling_key(cells[i]), i))
    return itertools.cycle((order, order[::-1]))


def visits(cells: Sequence[Cell], trials: int) -> list[int]:
    """How many of the trials each cell gets."""
    whole, rest = divmod(trials, len(cells))
    counts = [whole] * len(cells)
    for i in next(itertools.islice(rounds(cells), whole % 2, None))[:rest]:
        counts[i] += 1
    return counts


def uneven(template: Template) -> bool:
    """Whether a grid stands inside an option of a choice: it is visited only where the search takes that option."""
    if isinstance(template, Dimension):
        if template.kind == "choice" and any(_has_grid(option.value) for option in template.options):
            return True
        return any(uneven(option.value) for option in template.options)
    return any(map(uneven, children(template)))


def _has_grid(template: Template) -> bool:
    if isinstance(template, Dimension):
        return template.is_grid or any(_has_grid(option.value) for option in template.options)
    return any(map(_has_grid, children(template)))


def pinned(template: Template, cell: Mapping[str, Any], open_: Collection[str] = ()) -> Template:
    """The template with the cell's options in place of the grids, and with what the cell leaves open in place of conditions.

    A condition on what is decided inside the template stays; one on what is decided elsewhere, by the search, becomes a choice between
    there and not there.

    Args:
        template: of one section or of several.
        cell: name -> key.
        open_: the names of the dimensions that no cell decides.
    """
    own = {dim.name for dim in dimensions(template)}

    def pin(at: Template) -> Template:
        if isinstance(at, Dimension):
            there = holds(at.when, cell, open_)
            if there is False:
                return pin(at.otherwise)
            if at.name in cell:
                return pin(at.value(cell[at.name]))
            options = tuple(Option(o.key, pin(o.value)) for o in at.options)
            asked = [term for term in at.when if term.name not in cell]
            inside = replace(at, options=options, when=tuple(term for term in asked if term.name in own))
            if all(term.name in own for term in asked):
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
            return {key: value for key, value in ((key, pin(value)) for key, value in at.items()) if value is not ABSENT}
        if isinstance(at, (list, tuple)):
            return type(at)(value for value in map(pin, at) if value is not ABSENT)
        return at

    return pin(template)


def pinnings(space: Space, section: str | tuple[str, ...], counts: Iterable[int]) -> list[tuple[Template, int]]:
    """The distinct templates that the cells make of a section, or of several together, each with the number of its trials."""
    found_of = space.sections.get
    template = found_of(section, {}) if isinstance(section, str) else {name: found_of(name, ()) for name in section}
    mine = list(dimensions(template))
    deciding = {dim.name for dim in mine} | {term.name for dim in mine for term in dim.when}
    open_ = {dim.name for dim in space.dimensions if not dim.is_grid}
    found: dict[str, tuple[Template, int]] = {}
    for cell, count in zip(space.cells, counts, strict=True):
        own = {name: key for name, key in cell.items() if name in deciding}
        name = json.dumps(own, sort_keys=True, default=str)
        before = found.get(name)
        found[name] = (before[0], before[1] + count) if before else (pinned(template, own, open_), count)
    return list(found.values())


@dataclass(frozen=True)
class Expected:
    """How many trials of a shape there will be.

    Attributes:
        shape: the shape.
        least, most: trials; equal unless the search chooses the scaling.
    """

    shape: Shape
    least: int
    most: int


def expected(space: Space, counts: Sequence[int]) -> tuple[Expected, ...]:
    """Every shape of the space, in the order of the file, with its trials."""
    trials = sum(counts)
    least, most = dict.fromkeys(space.shapes, 0), dict.fromkeys(space.shapes, 0)
    for template, count in pinnings(space, "scaling", counts):
        shapes = [shape for shape in shapes_of(template, space.trainer.backend) if shape in most]  # a condition may rule some out
        for shape in shapes:
            most[shape] += count
        if len(shapes) == 1:
            least[shapes[0]] += count
    if len(space.shapes) > 1 and uneven(space.sections):
        least, most = dict.fromkeys(space.shapes, 0), dict.fromkeys(space.shapes, trials)
    return tuple(Expected(shape, least[shape], most[shape]) for shape in space.shapes)


def repeated(shapes: Sequence[Expected], again: int, ending: int) -> tuple[Expected, ...]:
    """The same with repeats, which run on the shape of what they repeat.

    Args:
        shapes: see `expected`.
        again: repeats of each trial that comes to its end.
        ending: trials that do, of all shapes together, at least.
    """
    sure = len(shapes) == 1 or ending >= sum(e.least for e in shapes)  # of several shapes nobody knows which else
    return tuple(Expected(e.shape, e.least + again * min(e.least, ending) * sure, e.most * (1 + again)) for e in shapes)
