"""Grid search. Every dimension is a grid, so no values are sampled."""

from __future__ import annotations

from .random import Random


class Grid(Random):
    """Give every grid cell one trial before any cell gets another trial."""
