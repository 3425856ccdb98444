"""Enumerate grid cells, shapes of trials and combinations of values. Pure functions.

A shape is the workers and resources of a trial.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from sweeps.core.resources import Shape, shape_of
from sweeps.space.conditions import Term, holds
from sweeps.space.domains import EDGES, Dimension, Key, cumulative_probability
from sweeps.space.templates import Template, children, dimensions, enclosing_options, fill

MAX_CELLS = 100_000
MAX_SHAPES = 10_000


# ---- cells


@dataclass(frozen=True)
class _Fork:
    """A dimension, and the dimensions inside each of its options."""

    dim: Dimension
    branches: tuple[tuple[_Fork, ...], ...]


def _forks(template: Template, every: bool) -> tuple[_Fork, ...]:
    """Return the dimensions that decide which cells exist.

    Args:
        template: Template in which to look for the dimensions.
        every: True to return all dimensions, which is needed if any of them has a condition. False
            to return only grids and dimensions that contain grids.
    """
    if not isinstance(template, Dimension):
        return tuple(fork for child in children(template) for fork in _forks(child, every))
    branches = tuple(_forks(option.value, every) for option in template.options)
    return (_Fork(template, branches),) if every or template.is_grid or any(branches) else ()


def cells_of(template: Template) -> Iterator[dict[str, Any]]:
    """Yield every possible combination of the options of the grids in a template.

    See `Space.cells`.
    """
    every = any(dim.when for dim in dimensions(template))
    # Stack of partial cells. An entry has the forks that are not yet processed, the options chosen
    # so far, and the names of the processed dimensions that are not grids, so that a cell does not
    # fix their values.
    stack: list[tuple[tuple[_Fork, ...], dict[str, Any], frozenset[str]]] = [
        (_forks(template, every), {}, frozenset())
    ]
    while stack:
        remaining, cell, undecided = stack.pop()
        while remaining:
            fork, remaining = remaining[0], remaining[1:]
            if holds(fork.dim.when, cell, undecided) is False:
                continue
            if fork.dim.is_grid:
                branches = [
                    (branch + remaining, {**cell, fork.dim.name: option.key}, undecided)
                    for option, branch in zip(fork.dim.options, fork.branches, strict=True)
                ]
                stack.extend(reversed(branches))
                break
            remaining = tuple(itertools.chain(*fork.branches)) + remaining
            undecided |= {fork.dim.name}
        else:
            yield cell


# ---- combinations of some dimensions


def assignments(
    sections: Mapping[str, Template], names: Collection[str]
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
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
    outer = enclosing_options(dict(sections))
    needed, pending = set(names), list(names)
    while pending:
        related = {term.name for term in terms_of(dims[pending.pop()], outer)} - needed
        pending += related
        needed |= related
    keys = {name: _keys(dims[name], name in names, dims.values()) for name in needed}
    stack: list[tuple[int, ...]] = [()]
    while stack:
        choices = stack.pop()
        made: list[int] = []

        def choose(
            dim: Dimension, choices: tuple[int, ...] = choices, made: list[int] = made
        ) -> Any:
            if dim.name not in keys:
                return any_key(dim)
            if len(made) < len(choices):
                made.append(choices[len(made)])
            else:  # first visit: each of the other options starts a new combination
                stack.extend((*made, i) for i in reversed(range(1, len(keys[dim.name]))))
                made.append(0)
            return keys[dim.name][made[-1]]

        values: dict[str, Any] = {}
        yield {name: fill(template, choose, values) for name, template in sections.items()}, values


def terms_of(dim: Dimension, outer: Mapping[str, tuple[str, Any] | None]) -> tuple[Term, ...]:
    """Return the conditions of a dimension.

    One of them is that the option that contains the dimension is chosen.
    """
    option = outer.get(dim.name)
    return (*dim.when, Term(option[0], keys=(option[1],))) if option else dim.when


def any_key(dim: Dimension) -> Key:
    """Return one valid key of a dimension.

    The key is the first option, the lower bound, or the median of a normal distribution.
    """
    return dim.options[0].key if dim.options else 0.5 if dim.lower is None else dim.lower


def _keys(dim: Dimension, whole: bool, dims: Iterable[Dimension]) -> list[Any]:
    """Return all keys of a dimension, or at least enough keys for the conditions of `dims`.

    Enough keys make each condition true once and false once. For a grid or a choice, all keys are
    returned. For any other domain with a finite number of values, all keys are returned if `whole`
    is true.
    """
    if dim.options:
        return [option.key for option in dim.options]
    if whole and dim.lower is not None and dim.size < math.inf:
        return _values(dim)
    terms = [term for other in dims for term in other.when if term.name == dim.name]
    keys = points(dim, {number for term in terms for _, number in term.tests})
    return keys if dim.mean is None else [cumulative_probability(dim, key) for key in keys]


def _values(dim: Dimension) -> list[float]:
    """Return all values of a domain that has a finite number of them."""
    assert dim.lower is not None
    return [dim.nearest(dim.lower, i) for i in range(int(dim.size))]


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
        lower, upper = dim.lower, dim.highest
    inside = sorted({lower, upper, *(number for number in numbers if lower <= number <= upper)})
    if dim.is_integer or dim.q is not None:
        near = {dim.nearest(at, steps) for at in inside for steps in (-1, 0, 1)}
        return sorted(value for value in near if lower <= value <= upper) or [lower]
    return [(a + b) / 2 for a, b in itertools.pairwise(inside)]


# ---- conditions that can be true


def conflicting_dimension(
    dim: Dimension, dims: Mapping[str, Dimension], outer: Mapping[str, tuple[str, Any] | None]
) -> str | None:
    """Find out why a dimension can never be active.

    The reason is that its conditions need two different values of another dimension at the same
    time.

    Args:
        dim: A dimension with a condition.
        dims: All dimensions, by name.
        outer: Maps each dimension's name to the option that contains the dimension, or to None; see
            `enclosing_options`.

    Returns:
        The name of the other dimension. None if `dim` can be active.
    """
    needed: dict[str, list[Term]] = {}
    pending, seen = [dim.name], {dim.name}
    while pending:
        for term in terms_of(dims[pending.pop()], outer):
            needed.setdefault(term.name, []).append(term)
            if term.name not in seen:
                seen.add(term.name)
                pending.append(term.name)
    return next((name for name, terms in needed.items() if not possible(dims[name], terms)), None)


def possible(dim: Dimension, terms: Collection[Term]) -> bool:
    """Return True if some value of a dimension makes all terms true."""
    if dim.options:
        values: list[Any] = [option.key for option in dim.options]
    else:
        values = list(points(dim, {number for term in terms for _, number in term.tests}))
    return any(all(term.holds(value) for term in terms) for value in values)


# ---- shapes


def shape_assignments(
    sections: Mapping[str, Template], backend: str
) -> Iterator[tuple[Shape, dict[str, Any]]]:
    """Yield the shape for each combination of the values that the section `scaling` depends on.

    Args:
        sections: All sections of the space.
        backend: Backend of the trainer.

    Yields:
        The shape, and the value of each active dimension, by name; see `assignments`.
    """
    names = [dim.name for dim in dimensions(sections.get("scaling"))]
    for filled, values in assignments(sections, names):
        scaling = filled.get("scaling")
        yield shape_of(scaling if isinstance(scaling, dict) else {}, backend), values


def all_shapes(sections: Mapping[str, Template], backend: str) -> tuple[Shape, ...]:
    """Return the distinct shapes that trials of a space can have, in the order of the file.

    Args:
        sections: All sections of the space.
        backend: Backend of the trainer.
    """
    made = itertools.islice(shape_assignments(sections, backend), MAX_SHAPES)
    return tuple(dict.fromkeys(shape for shape, _ in made))
