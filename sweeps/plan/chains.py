"""How many distinct chains of preprocessing will be fitted: each is fitted once, however many trials use it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sweeps.plan.cells import pinnings, uneven
from sweeps.space import Dimension, Space, Step
from sweeps.space.conditions import ABSENT
from sweeps.space.enumeration import ways
from sweeps.space.templates import Template, children, dimensions, fill

# Chains of one cell that are written out to see which are alike; more are only counted.
WRITTEN_OUT = 512


@dataclass(frozen=True)
class Fits:
    """Chains that will be fitted; one without steps is none.

    Attributes:
        least, most: chains; equal where the search has nothing to choose in them.
        continuous: a dimension inside a chain that takes any number, so that each trial may have a chain of its own; None without one.
    """

    least: int
    most: int
    continuous: str | None


def fits(space: Space, counts: Sequence[int]) -> Fits:
    """The chains that the trials of a sweep will have fitted, each once a variant of the data.

    Args:
        space: what is searched.
        counts: trials of each cell.
    """
    known: set[str] = set()
    possible: set[str] = set()
    more, sampled, some = 0.0, 0, False
    for template, trials in pinnings(space, ("data", "preprocessor"), counts):
        number = count(template)
        if number > WRITTEN_OUT:
            more, sampled, some = more + number, sampled + trials, some or not may_be_empty(template["preprocessor"])
            continue
        chains = [(repr(filled["data"]), tuple(filled.get("preprocessor", ()))) for filled in fillings(template)]
        keys = {repr(chain) for chain in chains if chain[1]}
        possible |= keys
        if len(chains) == 1:
            known |= keys
        else:
            sampled += trials
            some = some or all(chain for _, chain in chains)
    trials = sum(counts)
    if sampled and uneven(space.sections):
        sampled = trials
    most = min(len(possible) + more, len(known) + sampled, trials)
    both = (space.sections.get("data"), space.sections.get("preprocessor"))
    free = next((d.name for d in dimensions(both) if not d.options and values(d) is None), None)
    return Fits(max(len(known), 1 if some else 0), int(most), free)


def variants(space: Space) -> int | None:
    """The variants of the data that trials can have; None where a part of the rows is any number."""
    data = space.sections.get("data", {})
    if any(not dim.options and values(dim) is None for dim in dimensions(data)):
        return None
    names = [dim.name for dim in dimensions(data)]
    return len({repr(filled["data"]) for filled in ways({"data": data}, names)}) if names else 1


def may_be_empty(template: Template) -> bool:
    """Whether a chain can come out without a step."""
    if template is ABSENT:
        return True
    if isinstance(template, Dimension):
        return any(may_be_empty(option.value) for option in template.options) or (bool(template.when) and may_be_empty(template.otherwise))
    return not isinstance(template, Step) and all(map(may_be_empty, children(template)))


def values(dim: Dimension) -> Sequence[Any] | None:
    """The keys of every value that a dimension takes; None where it takes any number between bounds."""
    if dim.options:
        return [option.key for option in dim.options]
    if dim.lower is None or dim.highest is None:
        return None
    if dim.is_integer:
        return range(int(dim.lower), int(dim.highest) + 1, int(dim.q or 1))
    if dim.q is None:
        return None
    steps = range(min(round((dim.highest - dim.lower) / dim.q) + 1, 2**31))
    return [dim.lower + i * dim.q for i in steps] if len(steps) <= WRITTEN_OUT else steps


def count(template: Template) -> float:
    """How many ways there are to fill a template, where conditions hold or not; infinitely many where a number is free."""
    if not isinstance(template, Dimension):
        return math.prod(map(count, children(template)))
    other = count(template.otherwise) if template.when else 0
    if template.options:
        return sum(count(option.value) for option in template.options) + other
    keys = values(template)
    return math.inf if keys is None else len(keys) + other


def fillings(template: Template) -> Iterator[Any]:
    """Every way to fill a template that has finitely many."""
    todo: list[tuple[int, ...]] = [()]
    while todo:
        way = todo.pop()
        taken: list[int] = []

        def choose(dim: Dimension, way: tuple[int, ...] = way, taken: list[int] = taken) -> Any:
            keys = values(dim)
            assert keys is not None
            if len(taken) < len(way):
                taken.append(way[len(taken)])
            else:  # the first time this way comes here: the other options are ways of their own
                todo.extend((*taken, i) for i in range(1, len(keys)))
                taken.append(0)
            return keys[taken[-1]]

        yield fill(template, choose)
