"""Grid search. Every dimension is a grid, so no values are sampled."""

from .random import Random


class Grid(Random):
    """Give every grid cell one trial before any cell gets another trial."""
