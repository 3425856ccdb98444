"""Predict what a trial costs, from the costs of the trials that have ended.

The logarithm of the cost of a step is modeled by a Gaussian process over configuration and number
of steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from optuna.trial import FrozenTrial

from sweeps.search.samplers.history import History

if TYPE_CHECKING:
    from sweeps.search.samplers.gaussian_process import Process

# Largest number of trials in the model of the cost. They are evenly spread over all trials.
MOST = 80
# Smallest cost of a step, as a fraction of the median. The cost in GPU seconds of a trial without a
# GPU is 0.
LEAST = 0.01
# Power of the cost by which the expected improvement is divided. With 1, the search stays among
# cheap configurations for too long if cheap and good configurations are in different places.
POWER = 0.5


@dataclass(frozen=True)
class CostObservations:
    """Costs of n ended trials.

    Attributes:
        trials: The n trials.
        steps: (n,) numbers of steps that the trials made.
        logs: (n,) logarithms of the cost of a step.
    """

    trials: list[FrozenTrial]
    steps: np.ndarray
    logs: np.ndarray


def cost_observations(history: History, name: str) -> CostObservations | None:
    """Return the costs of at most `MOST` ended trials; None if no trial has cost anything.

    Args:
        history: History of the sweep.
        name: Name of the cost, such as "gpu_seconds".
    """
    numbers = sorted(history.spent)
    chosen = [history.spent[number] for number in numbers[:: -(-len(numbers) // MOST) or 1]]
    steps = np.array([one.steps for one in chosen], dtype=float)
    rates = np.array([one.costs[name] for one in chosen]) / steps
    if not (rates > 0).any():
        return None
    rates = np.maximum(rates, LEAST * np.median(rates[rates > 0]))
    return CostObservations([one.trial for one in chosen], steps, np.log(rates))


@dataclass(frozen=True)
class TrialCost:
    """Model of the cost of a trial. Only ratios of its predictions have a meaning.

    The scheduler stops most trials early. The expected number of steps is assumed to be equal for
    all candidates, so the ratio of the costs of two trials is the ratio of the costs of their
    steps.

    Attributes:
        process: Process of the scaled logarithm of the cost of a step.
        factor: Factor by which logarithms were multiplied to scale them.
    """

    process: Process
    factor: float

    def weights(self, inputs: np.ndarray) -> np.ndarray:
        """Return the numbers by which the expected improvements of n trials are divided, given the inputs of the process."""
        weights: np.ndarray = np.exp(POWER * self.process.mean(inputs) / self.factor)
        return weights
