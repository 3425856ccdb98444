"""Gaussian process over configuration and step, as in MOBSTER. It suggests the configuration with the largest expected improvement.

MOBSTER: Klein et al., 2020, Model-based Asynchronous Hyperparameter and Neural Architecture Search.

The expected improvement is computed at full fidelity, the step at which a trial ends. The value of a trial changes from rung to rung. The
model therefore shifts the values of a lower rung by the median change to the next higher rung. The median is taken over the trials that
reached both rungs. The shifted values are standardized, and very bad values are clipped. The logarithm of the step is one more input
dimension of the kernel. The length scale of this dimension is fitted, so the fit decides how strongly a value at one rung predicts a value
at another rung.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from optuna import Study
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial

from sweeps.search.samplers.encoding import Axes
from sweeps.search.samplers.history import FULL, History, Point, internal, point_of

if TYPE_CHECKING:
    from sweeps.search.samplers.gaussian_process import Process

# Largest number of observations in the model. This number is divided among the rungs. If a rung has more trials than its share, the model
# uses the rung's best trials and a random sample of its other trials.
MOST = 160
# The kernel is fitted again when the number of values has grown by this factor since the last fit.
GROWTH = 1.05
# Numbers of candidates: ANYWHERE uniform points at first. Each round then adds AROUND neighbors of the BEST points so far.
ANYWHERE, AROUND, BEST = 384, 192, 16
# Smallest standard deviation of a neighbor's distance from its center, as a fraction of the dimension's step. With this value, two of five
# neighbors are on another step than their center.
REACH = 0.6
# System attribute of a trial for which the kernel was fitted: (number of values, parameters of the kernel).
FITTED = "gp:fitted"


class GpModel:
    """Suggest the configuration with the largest expected improvement at full fidelity.

    The first suggestion is the middle of each numeric dimension, with a random option of each other dimension. The middle is often good,
    because users tend to choose ranges around values that work. Google's Vizier does the same (Song et al., 2024: The Vizier Gaussian
    Process Bandit Algorithm).

    Args:
        n_startup_trials: Number of trials that must have a value before the model is used. Until then, suggestions are random, except the
            first one.
        deterministic_objective: True if equal configurations have equal values.
        space: Distributions of the dimensions that every trial has. The other dimensions are sampled independently.
        max_t: Step at which a trial ends. This step is full fidelity. If None, the highest recorded step is full fidelity.
    """

    def __init__(
        self,
        n_startup_trials: int = 10,
        deterministic_objective: bool = False,
        space: Mapping[str, BaseDistribution] | None = None,
        max_t: int | None = None,
    ):
        self.enough, self.noise, self.max_t = n_startup_trials, 1e-6 if deterministic_objective else None, max_t
        self.names = {name: distribution for name, distribution in sorted((space or {}).items()) if not distribution.single()}
        self.axes = Axes(self.names)
        self._categorical = np.array([i in self.axes.choices for i in range(len(self.names) + 1)])
        self._discrete = bool((self.axes.step > 0).all())
        # Smallest standard deviation for neighbors in each dimension. Without this minimum, a dimension with wide steps would never change.
        self._reach = np.zeros(len(self.names))
        self._reach[self.axes.numbers] = np.where(self.axes.log, 0.0, REACH * self.axes.step / self.axes.width)
        self._fitted: tuple[int, list[float]] | None = None  # number of values at the last fit, and the fitted parameters

    def suggest(self, history: History, cell: Mapping[str, Any], rng: np.random.RandomState) -> dict[str, Any]:
        """Return values by dimension; see `Model.suggest`.

        If this call fits the kernel, it records the fitted parameters as a system attribute of the trial that is being sampled.
        """
        study, number = history.study, history.number
        if not set(self.names) - set(cell):
            return {}
        if number == 0:
            return self._values(self._in_cell(self.axes.middle(rng), cell)[0], cell)
        if len(history.known) < self.enough:
            return {}
        from sweeps.search.samplers.gaussian_process import Process  # Not needed for the first trials.

        observed = observations(history, rng)
        steps = sorted({level for level, _, _ in observed if level != FULL})
        full = self.max_t or max([history.last_step, *steps])
        low = math.log(min([*steps, full]))
        span = max(math.log(full) - low, 1e-9)
        fidelity = [1.0 if level == FULL else (math.log(level) - low) / span for level, _, _ in observed]
        x = np.column_stack([self._places([trial for _, trial, _ in observed]), fidelity])
        process = Process(x, standardized(np.array([value for _, _, value in observed])), self._categorical)
        process.condition(self._theta(study, history, number, process))
        pending = [t for n, t in history.running.items() if n != number and self.names.keys() <= t.params.keys()]
        if pending:
            process.imagine(self._at_full(self._places(pending)))
        # As in `Tpe`, no point is suggested twice if all dimensions are discrete. Without this rule, an uncertain point would be suggested
        # again and again.
        taken = history.tried | {point_of(t.params, t.distributions) for t in pending}
        observed_places = self._in_cell(x[:, :-1], cell)
        mean = process.predict(self._at_full(observed_places))[0]
        best, centers = float(mean.min()), observed_places[np.argsort(mean)[:BEST]]
        candidates = self._fresh(np.vstack([self.axes.anywhere(rng, ANYWHERE), self._around(centers, 0.1, rng)]), cell, taken)
        improvement = process.improvement(self._at_full(candidates), best)
        for width in (0.05, 0.01):
            if not len(candidates):
                return {}
            neighbors = self._fresh(self._around(candidates[np.argsort(-improvement, kind="stable")[:BEST]], width, rng), cell, taken)
            improvement = np.append(improvement, process.improvement(self._at_full(neighbors), best))
            candidates = np.vstack([candidates, neighbors])
        return self._values(candidates[np.argmax(improvement)], cell)

    def _theta(self, study: Study, history: History, number: int, process: Process) -> np.ndarray:
        """Return the parameters of the kernel.

        If the history has enough new values since the last fit, the parameters are fitted again and recorded in the study. Otherwise the
        parameters of the last fit are returned.
        """
        count = sum(history.count(level) for level in history.levels)
        if self._fitted is None:
            recorded = (t.system_attrs.get(FITTED) for t in reversed(study.get_trials(deepcopy=False)))
            self._fitted = next(((n, theta) for n, theta in (json.loads(text) for text in recorded if text)), None)
        start = np.array([0.0] * process.x.shape[1] + [0.0, -4.0])
        if self._fitted is None or count >= GROWTH * self._fitted[0]:
            if self._fitted is not None:
                start = np.array(self._fitted[1])
            theta = [round(float(value), 4) for value in process.fit(start, self.noise)]
            self._fitted = (count, theta)
            trial_id = study.get_trials(deepcopy=False)[number]._trial_id
            study._storage.set_trial_system_attr(trial_id, FITTED, json.dumps(self._fitted))
        return np.array(self._fitted[1])

    def _places(self, trials: list[FrozenTrial]) -> np.ndarray:
        """Return the places of n trials, an array of shape (n, dimensions). Each trial must have all dimensions."""
        observed = internal(trials, self.names)
        return self.axes.places(np.column_stack([observed[name] for name in self.axes.names]))

    def _values(self, place: np.ndarray, cell: Mapping[str, Any]) -> dict[str, Any]:
        """Convert the places of one trial, an array of shape (dimensions,), to values by dimension name. Leave out grid dimensions."""
        return {name: value for name, value in self.axes.external(place).items() if name not in cell}

    def _at_full(self, x: np.ndarray) -> np.ndarray:
        """Append the column of full fidelity to places of shape (n, dimensions).

        The result, of shape (n, dimensions + 1), is an input of a `Process`.
        """
        return np.column_stack([x, np.ones(len(x))])

    def _fresh(self, places: np.ndarray, cell: Mapping[str, Any], taken: set[Point]) -> np.ndarray:
        """Set the grid dimensions of places to the values of the cell, and return the rows that can be suggested.

        The shape is (n, dimensions).

        If all dimensions are discrete, a row is left out if its configuration is in `taken`. The configurations of the returned rows are
        added to `taken`. If a dimension is continuous, all rows are returned.
        """
        places = self._in_cell(places, cell)
        if not self._discrete:
            return places
        values = places.copy()
        values[:, self.axes.numbers] = self.axes.values(places[:, self.axes.numbers])
        points = [frozenset(zip(self.axes.names, row, strict=True)) for row in values.tolist()]
        fresh = []
        for i, point in enumerate(points):
            if point not in taken:
                taken.add(point)
                fresh.append(i)
        return places[fresh]

    def _in_cell(self, x: np.ndarray, cell: Mapping[str, Any]) -> np.ndarray:
        """Return a copy of places of shape (n, dimensions), with the grid dimensions set to the values of the cell."""
        x = x.copy()
        for i, (name, distribution) in enumerate(self.names.items()):
            if name in cell:
                x[:, i] = distribution.to_internal_repr(cell[name])
        return x

    def _around(self, centers: np.ndarray, width: float, rng: np.random.RandomState) -> np.ndarray:
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
