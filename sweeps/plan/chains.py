"""Count the distinct preprocessing chains of a sweep.

Trials with the same chain and the same data variant share one fitted chain.

A data variant is one combination of the values in the `data` section. A template is a part of the
space file in which some values are still dimensions; see `sweeps.space.templates`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sweeps.plan.cells import cell_templates, has_conditional_grid
from sweeps.space import Dimension, Space, Step
from sweeps.space.conditions import ABSENT
from sweeps.space.templates import Template, children, dimensions, fill

# If a cell has more chains than this number, the chains are counted without being listed. Equal
# chains may then be counted more than once.
MAX_ENUMERATED = 512


@dataclass(frozen=True)
class FitCount:
    """Number of preprocessing chains to fit. Chains without steps are not counted.

    Attributes:
        least, most: Lower and upper bound of the number of chains. The bounds are equal if no part
            of a chain is sampled.
        continuous: Name of a continuous dimension in the `data` or `preprocessor` section; None if
            there is no such dimension. With such a dimension, each trial may have its own chain.
    """

    least: int
    most: int
    continuous: str | None


def count_fits(space: Space, counts: Sequence[int]) -> FitCount:
    """Count the chains to fit in a sweep.

    A chain that is used with several data variants is counted once for each of these variants.

    Args:
        space: The search space.
        counts: Number of trials of each cell of `space.cells`.
    """
    known: set[str] = set()
    possible: set[str] = set()
    more, sampled, some = 0.0, 0, False
    for template, trials in cell_templates(space, ("data", "preprocessor"), counts):
        number = count_fillings(template)
        if number > MAX_ENUMERATED:
            more, sampled, some = (
                more + number,
                sampled + trials,
                some or not can_be_empty(template["preprocessor"]),
            )
            continue
        chains = [
            (repr(filled["data"]), tuple(filled.get("preprocessor", ())))
            for filled in fillings(template)
        ]
        keys = {repr(chain) for chain in chains if chain[1]}
        possible |= keys
        if len(chains) == 1:
            known |= keys
        else:
            sampled += trials
            some = some or all(chain for _, chain in chains)
    trials = sum(counts)
    if sampled and has_conditional_grid(space.sections):
        sampled = trials
    most = min(len(possible) + more, len(known) + sampled, trials)
    both = (space.sections.get("data"), space.sections.get("preprocessor"))
    free = next((d.name for d in dimensions(both) if not d.options and values_of(d) is None), None)
    return FitCount(max(len(known), 1 if some else 0), int(most), free)


def count_variants(space: Space) -> int | None:
    """Return how many different `data` sections trials may have; None if `data.rows` is continuous."""
    data = space.sections.get("data", {})
    if any(not dim.options and values_of(dim) is None for dim in dimensions(data)):
        return None
    return len({repr(filled) for filled in fillings(data)})


def can_be_empty(template: Template) -> bool:
    """Return True if one of the chains that a template describes has no steps."""
    if template is ABSENT:
        return True
    if isinstance(template, Dimension):
        return any(can_be_empty(option.value) for option in template.options) or (
            bool(template.when) and can_be_empty(template.otherwise)
        )
    return not isinstance(template, Step) and all(map(can_be_empty, children(template)))


def values_of(dim: Dimension) -> Sequence[Any] | None:
    """Return all values of a dimension; None if the dimension is continuous.

    An option is represented by its key.

    For a float dimension with a step `q` and more than `MAX_ENUMERATED` values, return the indices
    of the values: 0, 1, 2 and so on.
    """
    if dim.options:
        return [option.key for option in dim.options]
    if dim.lower is None or dim.highest is None:
        return None
    if dim.is_integer:
        return range(int(dim.lower), int(dim.highest) + 1, int(dim.q or 1))
    if dim.q is None:
        return None
    steps = range(min(round((dim.highest - dim.lower) / dim.q) + 1, 2**31))
    return [dim.lower + i * dim.q for i in steps] if len(steps) <= MAX_ENUMERATED else steps


def count_fillings(template: Template) -> float:
    """Return an upper bound of the number of results that `fillings` yields: each condition is counted both as true and as false.

    Return infinity if the template has a continuous dimension.
    """
    if not isinstance(template, Dimension):
        return math.prod(map(count_fillings, children(template)))
    other = count_fillings(template.otherwise) if template.when else 0
    if template.options:
        return sum(count_fillings(option.value) for option in template.options) + other
    keys = values_of(template)
    return math.inf if keys is None else len(keys) + other


def fillings(template: Template) -> Iterator[Any]:
    """Replace the dimensions of a template by values in every possible way, and yield each result.

    The template must not have continuous dimensions.
    """
    todo: list[tuple[int, ...]] = [()]
    while todo:
        way = todo.pop()
        taken: list[int] = []

        def choose(dim: Dimension, way: tuple[int, ...] = way, taken: list[int] = taken) -> Any:
            keys = values_of(dim)
            assert keys is not None
            if len(taken) < len(way):
                taken.append(way[len(taken)])
            else:  # first visit of this dimension: continue with option 0, and queue the others
                todo.extend((*taken, i) for i in range(1, len(keys)))
                taken.append(0)
            return keys[taken[-1]]

        yield fill(template, choose)
