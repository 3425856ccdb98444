"""Count the distinct preprocessing chains of a sweep, and the variants of its data.

Trials with the same chain and the same data variant share one fitted chain. A data variant is one
combination of the values in the `data` section.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sweeps.space import Dimension, Space, Step
from sweeps.space.model.enumeration import assignments
from sweeps.space.model.templates import dimensions, walk

# The largest number of combinations of values that are listed.
MAX_ENUMERATED = 512


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
