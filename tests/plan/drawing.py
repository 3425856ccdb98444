"""Draw random trials in the same way as a search, to check the predictions of a plan."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from sweeps.search.cells import cell_of, next_cell
from sweeps.space import Space


def drawn(space: Space, rng: random.Random) -> Iterator[dict[str, Any]]:
    """Return the configurations of all trials of a sweep, in the order in which the search starts
    them.
    """
    counts = [0] * len(space.cells)
    for _ in range(space.limits.max_trials):
        cell = space.cells[next_cell(space.cells, counts)]
        taken: dict[str, Any] = {}

        def choose(dim: Any, cell: Any = cell, taken: Any = taken) -> Any:
            if dim.name in cell:
                key = cell[dim.name]
            elif dim.options:
                key = rng.choice(dim.options).key
            elif dim.lower is None:
                key = rng.random()
            else:
                key = (
                    rng.randint(dim.lower, dim.highest)
                    if dim.is_integer
                    else rng.uniform(dim.lower, dim.highest)
                )
            taken[dim.name] = key
            return key

        yield space.fill(choose)
        index = cell_of(taken, space.cells)
        if index is not None:
            counts[index] += 1
