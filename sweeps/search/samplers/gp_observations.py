"""Choose the observations of the Gaussian process, and scale their values.

The value of a trial changes from rung to rung. The values of a lower rung are therefore shifted by the median change to the next higher
rung. The median is taken over the trials that reached both rungs. The shifted values are standardized, and very bad values are clipped.
"""

from __future__ import annotations

import math

import numpy as np
from optuna.trial import FrozenTrial

from sweeps.search.samplers.history import FULL, History

# Largest number of observations in the model. This number is divided among the rungs. If a rung has more trials than its share, the model
# uses the rung's best trials and a random sample of its other trials.
MOST = 160


def observations(history: History, rng: np.random.RandomState) -> list[tuple[float, FrozenTrial, float]]:
    """Choose at most `MOST` observations for the model. An observation is the value of a trial at a level.

    A level is a step at which trials were compared, or `FULL` for the final values of trials. Values at lower levels are shifted by the
    median change between levels, so that they are comparable with values at the highest level.

    Args:
        history: History of the sweep, which has the trials so far.
        rng: Random number generator of the trial that is being sampled.

    Returns:
        (level, trial, value) of each observation. Smaller values are better. The value is infinity if the trial failed or violates a
        constraint.
    """
    by_level: dict[float, list[tuple[float, float, int]]] = {}
    for level in sorted((level for level in history.levels if history.count(level)), reverse=True):
        # Some schedulers have a rung at every step. So a level is used only if it is at most half of the level above it.
        if min(by_level, default=FULL) in (FULL, level) or level <= min(by_level) / 2:
            cells = history.levels[level].values()
            by_level[level] = sorted((violation, values[0], number) for cell in cells for violation, values, number in cell)
    shift, shifts = 0.0, {}
    above: dict[int, float] = {}
    for level, ranked in by_level.items():
        values = {number: value for violation, value, number in ranked if not violation and math.isfinite(value)}
        if change := [above[n] - v for n, v in values.items() if n in above]:
            shift += float(np.median(change))
        shifts[level], above = shift, values
    chosen: list[tuple[float, FrozenTrial, float]] = []
    remaining = MOST
    for i, (level, ranked) in enumerate(by_level.items()):
        share = remaining // (len(by_level) - i)
        if len(ranked) > share:
            best = share // 2
            picked = best + rng.choice(len(ranked) - best, share - best, replace=False)
            ranked = ranked[:best] + [ranked[j] for j in sorted(picked)]
        remaining -= len(ranked)
        for violation, value, number in ranked:
            chosen.append((level, history.known[number], math.inf if violation else value + shifts[level]))
    return chosen


def standardized(values: np.ndarray) -> np.ndarray:
    """Scale values to mean 0 and standard deviation 1, and clip values that are much worse than the others.

    Values above the upper whisker of a box plot (Tukey, 1977: Exploratory Data Analysis) are clipped to the whisker. Without clipping, a
    single diverged trial would make all other trials look equal. Values that are not finite are also clipped to the whisker.

    Args:
        values: (n,) values; smaller is better.

    Returns:
        (n,) scaled values; zeros if fewer than two distinct values are finite.
    """
    finite = values[np.isfinite(values)]
    if not len(finite) or finite.min() == finite.max():
        return np.zeros(len(values))
    low, high = finite.min() / 2, finite.max() / 2  # halves, because the difference of two floats may overflow
    unit = np.where(np.isfinite(values), (values / 2 - low) / (high - low), np.inf)
    first, third = np.quantile(unit[np.isfinite(unit)], (0.25, 0.75))
    unit = np.minimum(unit, third + 1.5 * (third - first))
    scaled: np.ndarray = (unit - unit.mean()) / max(unit.std(), 1e-12)
    return scaled
