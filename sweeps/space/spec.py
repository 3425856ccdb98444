"""The Space: what a valid file says, and the pure walks over what it tunes: filling, cells, shapes."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sweeps.resources import Shape, shape_of
from sweeps.space.domains import BRANCHING, Dimension
from sweeps.space.keys import DataSpec, Limits, Objective, Scheduler, Search, TrainerSpec
from sweeps.space.steps import Step

MAX_CELLS = 100_000
MAX_SHAPES = 10_000


@dataclass(frozen=True)
class Chain:
    """A chain of steps as a template; a dimension in it stands for the steps of its chosen option."""

    items: tuple[Step | Dimension, ...] = ()


# A template is a value that may hold dimensions: a scalar, a list, a tuple, a dict, a Chain or a Dimension itself.
Template = Any


@dataclass(frozen=True)
class Space:
    """A validated space file.

    Attributes:
        name: of the sweep; made of letters, digits, `.`, `_` and `-`.
        path: the file, absolute.
        text: the file as read, before the overrides.
        overrides: `key.path=YAML value`, applied in order.
        trainer: what trains.
        data: what it trains on.
        objective: what is optimised.
        search: how it is searched.
        scheduler: what stops a trial early.
        limits: what may be spent.
        sections: the templates of `params`, `preprocessor` and `scaling`, in the order of the file.
        dimensions: all of them in the order of the file, nested ones after the one they stand in.
        cells: every combination of the grids: name -> key of an option; `({},)` without a grid. A grid inside an option of another
            grid is there only together with that option; one inside an option of a choice is always there, as which option is
            chosen is not known yet, and unused where another is.
        shapes: every distinct shape that a trial can have.
        places: where everything in the file stands, by dotted path; see `place`.
    """

    name: str
    path: Path
    text: str
    overrides: tuple[str, ...]
    trainer: TrainerSpec
    data: DataSpec
    objective: Objective
    search: Search
    scheduler: Scheduler
    limits: Limits
    sections: dict[str, Template]
    dimensions: tuple[Dimension, ...]
    cells: tuple[dict[str, Any], ...]
    shapes: tuple[Shape, ...]
    places: dict[str, str] = field(default_factory=dict, compare=False, repr=False)

    def place(self, key: str) -> str:
        """Where a key of the file stands, as `file:line:column` or `--set ...`; of an absent one, what is nearest around it.

        Args:
            key: a dotted path, such as `data.label`, `scaling.num_workers` or `params.eta`; `space.` before it may be left out.
        """
        for path in (key.removeprefix("space."), key):
            while path:
                if path in self.places:
                    return self.places[path]
                path = path.rpartition(".")[0]
        return self.places.get("", str(self.path))

    def fill(self, choose: Callable[[Dimension], Any]) -> dict[str, Any]:
        """One configuration, define-by-run: every dimension that is met is asked for, in the order of the file.

        Args:
            choose: the key of a dimension's value, see `Dimension.value`. A dimension inside an option is asked for only if
                that option was chosen.

        Returns:
            `{"params": dict, "preprocessor": tuple of Step, "scaling": dict}`, free of dimensions and shared with nobody.

        Raises:
            ValueError: `choose` answered what is no option of the dimension.
        """
        filled = {name: fill(template, choose) for name, template in self.sections.items()}
        return {"params": filled.get("params", {}), "preprocessor": filled.get("preprocessor", ()), "scaling": filled.get("scaling", {})}


def fill(template: Template, choose: Callable[[Dimension], Any]) -> Any:
    """A template with a value in place of every dimension; see `Space.fill`."""
    if isinstance(template, Dimension):
        return fill(template.value(choose(template)), choose)
    if isinstance(template, Chain):
        steps: list[Step] = []
        for item in template.items:
            steps.extend((_fill_step(item, choose),) if isinstance(item, Step) else fill(item, choose))
        return tuple(steps)
    if isinstance(template, dict):
        return {key: fill(value, choose) for key, value in template.items()}
    if isinstance(template, (list, tuple)):
        return type(template)(fill(value, choose) for value in template)
    return template


def _fill_step(step: Step, choose: Callable[[Dimension], Any]) -> Step:
    return Step(step.name, fill(step.columns, choose), fill(step.params, choose))


def children(template: Template) -> Iterable[Template]:
    """What stands directly inside a template that is no dimension."""
    if isinstance(template, Chain):
        return template.items
    if isinstance(template, Step):
        return (template.columns, template.params)
    if isinstance(template, dict):
        return template.values()
    return template if isinstance(template, (list, tuple)) else ()


def references(space: Space) -> list[str]:
    """Every `module:attr` that a space names, without repeats: the trainer's, the data's, the steps'."""
    from sweeps import refs

    sources = [space.data.train, *(s.path for s in (space.data.valid, space.data.test) if s is not None)]
    found = [space.trainer.loop, space.trainer.load, *sources]

    def walk(template: Template) -> None:
        if isinstance(template, Step):
            found.append(template.name)
        inside = [option.value for option in template.options] if isinstance(template, Dimension) else children(template)
        for child in inside:
            walk(child)

    walk(space.sections.get("preprocessor", ()))
    named = []
    for name in found:
        with contextlib.suppress(refs.RefError):
            refs.parse(name or "")
            named.append(str(name))
    return list(dict.fromkeys(named))


def count_cells(template: Template) -> int:
    """How many cells `cells_of` would make."""
    if isinstance(template, Dimension):
        counts = [count_cells(option.value) for option in template.options]
        return sum(counts) if template.is_grid else math.prod(counts)
    return math.prod(count_cells(child) for child in children(template))


def cells_of(template: Template) -> Iterator[dict[str, Any]]:
    """Every combination of the grids in a template; see `Space.cells`."""
    if isinstance(template, Dimension) and template.is_grid:
        for option in template.options:
            for rest in cells_of(option.value):
                yield {template.name: option.key, **rest}
        return
    inside = [option.value for option in template.options] if isinstance(template, Dimension) else children(template)
    for parts in itertools.product(*map(list, map(cells_of, inside))):
        yield {name: key for part in parts for name, key in part.items()}


def count_variants(template: Template) -> int:
    """How many values `variants` would make; its dimensions are grids, choices and ranges of integers."""
    if isinstance(template, Dimension):
        if template.kind in BRANCHING:
            return sum(count_variants(option.value) for option in template.options)
        return len(_integers(template))
    return math.prod(count_variants(child) for child in children(template))


def variants(template: Template) -> Iterator[Any]:
    """Every value that a template of scaling can be filled to."""
    if isinstance(template, Dimension):
        if template.kind in BRANCHING:
            for option in template.options:
                yield from variants(option.value)
        else:
            yield from _integers(template)
    elif isinstance(template, dict):
        for values in itertools.product(*(list(variants(value)) for value in template.values())):
            yield dict(zip(template, values, strict=True))
    else:
        yield template


def _integers(dim: Dimension) -> range:
    assert isinstance(dim.lower, int) and isinstance(dim.highest, int)
    return range(dim.lower, dim.highest + 1, int(dim.q or 1))


def shapes_of(scaling: Template, backend: str) -> tuple[Shape, ...]:
    """Every distinct shape that a scaling section can make, in the order of the file."""
    return tuple(dict.fromkeys(shape_of(filled, backend) for filled in variants(scaling)))


def known_chains(space: Space) -> list[tuple[Step, ...]]:
    """The distinct chains that are known before a trial is sampled: constant ones and those of the grid."""

    class Unknown(Exception):
        pass

    chains = {}
    for cell in space.cells:

        def choose(dimension: Any, cell: dict[str, Any] = cell) -> Any:
            if dimension.name in cell:
                return cell[dimension.name]
            if dimension.name.split(".")[0] == "preprocessor":
                raise Unknown
            if dimension.options:
                return dimension.options[0].key
            return 0.5 if dimension.lower is None else dimension.lower

        with contextlib.suppress(Unknown):
            chain = tuple(space.fill(choose)["preprocessor"])
            chains[repr(chain)] = chain
    return list(chains.values())
