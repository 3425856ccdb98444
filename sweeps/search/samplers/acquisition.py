"""Score candidates for the next trial. Pure functions of a fitted model.

A larger score is better.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from .gaussian_process import Process

# Largest number of points of a front, by the number of objectives; and for more objectives than
# these. With more points, `undominated` would return thousands of boxes.
FRONT_SIZES = {1: 160, 2: 160, 3: 16, 4: 8}
SMALLEST_FRONT_SIZE = 6


@dataclass(frozen=True)
class Bound:
    """Model of a quantity that must be at most a threshold: a constraint or a trial's failure.

    Attributes:
        process: Process over places.
        threshold: Largest allowed value, on the scale of the process.
    """

    process: Process
    threshold: float

    def probability(self, inputs: np.ndarray) -> np.ndarray:
        """Return the probability that the quantity without its noise is at most the threshold.

        The result is an array of shape (n,).
        """
        mean, deviation = self.process.predict(inputs)
        probability: np.ndarray = ndtr((self.threshold - mean) / deviation)
        return probability


@dataclass(frozen=True)
class Surrogate:
    """Model of the results of configurations at full fidelity.

    Attributes:
        objectives: One process for each objective, over places and fidelity. Smaller values are
            better.
        bounds: Models of the quantities that decide whether a configuration is feasible.
        at_full: Function that converts places, an array of shape (n, dimensions), to inputs of the
            processes at full fidelity.
    """

    objectives: Sequence[Process]
    bounds: Sequence[Bound]
    at_full: Callable[[np.ndarray], np.ndarray]

    def predict(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the posterior means and standard deviations of n places at full fidelity.

        The result is two arrays of shape (n, objectives).
        """
        inputs = self.at_full(places)
        means, deviations = zip(
            *(process.predict(inputs) for process in self.objectives), strict=True
        )
        return np.column_stack(means), np.column_stack(deviations)

    def feasibility(self, places: np.ndarray) -> np.ndarray:
        """Return the probability that a trial does not fail and satisfies all constraints.

        The result is an array of shape (n,).
        """
        inputs = self.at_full(places)
        probability = np.ones(len(places))
        for bound in self.bounds:
            probability *= bound.probability(inputs)
        return probability

    def imagine(self, places: np.ndarray) -> None:
        """Add running trials as observations with their predicted means as values.

        The model then does not suggest them again.
        """
        for process in (*self.objectives, *(bound.process for bound in self.bounds)):
            process.imagine(self.at_full(places))


def acquisition(surrogate: Surrogate, boxes: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return the score of each candidate. The candidate with the largest score is suggested.

    The score is the expected improvement, multiplied by the probability that the candidate is
    feasible (Gardner et al., 2014: Bayesian Optimization with Inequality Constraints).

    Args:
        surrogate: The model.
        boxes: The region of better values; see `improvement_region`. If there are no boxes, the
            probability alone is the score.
        places: Candidates, an array of shape (n, dimensions).

    Returns:
        (n,) scores; none is negative.
    """
    score = surrogate.feasibility(places)
    if len(boxes):
        score *= expected_improvement(*surrogate.predict(places), boxes)
    return score


def improvement_region(values: np.ndarray) -> np.ndarray:
    """Return the region of values that are better than those of earlier trials, as boxes.

    See `undominated`.

    With one objective, these are the values below the smallest value. With several objectives,
    these are the values that no value on the Pareto front dominates.

    Args:
        values: Values of earlier feasible trials, an array of shape (n, objectives). If n is 0,
            there are no boxes.
    """
    if not len(values):
        return np.empty((0, 2, values.shape[1]))
    if values.shape[1] == 1:
        return undominated(values[:0], values.min(axis=0))
    front = values[dominators(values) == 0]
    # With a reference point near the front, the search would stay where the first front is.
    reference = values.max(axis=0) + 0.1 * np.ptp(values, axis=0)
    front = front[np.lexsort(front.T[::-1])]  # sorted by the first objective
    size = FRONT_SIZES.get(front.shape[1], SMALLEST_FRONT_SIZE)
    # At most `size` points, at equal distances in the sorted front
    chosen = np.unique(np.linspace(0, len(front) - 1, size).round().astype(int))
    return undominated(front[chosen], reference)


def best_first(values: np.ndarray, feasibility: np.ndarray) -> np.ndarray:
    """Return the indices of n trials, the best trial first.

    Trials that are probably feasible come first.

    Args:
        values: Values, an array of shape (n, objectives). Smaller is better.
        feasibility: (n,) probabilities that the trials are feasible.
    """
    infeasibility = np.where(feasibility >= 0.5, 0, 1 - feasibility)
    # `lexsort` sorts by its last key first.
    return np.lexsort((values[:, 0], dominators(values), infeasibility))


def dominators(values: np.ndarray) -> np.ndarray:
    """Return an array of shape (n,): how many rows of `values` dominate each row.

    Smaller values are better.
    """
    no_worse = (values[:, None, :] <= values[None, :, :]).all(axis=2)
    better = (values[:, None, :] < values[None, :, :]).any(axis=2)
    count: np.ndarray = (no_worse & better).sum(axis=0)
    return count


def undominated(front: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Split the region that a front does not dominate into boxes.

    The region is bounded above by the reference point.

    Args:
        front: Values on the front, an array of shape (n, objectives).
        reference: Reference point, an array of shape (objectives,).

    Returns:
        Disjoint boxes, an array of shape (boxes, 2, objectives) with the lower and upper corners.
        Lower bounds may be −infinity.
    """
    front = front[(front < reference).all(axis=1)]
    if len(reference) == 1:
        upper = min([*front[:, 0], reference[0]])
        return np.array([[[-math.inf], [upper]]])
    # The region is cut into slices along the last objective. In a slice, only the points with a
    # smaller last value dominate. Their other objectives decide which part of the slice is left.
    edges = [-math.inf, *np.unique(front[:, -1]), float(reference[-1])]
    slices = []
    for low, high in itertools.pairwise(edges):
        boxes = undominated(front[front[:, -1] <= low, :-1], reference[:-1])
        last_objective = np.broadcast_to([[[low], [high]]], (len(boxes), 2, 1))
        slices.append(np.concatenate([boxes, last_objective], axis=2))
    return np.concatenate(slices)


def expected_improvement(mean: np.ndarray, deviation: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """Return the expected volume of the part of `boxes` that a random value dominates.

    The value is normally distributed.

    With one objective, this is the expected improvement over the upper bound of the box. With
    several objectives, it is the expected hypervolume improvement (Emmerich et al., 2011). The
    probability that a value dominates a point is the product of one probability for each objective.
    So the integral over a box is a product, too.

    Args:
        mean: Means, an array of shape (n, objectives).
        deviation: Standard deviations, an array of shape (n, objectives).
        boxes: Boxes, an array of shape (boxes, 2, objectives).

    Returns:
        (n,) expected improvements.
    """
    volume = np.ones((len(mean), len(boxes)))
    for j in range(mean.shape[1]):
        # Many boxes have the same edges, so each edge is computed once.
        edges, index = np.unique(boxes[:, :, j], return_inverse=True)
        below = _below(mean[:, j, None], deviation[:, j, None], edges)
        low, high = index.reshape(len(boxes), 2).T
        volume *= below[:, high] - below[:, low]
    improvement: np.ndarray = np.maximum(volume.sum(axis=1), 0)
    return improvement


def _below(mean: np.ndarray, deviation: np.ndarray, edge: np.ndarray) -> np.ndarray:
    """Return the expected distance of normally distributed values below an edge.

    A value above the edge has the distance 0.
    """
    z = (edge - mean) / deviation
    finite = np.isfinite(z)
    z = np.where(finite, z, 0)
    gap = np.where(finite, edge - mean, 0)
    density = np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    return np.where(finite, gap * ndtr(z) + deviation * density, 0.0)
