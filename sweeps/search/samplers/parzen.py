"""Parzen mixtures: probability densities over the dimensions, estimated from trials.

A mixture has one kernel for each observation and one broad kernel over the whole space. A kernel is
a product of truncated normal distributions and categorical distributions (Bergstra et al., 2011:
Algorithms for Hyper-Parameter Optimization). The mixture is multivariate as in BOHB (Falkner et
al., 2018). If `neighbors` computes the widths, the mixture is the same as in Optuna's multivariate
TPE. Optuna's classes are not used, because they are private and half as fast.
"""

from collections.abc import Callable, Mapping

import numpy as np
from scipy.special import ndtr, ndtri

from .encoding import Axes

# (n, d) places -> (n, d) widths of kernels, where 1 is the width of the whole range
Widths = Callable[[np.ndarray], np.ndarray]


class Mixture:
    """Density over a space, conditioned on the values of some dimensions.

    Args:
        axes: Encoding of the dimensions.
        values: (n, dimensions) values of the observed trials, in Optuna's internal representation.
        weights: (n,) weights of the kernels of the trials. The broad kernel has weight 1.
        widths: Function that computes the widths of the kernels in the numeric dimensions from the
            places of the trials.
        cell: The categories on which the mixture is conditioned: the index of each category, by the
            index of its column. The weight of each kernel is multiplied by the kernel's probability
            of these categories.
    """

    def __init__(
        self,
        axes: Axes,
        values: np.ndarray,
        weights: np.ndarray,
        widths: Widths,
        cell: Mapping[int, int],
    ):
        n = len(values)
        d = len(axes.numbers)
        self.axes = axes
        # The last kernel is the broad one.
        places = axes.unit(values[:, axes.numbers])
        self._mean = np.vstack([places, np.full((1, d), 0.5)])
        self._width = np.vstack([widths(places) if n else np.empty((0, d)), np.ones((1, d))])
        # Probabilities that a normal distribution without truncation is below 0, and below 1
        self._below_0 = ndtr(-self._mean / self._width)
        self._below_1 = ndtr((1 - self._mean) / self._width)
        self._log_mass = np.log(self._below_1 - self._below_0)
        weights = np.append(weights, 1.0)
        self._categories: dict[int, np.ndarray] = {}
        for i, size in axes.choices.items():
            odds = np.full((n + 1, size), 1 / (n + 1))
            odds[np.arange(n), values[:, i].astype(int)] += 1
            odds /= odds.sum(axis=1, keepdims=True)
            if i in cell:
                weights = weights * odds[:, cell[i]]
                odds = np.zeros_like(odds)
                odds[:, cell[i]] = 1
            self._categories[i] = odds
        self._weights = weights / weights.sum()

    def sample(self, rng: np.random.RandomState, size: int) -> np.ndarray:
        """Draw values from the mixture.

        Args:
            rng: Random number generator.
            size: Number of draws.

        Returns:
            (size, dimensions) values in Optuna's internal representation.
        """
        kernels = rng.choice(len(self._weights), p=self._weights, size=size)
        drawn = np.empty((size, len(self.axes.names)))
        low = self._below_0[kernels]
        high = self._below_1[kernels]
        z = ndtri(low + rng.rand(*low.shape) * (high - low))
        places = np.clip(self._mean[kernels] + z * self._width[kernels], 0, 1)
        drawn[:, self.axes.numbers] = self.axes.values(places)
        for i, odds in self._categories.items():
            sums = odds[kernels].cumsum(axis=1)
            drawn[:, i] = (sums[:, :-1] <= rng.rand(size, 1)).sum(axis=1)
        return drawn

    def log_pdf(self, values: np.ndarray) -> np.ndarray:
        """Return the logarithm of the density, up to a constant that depends only on the axes.

        Args:
            values: (n, dimensions) values.

        Returns:
            (n,) log densities.
        """
        axes = self.axes
        numbers = values[:, axes.numbers]
        # First (kernels,), and (n, kernels) after the first dimension
        density = np.log(self._weights) - self._log_mass.sum(axis=1)
        smooth = axes.step == 0  # the dimensions without a step
        mean = self._mean[:, smooth]
        width = self._width[:, smooth]
        z = (axes.unit(numbers)[:, None, smooth] - mean) / width
        density = density - 0.5 * (z * z).sum(axis=2) - np.log(width).sum(axis=1)
        if not smooth.all():  # with a step, the probability of the interval around the value
            mean = self._mean[:, ~smooth]
            width = self._width[:, ~smooth]
            left = axes.unit(numbers - axes.step / 2)[:, None, ~smooth]
            right = axes.unit(numbers + axes.step / 2)[:, None, ~smooth]
            probability = ndtr((right - mean) / width) - ndtr((left - mean) / width)
            density = density + np.log(np.maximum(probability, 1e-300)).sum(axis=2)
        for i, odds in self._categories.items():
            with np.errstate(divide="ignore"):
                density = density + np.log(odds[:, values[:, i].astype(int)]).T
        # Without `top`, the exponential function could underflow.
        top = density.max(axis=1)
        log_density: np.ndarray = np.log(np.exp(density - top[:, None]).sum(axis=1)) + top
        return log_density


def neighbors(places: np.ndarray) -> np.ndarray:
    """Compute the width of each kernel in each dimension from its two neighbors.

    The width is the distance from the kernel's place to the more distant neighbor. This is the rule
    of Optuna. The width is at least the larger of 1/(n + 2) and 1/100 of the range.

    Args:
        places: (n, d) places on [0, 1].

    Returns:
        (n, d) widths.
    """
    n = len(places)
    order = np.argsort(places, axis=0, kind="stable")
    inner = np.take_along_axis(places, order, axis=0)
    edges = np.vstack([np.zeros_like(inner[:1]), inner, np.ones_like(inner[:1])])
    gaps = np.diff(edges, axis=0)
    wide = np.maximum(gaps[:-1], gaps[1:])
    if n > 1:  # the ends of the range do not count as neighbors
        wide[0], wide[-1] = gaps[1], gaps[-2]
    widths = np.empty_like(wide)
    np.put_along_axis(widths, order, wide, axis=0)
    return np.clip(widths, 1 / min(100, n + 2), 1.0)


def third_nearest(places: np.ndarray) -> np.ndarray:
    """Compute the width of each kernel: the root-mean-square distance to the third nearest place.

    The width is at least 1/100 of the range. Kernels are narrow where many places are close
    together, so the search narrows around clusters of good trials. A kernel has the same width in
    every dimension, because the distance between two places is a single number: the root of the
    mean of the squared differences in all dimensions.

    Args:
        places: (n, d) places on [0, 1].

    Returns:
        (n, d) widths; 0.5 for a single place.
    """
    n = len(places)
    if n == 1:
        return np.full_like(places, 0.5)
    squared = (
        ((places[:, None, :] - places[None, :, :]) ** 2).mean(axis=2)
        if places.shape[1]
        else np.zeros((n, n))
    )
    nearest = np.sqrt(np.sort(squared, axis=1)[:, min(3, n - 1)])
    return np.broadcast_to(np.clip(nearest, 0.01, 1.0)[:, None], places.shape)
