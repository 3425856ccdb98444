"""Score candidates for the next trial. Pure functions of a fitted model; a larger score is better."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from sweeps.search.samplers.gaussian_process import Process


@dataclass(frozen=True)
class Surrogate:
    """Model of the values of configurations at full fidelity.

    Attributes:
        objective: Process over places and fidelity.
        at_full: Function that converts places, an array of shape (n, dimensions), to inputs of the process at full fidelity.
    """

    objective: Process
    at_full: Callable[[np.ndarray], np.ndarray]

    def predict(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the (n,) posterior means and (n,) posterior standard deviations of n places at full fidelity."""
        return self.objective.predict(self.at_full(places))

    def imagine(self, places: np.ndarray) -> None:
        """Add running trials as observations with their predicted means as values, so that the model does not suggest them again."""
        self.objective.imagine(self.at_full(places))


def acquisition(surrogate: Surrogate, best: float, places: np.ndarray) -> np.ndarray:
    """Return the score of each candidate. The candidate with the largest score is suggested.

    Args:
        surrogate: The model.
        best: The smallest value so far.
        places: Candidates, an array of shape (n, dimensions).

    Returns:
        (n,) scores; none is negative.
    """
    return expected_improvement(*surrogate.predict(places), best)


def expected_improvement(mean: np.ndarray, deviation: np.ndarray, best: float) -> np.ndarray:
    """Return the expected improvements over `best` of normally distributed values. A value below `best` is an improvement.

    Args:
        mean: (n,) means.
        deviation: (n,) standard deviations.
        best: Smallest value so far.

    Returns:
        (n,) expected improvements.
    """
    z = (best - mean) / deviation
    improvement: np.ndarray = (best - mean) * ndtr(z) + deviation * np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    return improvement
