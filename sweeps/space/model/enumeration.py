"""Enumerate grid cells, shapes of trials and combinations of values. Pure functions.

A shape is the workers and resources of a trial.
"""

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from statistics import NormalDist
from typing import Any

from sweeps.core.resources import Shape, shape_of

from .conditions import Key, Term, holds
from .domains import EDGES, Dimension, Keys, cumulative_probability
from .templates import Sections, Template, conditions_of, dimensions, fill

MAX_CELLS = 100_000
MAX_SHAPES = 10_000


# ---- cells


def cells_of(template: Template) -> Iterator[Keys]:
    """Yield every possible combination of the options of the grids in a template.

    See `Space.cells`.
    """
    conditions = conditions_of(template)
    condition_names = {term.name for terms in conditions.values() for term in terms}
    dims = [dim for dim in dimensions(template) if dim.is_grid or dim.name in condition_names]
    # Stack of partial cells. An entry has the number of processed dimensions, the options chosen so
    # far, and the names of the processed dimensions that are sampled, so that a cell does not fix
    # their values.
    stack: list[tuple[int, Keys, frozenset[str]]] = [(0, {}, frozenset())]
    while stack:
        count, cell, undecided = stack.pop()
        if count == len(dims):
            yield cell
            continue
        dim = dims[count]
        longer_cells = [cell]
        if holds(conditions[dim.name], cell, undecided) is not False:
            if dim.is_grid:
                longer_cells = [{**cell, dim.name: option.key} for option in dim.options]
            else:
                undecided |= {dim.name}
        # The last entry is processed first, so the first option comes last.
        stack.extend((count + 1, longer, undecided) for longer in reversed(longer_cells))


# ---- combinations of some dimensions


def assignments(
    sections: Sections, names: Collection[str]
) -> Iterator[tuple[dict[str, Any], Keys]]:
    """Yield each combination of the values of some dimensions.

    All other dimensions have the same values in all combinations.

    Args:
        sections: All sections of a space.
        names: Names of the dimensions that take all their values. If other dimensions decide
            whether one of these is active, they take several values too: a grid or a choice takes
            all its options, and a domain of numbers takes enough values to make each condition true
            once and false once (see `points`).

    Yields:
        The sections with values in place of the dimensions, and the value of each active dimension,
        by name. For a grid or a choice, this is the key of the option.
    """
    dims = {dim.name: dim for dim in dimensions(dict(sections))}
    conditions = conditions_of(dict(sections))
    needed = set(names)
    pending = list(names)
    while pending:
        related = {term.name for term in conditions[pending.pop()]} - needed
        pending += related
        needed |= related
    keys = {name: _keys(dims[name], name in names, dims.values()) for name in needed}
    stack: list[Keys] = [{}]  # keys that some dimensions must have in the next combinations
    while stack:
        chosen = stack.pop()
        new_names: list[str] = []  # the other dimensions that `fill` visits, in this order

        def choose(dim: Dimension, chosen: Keys = chosen, new: list[str] = new_names) -> Key:
            if dim.name not in keys:
                return any_key(dim)
            if dim.name not in chosen:
                new.append(dim.name)
            return chosen.get(dim.name, keys[dim.name][0])

        values: Keys = {}
        yield fill({**sections}, choose, values), values
        # This was the combination in which every new dimension has its first key.
        for name in new_names:
            first, *others = keys[name]
            stack.extend({**chosen, name: key} for key in reversed(others))
            chosen = {**chosen, name: first}


def any_key(dim: Dimension) -> Key:
    """Return one valid key of a dimension.

    The key is the first option, the lower bound, or the median of a normal distribution.
    """
    if dim.options:
        return dim.options[0].key
    return 0.5 if dim.lower is None else dim.lower


def _keys(dim: Dimension, all_values: bool, dims: Iterable[Dimension]) -> Sequence[Key]:
    """Return the keys that a dimension takes in the combinations of `assignments`.

    Args:
        dim: The dimension. A grid or a choice takes all its keys.
        all_values: True if a domain with a finite number of values takes all of them. Any other
            domain of numbers takes enough keys to make each condition true once and false once.
        dims: Dimensions whose conditions may compare `dim` with numbers.
    """
    if dim.options:
        return [option.key for option in dim.options]
    if all_values and dim.lower is not None and dim.size < math.inf:
        return [dim.nearest(dim.lower, i) for i in range(int(dim.size))]
    terms = [term for other in dims for term in other.when if term.name == dim.name]
    values = points(dim, {number for term in terms for _, number in term.tests})
    return values if dim.mean is None else [cumulative_probability(dim, v) for v in values]


def points(dim: Dimension, numbers: Collection[float]) -> list[float]:
    """Return values that together give every possible result of comparisons with some numbers.

    For a continuous domain, these are values between the numbers, because no trial samples exactly
    such a number. For other domains, they are the numbers and the values next to them.

    Args:
        dim: A dimension of numbers.
        numbers: The numbers with which conditions compare the dimension.
    """
    if dim.mean is not None and dim.sd is not None:
        spread = NormalDist(dim.mean, dim.sd)
        lower, upper = (spread.inv_cdf(edge) for edge in EDGES)
    else:
        assert dim.lower is not None and dim.highest is not None
        lower = dim.lower
        upper = dim.highest
    inside = sorted({lower, upper, *(number for number in numbers if lower <= number <= upper)})
    if dim.is_integer or dim.q is not None:
        near = {dim.nearest(number, steps) for number in inside for steps in (-1, 0, 1)}
        return sorted(value for value in near if lower <= value <= upper) or [lower]
    return [(left + right) / 2 for left, right in itertools.pairwise(inside)]


# ---- conditions that can be true


def conflicting_dimension(
    name: str, dims: Mapping[str, Dimension], conditions: Mapping[str, tuple[Term, ...]]
) -> str | None:
    """Find out why a dimension can never be active.

    The reason is that its conditions need two different values of another dimension at the same
    time.

    Args:
        name: Name of a dimension with a condition.
        dims: All dimensions, by name.
        conditions: The terms of each dimension, by name; see `conditions_of`.

    Returns:
        The name of the other dimension. None if the dimension can be active.
    """
    needed: dict[str, list[Term]] = {}
    pending = [name]
    seen = {name}
    while pending:
        for term in conditions.get(pending.pop(), ()):
            needed.setdefault(term.name, []).append(term)
            if term.name not in seen:
                seen.add(term.name)
                pending.append(term.name)
    return next((name for name, terms in needed.items() if not possible(dims[name], terms)), None)


def possible(dim: Dimension, terms: Collection[Term]) -> bool:
    """Return True if some value of a dimension makes all terms true."""
    if dim.options:
        values: list[Key] = [option.key for option in dim.options]
    else:
        values = list(points(dim, {number for term in terms for _, number in term.tests}))
    return any(all(term.holds(value) for term in terms) for value in values)


# ---- shapes


def shape_assignments(
    sections: Sections, backends: Mapping[str, str]
) -> Iterator[tuple[Shape, Keys]]:
    """Yield the shape for each combination of the values that the section `scaling` depends on.

    If several trainers have different backends, the trainer is one of these values.

    Args:
        sections: All sections of the space.
        backends: Backend of each trainer, by label.

    Yields:
        The shape, and the value of each active dimension, by name; see `assignments`.
    """
    names = [dim.name for dim in dimensions(sections.get("scaling"))]
    if len({*backends.values()}) > 1 and "trainer" in sections:
        names.append("trainer")
    for filled, values in assignments(sections, names):
        scaling = filled.get("scaling")
        backend = backends.get(filled.get("trainer", ""), "none")
        yield shape_of(scaling if isinstance(scaling, dict) else {}, backend), values


def all_shapes(sections: Sections, backends: Mapping[str, str]) -> tuple[Shape, ...]:
    """Return the distinct shapes that trials of a space can have, in the order of the file.

    Args:
        sections: All sections of the space.
        backends: Backend of each trainer, by label.
    """
    shapes = itertools.islice(shape_assignments(sections, backends), MAX_SHAPES)
    return tuple(dict.fromkeys(shape for shape, _ in shapes))
