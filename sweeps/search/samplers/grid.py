"""Grid search. Every dimension is a grid, so no values are sampled."""

from __future__ import annotations

from sweeps.search.samplers.random import Random


class Grid(Random):
    """Visit every cell of the grid in turn."""
