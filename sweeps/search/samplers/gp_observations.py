"""Choose the observations of the Gaussian process, and scale their values.

The value of a trial changes from rung to rung. The values of a lower rung are therefore shifted by
the median change to the next higher rung. The median is taken over the trials that reached both
rungs. The shifted values are standardized, and very bad values are clipped.

With one objective, these functions copy the list of all trials and draw one random permutation for
each rung. With several objectives, the Pareto fronts among all trials are found.
"""

from __future__ import annotations

import heapq
import itertools
import math
import sys
from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from optuna.study._multi_objective import _fast_non_domination_rank
from optuna.trial import FrozenTrial, TrialState

from sweeps.space import Repeats

from .trial_groups import FULL, History, Level, Rank

# Largest number of observations in the model. This number is divided among the rungs. If a rung has
# more trials than its share, the model uses the rung's best trials and a random sample of its other
# trials.
MOST = 160
# Largest number of trials from which the change of the values between two rungs is computed.
CHANGES = 100
# Recorded violation of a constraint whose metric a stopped trial has not reported.
UNKNOWN = sys.float_info.max


@dataclass(frozen=True)
class Observations:
    """The n observations of a model. An observation is the value of a trial at a level.

    A level is a step at which trials were compared, or `FULL` for the final values of trials.

    Attributes:
        levels: (n,) levels.
        trials: The n trials. A trial has one observation for each level that it reached, so it may
            be here several times.
        values: Values, an array of shape (n, objectives). Smaller is better. A value is infinity if
            it is NaN in the study.
        feasible: (n,) booleans: True for the final value of a trial that satisfies all constraints.
    """

    levels: np.ndarray
    trials: list[FrozenTrial]
    values: np.ndarray
    feasible: np.ndarray


def fidelity(levels: np.ndarray, lowest: Level, full: float) -> np.ndarray:
    """Return the (n,) fidelities of levels: the logarithm of the step, scaled to [0, 1].

    The lowest step has the fidelity 0, and full fidelity is 1.

    Args:
        levels: (n,) levels.
        lowest: The lowest step.
        full: Step of full fidelity.
    """
    steps = np.where(levels == FULL, full, levels)
    scale = max(math.log(full) - math.log(lowest), 1e-9)
    fidelities: np.ndarray = np.where(
        levels == FULL, 1.0, (np.log(steps) - math.log(lowest)) / scale
    )
    return fidelities


def observations(history: History, rng: np.random.RandomState) -> Observations:
    """Choose at most `MOST` observations.

    Shift values at lower levels, so that they are comparable with values at the highest level.

    Args:
        history: History of the sweep, which has the trials so far.
        rng: Random number generator of the trial that is being sampled.
    """
    # Each observation, and the number by which its values are shifted
    chosen: list[tuple[Level, Rank, float]] = []
    levels = _levels(history)
    remaining = MOST
    shift = 0.0
    for i, level in enumerate(levels):
        if i:
            shift += _median_change(history, level, levels[i - 1])
        share = remaining // (len(levels) - i)
        ranks = _choose(_ranks_by_cell(history, level), share, rng)
        remaining -= len(ranks)
        chosen += [(level, rank, shift) for rank in ranks]
    return Observations(
        levels=np.array([level for level, _, _ in chosen]),
        trials=[history.known[rank.number] for _, rank, _ in chosen],
        values=np.array([[value + shift for value in rank.values] for _, rank, shift in chosen]),
        feasible=np.array([level == FULL and not rank.violation for level, rank, _ in chosen]),
    )


def _levels(history: History) -> list[Level]:
    """Return the levels that the model uses, the highest level first.

    Some schedulers have a rung at every step. So a level is used only if it is at most half of the
    level above it. With several objectives, only the final values are used, because the values at a
    step have only one objective.
    """
    if len(history.signs) > 1:
        return [FULL]
    used: list[Level] = []
    reached = [level for level in history.levels if history.count(level)]
    for level in sorted(reached, reverse=True):
        if not used or used[-1] == FULL or level <= used[-1] / 2:
            used.append(level)
    return used


def _ranks_by_cell(history: History, level: Level) -> list[list[Rank]]:
    """Return the trials of each cell that reached a level, the best trial of the cell first."""
    return [ranks for _, ranks in sorted(history.levels[level].items())]


def _choose(cells: list[list[Rank]], share: int, rng: np.random.RandomState) -> list[Rank]:
    """Return the trials of all cells, the best trial first.

    If there are more than `share`, half of the share are the best trials, and the other half is a
    random sample of the others.
    """
    ranks = [*itertools.chain.from_iterable(cells)]
    if len(ranks) <= share:
        return sorted(ranks)
    half = share // 2
    if len(ranks[0].values) > 1:
        order = front_first(ranks, half)
        sample = rng.choice(order[half:], share - half, replace=False)
        return [ranks[i] for i in (*order[:half], *sample)]
    best = list(itertools.islice(heapq.merge(*cells), half))
    # In each cell, the trials after the worst one of `best`
    others = [rank for cell in cells for rank in cell[bisect_right(cell, best[-1]) :]]
    sample = rng.choice(len(others), share - half, replace=False)
    return best + sorted(others[i] for i in sample)


def front_first(ranks: Sequence[Rank], count: int) -> np.ndarray:
    """Return the indices of all trials. The first `count` are the best ones, the best one first.

    A trial on an earlier Pareto front is better. On one front, a smaller sum of the values is
    better. A trial that violates constraints is worse than all others.
    """
    values = np.array([rank.values for rank in ranks], float)
    violations = np.array([rank.violation for rank in ranks], float)
    fronts = _fast_non_domination_rank(values, penalty=violations, n_below=count)
    return np.lexsort((values.sum(axis=1), fronts))


def _median_change(history: History, level: Level, above: Level) -> float:
    """Return the median change of the values of trials from a level to the next higher level.

    0 if no trial reached both. At most `CHANGES` trials count, evenly spread over the ranks.
    """
    changes = []
    ranks = [*itertools.chain.from_iterable(_ranks_by_cell(history, above))]
    for rank in ranks[:: math.ceil(len(ranks) / CHANGES)]:
        value = history.known[rank.number].intermediate_values.get(int(level), math.nan)
        change = rank.values[0] - history.signs[0] * value
        if math.isfinite(change):
            changes.append(change)
    return float(np.median(changes)) if changes else 0.0


def share_of_noise(repeats: Repeats) -> float:
    """Return the variance of a repeated configuration's value, relative to that of a trial's."""
    if repeats.aggregate == "mean":
        return 1 / repeats.count
    if repeats.aggregate == "median":  # π/2 is the factor for many normally distributed values
        return min(1.0, math.pi / 2 / repeats.count)
    return 1.0


def scaled(values: np.ndarray) -> tuple[np.ndarray, float]:
    """Scale values to mean 0 and standard deviation 1, and clip those much worse than the others.

    Values above the upper whisker of a box plot (Tukey, 1977: Exploratory Data Analysis) are
    clipped to the whisker. Without clipping, a single diverged trial would make all other trials
    look equal. Values that are not finite are also clipped to the whisker.

    Args:
        values: (n,) values; smaller is better.

    Returns:
        (n,) scaled values, zeros if fewer than two distinct values are finite; and the factor by
        which differences were multiplied.
    """
    finite = values[np.isfinite(values)]
    if not len(finite) or finite.min() == finite.max():
        return np.zeros(len(values)), 0.0
    # Halves, because the difference of two floats may overflow.
    low = finite.min() / 2
    high = finite.max() / 2
    unit = np.where(np.isfinite(values), (values / 2 - low) / (high - low), np.inf)
    first, third = np.quantile(unit[np.isfinite(unit)], (0.25, 0.75))
    unit = np.minimum(unit, third + 1.5 * (third - first))
    deviation = max(float(unit.std()), 1e-12)
    factor = 0.5 / (high - low) / deviation
    return (unit - unit.mean()) / deviation, float(factor)


@dataclass(frozen=True)
class Limit:
    """Observations of a quantity that must not exceed a threshold: a constraint, or a failure.

    Attributes:
        name: Name of the process that models the quantity.
        levels: (n,) levels at which the trials ended.
        trials: The n trials.
        values: (n,) values, with mean 0 and standard deviation 1.
        threshold: Largest allowed value, on the scale of `values`.
    """

    name: str
    levels: np.ndarray
    trials: list[FrozenTrial]
    values: np.ndarray
    threshold: float

    @classmethod
    def scaled(
        cls, name: str, levels: list[Level], trials: list[FrozenTrial], values: np.ndarray
    ) -> Limit:
        """Return the limit of values whose largest allowed value is 0. The values are scaled."""
        mean = float(values.mean())
        deviation = max(float(values.std()), 1e-12)
        return cls(name, np.array(levels), trials, (values - mean) / deviation, -mean / deviation)


def limits(
    history: History,
    trials: Sequence[FrozenTrial],
    names: Collection[str],
    rng: np.random.RandomState,
) -> Iterator[Limit]:
    """Yield a limit for failures if a trial failed, and one for each violated constraint.

    A failure has the value 1, and any other end of a trial has the value −1.

    Args:
        history: History of the sweep.
        trials: Trials whose values the model uses. They may occur several times, and may be
            running.
        names: Names of the dimensions that a failed trial must have.
        rng: Random number generator of the trial that is being sampled.
    """
    unique = {t.number: t for t in trials}.values()
    ended = [t for t in unique if t.state in (TrialState.COMPLETE, TrialState.PRUNED)]
    failed = [t for _, t in sorted(history.failed.items()) if t.params.keys() >= set(names)]
    if failed and ended:
        if len(failed) > MOST // 2:
            failed = [failed[i] for i in sorted(rng.choice(len(failed), MOST // 2, replace=False))]
        yield Limit.scaled(
            "failure",
            [FULL] * (len(ended) + len(failed)),
            ended + failed,
            np.repeat([-1.0, 1.0], [len(ended), len(failed)]),
        )
    for name in sorted({name for t in ended for name in t.constraints}):
        measured = [t for t in ended if t.constraints.get(name, UNKNOWN) < UNKNOWN]
        if not measured:
            continue
        values = np.array([t.constraints[name] for t in measured])
        if values.max() > 0:
            # A constraint is satisfied up to 0. Violations may be huge. The inverse hyperbolic sine
            # is linear near this threshold, and logarithmic far from it.
            unit = float(np.median(np.abs(values[values != 0])))
            levels = [
                FULL if t.state is TrialState.COMPLETE else t.last_step or 1 for t in measured
            ]
            yield Limit.scaled(f"constraint {name}", levels, measured, np.arcsinh(values / unit))
