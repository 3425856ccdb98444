"""Draw candidates: configurations that a model may suggest for the next trial."""

import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from sweeps.space.model.conditions import Key

from .activity import Activity
from .encoding import Axes
from .trial_groups import Point

# Numbers of candidates: at first UNIFORM_POINTS. Each round then adds NEIGHBORS of the BEST points.
UNIFORM_POINTS = 384
NEIGHBORS = 192
BEST = 16
# Standard deviation of a neighbor's distance from its center, in each round. The neighbors of the
# first round surround earlier trials.
WIDTHS = (0.1, 0.05, 0.01)
# Smallest standard deviation of a neighbor's distance from its center, as a fraction of the
# dimension's step. With this value, two of five neighbors are on another step than their center.
LEAST_STEPS = 0.6


class Candidates:
    """Candidates in one grid cell.

    They are arrays of places of shape (n, dimensions); the place of an inactive dimension is NaN.

    Args:
        axes: The dimensions.
        activity: The conditions of the dimensions; None if every dimension is always active.
        cell: Value of each grid dimension, by name. All candidates have these values.
        taken: Function that returns whether a configuration was tried; see `point_of`. No
            configuration is suggested twice. Otherwise an uncertain one would be suggested again
            and again.
    """

    def __init__(
        self,
        axes: Axes,
        activity: Activity | None,
        cell: Mapping[str, Key],
        taken: Callable[[Point], bool] = lambda point: False,
    ):
        self.axes = axes
        self.activity = activity
        self._cell_columns = [i for i, name in enumerate(axes.names) if name in cell]
        self._cell_places = axes.places(np.array([axes.row(cell)]))[0, self._cell_columns]
        self._taken = taken
        self._drawn = set[Point]()
        self._continuous = [i for i, step in zip(axes.numbers, axes.step, strict=True) if not step]
        # Smallest standard deviation for neighbors in each dimension. Without this minimum, a
        # dimension with wide steps would never change.
        self._least_widths = np.zeros(len(axes.names))
        widths = LEAST_STEPS * axes.step / axes.width
        self._least_widths[axes.numbers] = np.where(axes.log, 0.0, widths)

    def best(
        self,
        score: Callable[[np.ndarray], np.ndarray],
        centers: np.ndarray,
        rng: np.random.RandomState,
    ) -> np.ndarray | None:
        """Search for the candidate with the largest score.

        Args:
            score: Function that returns the (n,) scores of n candidates.
            centers: Good places. The search starts near these places and at random places.
            rng: Random number generator.

        Returns:
            The places of the best candidate, an array of shape (dimensions,); None if every
            candidate is taken. In a space of discrete dimensions in which nearly all configurations
            are taken, the few others may not be among the candidates.
        """
        uniform = self.axes.anywhere(rng, UNIFORM_POINTS)
        candidates = self.new_rows(np.vstack([uniform, self.neighbors(centers, WIDTHS[0], rng)]))
        scores = score(candidates)
        for width in WIDTHS[1:]:
            if not len(candidates):
                return None
            best_points = candidates[np.argsort(-scores, kind="stable")[:BEST]]
            neighbors = self.new_rows(self.neighbors(best_points, width, rng))
            scores = np.append(scores, score(neighbors))
            candidates = np.vstack([candidates, neighbors])
        ranked = candidates[np.argsort(-scores, kind="stable")]
        for i, point in enumerate(self._points(ranked)):
            if not self._taken(point):
                best: np.ndarray = ranked[i]
                return best
        return None

    def new_rows(self, places: np.ndarray) -> np.ndarray:
        """Apply `in_cell` to places, and return the rows that can be suggested.

        Rows whose configuration is taken or was returned before are left out. A row is not compared
        if a continuous dimension is between its bounds: such rows are rarely equal, and `best`
        compares the one with the largest score.
        """
        places = self.in_cell(places)
        continuous = places[:, self._continuous]
        is_new = np.array(((continuous > 0) & (continuous < 1)).any(axis=1))
        compared = np.flatnonzero(~is_new)
        for i, point in zip(compared, self._points(places[compared]), strict=True):
            is_new[i] = point not in self._drawn and not self._taken(point)
            self._drawn.add(point)
        return places[is_new]

    def _points(self, places: np.ndarray) -> Iterator[Point]:
        """Yield the configuration of each row as a point; see `point_of`."""
        for row in self.axes.internal(places):
            yield frozenset(
                (name, value)
                for name, value in zip(self.axes.names, row.tolist(), strict=True)
                if not math.isnan(value)
            )

    def in_cell(self, places: np.ndarray) -> np.ndarray:
        """Return a copy of places with the cell's grid values, and NaN for inactive dimensions."""
        places = places.copy()
        places[:, self._cell_columns] = self._cell_places
        if self.activity:
            places[~self.activity.is_active(self.axes.internal(places))] = np.nan
        return places

    def fill(self, places: np.ndarray, rng: np.random.RandomState) -> np.ndarray:
        """Return a copy of places in which the inactive dimensions have random places."""
        if self.activity:
            return np.where(np.isnan(places), self.axes.anywhere(rng, len(places)), places)
        return places

    def neighbors(
        self, centers: np.ndarray, width: float, rng: np.random.RandomState
    ) -> np.ndarray:
        """Draw `NEIGHBORS` neighbors of randomly chosen centers.

        Each neighbor differs from its center in about half of the numeric dimensions, and in a
        tenth of the choices.

        `width` is the standard deviation of the difference in a numeric dimension. In a dimension
        with wide steps, the standard deviation is larger. Dimensions that are inactive in the
        center get random places, because they may be active in the neighbor.
        """
        x = self.fill(centers[rng.randint(len(centers), size=NEIGHBORS)], rng)
        is_changed = rng.rand(*x.shape) < max(0.5, 1 / x.shape[1])
        distance = rng.normal(0, 1, x.shape) * np.maximum(width, self._least_widths)
        moved = np.clip(x + is_changed * distance, 0, 1)
        for i, count in self.axes.choices.items():
            moved[:, i] = np.where(rng.rand(len(x)) < 0.1, rng.randint(count, size=len(x)), x[:, i])
        return self.axes.on_steps(moved)
