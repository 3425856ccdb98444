"""How often each cell of the grid is visited, and the shapes of its trials."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sweeps.resources import Shape
from sweeps.search.cells import Cell, scaling_key
from sweeps.space import Dimension, Option, Space, Step
from sweeps.space.spec import Chain, Template, children, shapes_of


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


def pinned(template: Template, cell: Mapping[str, Any]) -> Template:
    """The template with the cell's options in place of the grids."""
    if isinstance(template, Dimension):
        if template.name in cell:
            return pinned(template.value(cell[template.name]), cell)
        return replace(template, options=tuple(Option(o.key, pinned(o.value, cell)) for o in template.options))
    if isinstance(template, Chain):
        return Chain(tuple(pinned(item, cell) for item in template.items))
    if isinstance(template, Step):
        return Step(template.name, pinned(template.columns, cell), pinned(template.params, cell))
    if isinstance(template, dict):
        return {key: pinned(value, cell) for key, value in template.items()}
    if isinstance(template, (list, tuple)):
        return type(template)(pinned(value, cell) for value in template)
    return template


def pinnings(space: Space, section: str, counts: Iterable[int]) -> list[tuple[Template, int]]:
    """The distinct templates that the cells make of a section, each with the number of its trials."""
    found: dict[str, tuple[Template, int]] = {}
    for cell, count in zip(space.cells, counts, strict=True):
        own = {name: key for name, key in cell.items() if name.split(".")[0] == section}
        name = json.dumps(own, sort_keys=True, default=str)
        before = found.get(name)
        found[name] = (before[0], before[1] + count) if before else (pinned(space.sections.get(section, {}), own), count)
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
        shapes = shapes_of(template, space.trainer.backend)
        for shape in shapes:
            most[shape] += count
        if len(shapes) == 1:
            least[shapes[0]] += count
    if len(space.shapes) > 1 and uneven(space.sections):
        least, most = dict.fromkeys(space.shapes, 0), dict.fromkeys(space.shapes, trials)
    return tuple(Expected(shape, least[shape], most[shape]) for shape in space.shapes)
