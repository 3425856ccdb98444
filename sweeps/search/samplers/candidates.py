"""Draw candidates: configurations that a model may suggest for the next trial."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from sweeps.search.samplers.encoding import Axes
from sweeps.search.samplers.history import Point

# Numbers of candidates: ANYWHERE uniform points at first. Each round then adds AROUND neighbors of the BEST points so far.
ANYWHERE, AROUND, BEST = 384, 192, 16
# Standard deviation of a neighbor's distance from its center, in each round. The neighbors of the first round surround earlier trials.
WIDTHS = (0.1, 0.05, 0.01)
# Smallest standard deviation of a neighbor's distance from its center, as a fraction of the dimension's step. With this value, two of five
# neighbors are on another step than their center.
REACH = 0.6


class Candidates:
    """Candidates in one grid cell.

    Args:
        axes: The dimensions.
        cell: Value of each grid dimension, by name. All candidates have these values.
        taken: Configurations that cannot be suggested; see `point_of`. They are left out if all dimensions are discrete. Otherwise an
            uncertain point would be suggested again and again.
    """

    def __init__(self, axes: Axes, cell: Mapping[str, Any], taken: set[Point]):
        self.axes, self.cell, self._taken = axes, cell, taken
        self._discrete = bool((axes.step > 0).all())
        # Smallest standard deviation for neighbors in each dimension. Without this minimum, a dimension with wide steps would never change.
        self._reach = np.zeros(len(axes.names))
        self._reach[axes.numbers] = np.where(axes.log, 0.0, REACH * axes.step / axes.width)

    def best(self, score: Callable[[np.ndarray], np.ndarray], centers: np.ndarray, rng: np.random.RandomState) -> np.ndarray | None:
        """Search for the candidate with the largest score.

        Args:
            score: Function that returns the (n,) scores of n candidates, given an array of shape (n, dimensions).
            centers: Good places, an array of shape (n, dimensions). The search starts near these places and at random places.
            rng: Random number generator.

        Returns:
            The places of the best candidate, an array of shape (dimensions,); None if every candidate is taken.
        """
        candidates = self.fresh(np.vstack([self.axes.anywhere(rng, ANYWHERE), self.around(centers, WIDTHS[0], rng)]))
        scores = score(candidates)
        for width in WIDTHS[1:]:
            if not len(candidates):
                return None
            neighbors = self.fresh(self.around(candidates[np.argsort(-scores, kind="stable")[:BEST]], width, rng))
            scores = np.append(scores, score(neighbors))
            candidates = np.vstack([candidates, neighbors])
        best: np.ndarray = candidates[np.argmax(scores)]
        return best

    def fresh(self, places: np.ndarray) -> np.ndarray:
        """Set the grid dimensions of places to the values of the cell, and return the rows that can be suggested.

        The shape is (n, dimensions).

        If all dimensions are discrete, a row is left out if its configuration is taken. The configurations of the returned rows are then
        taken, too. If a dimension is continuous, all rows are returned.
        """
        places = self.in_cell(places)
        if not self._discrete:
            return places
        values = places.copy()
        values[:, self.axes.numbers] = self.axes.values(places[:, self.axes.numbers])
        points = [frozenset(zip(self.axes.names, row, strict=True)) for row in values.tolist()]
        fresh = []
        for i, point in enumerate(points):
            if point not in self._taken:
                self._taken.add(point)
                fresh.append(i)
        return places[fresh]

    def in_cell(self, places: np.ndarray) -> np.ndarray:
        """Return a copy of places of shape (n, dimensions), with the grid dimensions set to the values of the cell."""
        places = places.copy()
        for i, (name, distribution) in enumerate(self.axes.space.items()):
            if name in self.cell:
                places[:, i] = distribution.to_internal_repr(self.cell[name])
        return places

    def around(self, centers: np.ndarray, width: float, rng: np.random.RandomState) -> np.ndarray:
        """Draw `AROUND` neighbors of randomly chosen centers. Each neighbor differs from its center in a random subset of the dimensions.

        `width` is the standard deviation of the difference in a numeric dimension. In a dimension with wide steps, the standard deviation
        is larger.
        """
        x = centers[rng.randint(len(centers), size=AROUND)]
        changed = rng.rand(*x.shape) < max(0.5, 1 / x.shape[1])
        moved = np.clip(x + changed * rng.normal(0, 1, x.shape) * np.maximum(width, self._reach), 0, 1)
        for i, count in self.axes.choices.items():
            moved[:, i] = np.where(rng.rand(len(x)) < 0.1, rng.randint(count, size=len(x)), x[:, i])
        return self.axes.on_steps(moved)
