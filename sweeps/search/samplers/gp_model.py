"""A Gaussian process over configuration and fidelity together, as in MOBSTER (Klein et al., 2020: Model-based Asynchronous Hyperparameter
and Neural Architecture Search), with the expected improvement at full fidelity.

Values of a trial change with its steps. The change between two rungs is taken out as the median over the trials that came to both; what
is left is brought to one scale, on which no bad value lies far off. The fidelity is one more dimension of the kernel, by its logarithm, so
that a rung tells as much of the next as the data say.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from optuna import Study
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial
from scipy.linalg import cho_solve, solve_triangular
from scipy.optimize import minimize
from scipy.spatial.distance import cdist
from scipy.special import ndtr

from sweeps.search.samplers.encoding import Axes
from sweeps.search.samplers.history import FULL, History, Point, internal, point_of

# Values that the model is made of at most: of each rung, from the highest down, its best and a sample of its others.
MOST = 160
# The kernel is fitted anew when there are so many times the values it was fitted to.
GROWTH = 1.05
# Suggestions that are compared: some anywhere, some around each time the best so many.
ANYWHERE, AROUND, BEST = 384, 192, 16
# Of a step, that of the deviation by which a neighbour lies off: two of five are on another one.
REACH = 0.6
FITTED = "gp:fitted"


class Process:
    """A Gaussian process with a Matern-5/2 kernel, a length scale a column.

    Args:
        x: (n, d) inputs.
        y: (n,) values, about standard normal.
        categorical: (d,) whether a column's values are only equal or not.
    """

    def __init__(self, x: np.ndarray, y: np.ndarray, categorical: np.ndarray):
        self.x, self.y, self.categorical = x, y, categorical

    @cached_property
    def _squared(self) -> np.ndarray:
        """Return the (n, n, d) squared differences by column."""
        delta = self.x[:, None, :] - self.x[None, :, :]
        squared: np.ndarray = np.where(self.categorical, delta != 0, delta * delta)
        return squared

    def fit(self, start: np.ndarray, noise: float | None = None) -> np.ndarray:
        """The (d + 2,) logarithms of length scales, scale and noise that are most probable.

        Args:
            start: where to look from.
            noise: the variance of noise if it is known.
        """
        bounds = [(-2.5, 4.0)] * self.x.shape[1] + [(-3.0, 3.0), (-9.0, 0.0)]
        if noise is not None:
            bounds[-1] = (math.log(noise), math.log(noise))
        start = np.clip(start, [low for low, _ in bounds], [high for _, high in bounds])
        found = minimize(self._loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 40})
        return found.x if np.isfinite(found.fun) else start

    def _loss(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        """The negative logarithm of the posterior density of the kernel's parameters, and its gradient."""
        d, n = self.x.shape[1], len(self.y)
        weights, scale, noise = np.exp(-2 * theta[:d]), math.exp(theta[d]), math.exp(theta[d + 1])
        r = np.sqrt(5 * (self._squared @ weights))
        decay = scale * np.exp(-r)
        kernel = decay * (1 + r + r * r / 3)
        try:
            low = np.linalg.cholesky(kernel + (noise + 1e-8) * np.eye(n))
        except np.linalg.LinAlgError:
            return 1e10, np.zeros_like(theta)
        alpha = cho_solve((low, True), self.y)
        inverse = cho_solve((low, True), np.eye(n))
        outer = inverse - np.outer(alpha, alpha)
        by_distance = outer * (decay * (1 + r) * (5 / 3))
        gradient = np.empty_like(theta)
        gradient[:d] = 0.5 * weights * np.einsum("ij,ijk->k", by_distance, self._squared)
        gradient[d] = 0.5 * np.sum(outer * kernel)
        gradient[d + 1] = 0.5 * noise * np.trace(outer)
        loss = 0.5 * self.y @ alpha + np.log(np.diag(low)).sum()
        # priors: length scales about the size of the space, more for more dimensions; a scale about 1; little noise
        means = np.concatenate([np.full(d, 0.5 * math.log(d) - 0.5), [0.0, -4.0]])
        widths = np.concatenate([np.full(d, 1.0), [1.0, 2.0]])
        z = (theta - means) / widths
        return loss + 0.5 * z @ z, gradient + z / widths

    def condition(self, theta: np.ndarray) -> None:
        """Set the parameters of the kernel."""
        d = self.x.shape[1]
        self._weights, self._scale, self._noise = np.exp(-2 * theta[:d]), math.exp(theta[d]), math.exp(theta[d + 1])
        self._solve(self._kernel(self.x, self.x))

    def _kernel(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Return the (n, m) covariances of (n, d) and (m, d) inputs."""
        scale = np.sqrt(5 * self._weights) * ~self.categorical
        squared = cdist(a * scale, b * scale, "sqeuclidean")
        for i in np.flatnonzero(self.categorical):
            squared += 5 * self._weights[i] * (a[:, None, i] != b[:, i])
        r = np.sqrt(squared)
        kernel: np.ndarray = self._scale * np.exp(-r) * (1 + r + r * r / 3)
        return kernel

    def _solve(self, kernel: np.ndarray) -> None:
        self._low = np.linalg.cholesky(kernel + (self._noise + 1e-6) * np.eye(len(self.y)))
        self._alpha = cho_solve((self._low, True), self.y)

    def imagine(self, x: np.ndarray) -> None:
        """Add inputs with their expected values, so that they are not suggested again."""
        if len(x):
            y = self.predict(x)[0]
            self.x, self.y = np.vstack([self.x, x]), np.concatenate([self.y, y])
            self._solve(self._kernel(self.x, self.x))

    def predict(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the (m,) means and standard deviations at (m, d) inputs."""
        kernel = self._kernel(x, self.x)
        solved = solve_triangular(self._low, kernel.T, lower=True, check_finite=False)
        variance = np.maximum(self._scale - np.sum(solved * solved, axis=0), 1e-12)
        return kernel @ self._alpha, np.sqrt(variance)

    def improvement(self, x: np.ndarray, best: float) -> np.ndarray:
        """Return the (m,) expected improvements below `best`."""
        mean, deviation = self.predict(x)
        z = (best - mean) / deviation
        gain: np.ndarray = (best - mean) * ndtr(z) + deviation * np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
        return gain


class GpModel:
    """Suggests where the expected improvement at full fidelity is greatest; for the first trial the middle of the space, as Google's Vizier
    does (Song et al., 2024: The Vizier Gaussian Process Bandit Algorithm): whoever writes ranges puts them around what may work.

    Args:
        n_startup_trials: below so many trials with a value all is random.
        deterministic_objective: whether the same configuration has the same value again.
        space: the dimensions that every trial has; others are sampled independently.
        max_t: the step at which a trial ends; the highest on record where it is not known.
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
        # So far at least a neighbour may lie off, or of what has wide steps it would always be the same
        self._reach = np.zeros(len(self.names))
        self._reach[self.axes.numbers] = np.where(self.axes.log, 0.0, REACH * self.axes.step / self.axes.width)
        self._fitted: tuple[int, list[float]] | None = None  # to how many values, and the kernel's parameters

    def suggest(self, history: History, cell: Mapping[str, Any], rng: np.random.RandomState) -> dict[str, Any]:
        """Return values by dimension; see `Model.suggest`. If the kernel is fitted again, its parameters are recorded with the trial."""
        study, number = history.study, history.number
        if not set(self.names) - set(cell):
            return {}
        if number == 0:
            return self._values(self._in_cell(self.axes.middle(rng), cell)[0], cell)
        if len(history.known) < self.enough:
            return {}
        observed = observations(history, rng)
        steps = sorted({level for level, _, _ in observed if level != FULL})
        full = self.max_t or max([history.last_step, *steps])
        low = math.log(min([*steps, full]))
        span = max(math.log(full) - low, 1e-9)
        fidelity = [1.0 if level == FULL else (math.log(level) - low) / span for level, _, _ in observed]
        x = np.column_stack([self._places([trial for _, trial, _ in observed]), fidelity])
        process = Process(x, standardised(np.array([value for _, _, value in observed])), self._categorical)
        process.condition(self._theta(study, history, number, process))
        pending = [t for n, t in history.running.items() if n != number and self.names.keys() <= t.params.keys()]
        if pending:
            process.imagine(self._at_full(self._places(pending)))
        # as in `Tpe`, none twice: where all dimensions are discrete, a value that is uncertain would be asked for over and over
        taken = history.tried | {point_of(t.params, t.distributions) for t in pending}
        seen = self._in_cell(x[:, :-1], cell)
        mean = process.predict(self._at_full(seen))[0]
        best, centres = float(mean.min()), seen[np.argsort(mean)[:BEST]]
        candidates = self._fresh(np.vstack([self.axes.anywhere(rng, ANYWHERE), self._around(centres, 0.1, rng)]), cell, taken)
        gain = process.improvement(self._at_full(candidates), best)
        for width in (0.05, 0.01):
            if not len(candidates):
                return {}
            more = self._fresh(self._around(candidates[np.argsort(-gain, kind="stable")[:BEST]], width, rng), cell, taken)
            gain = np.append(gain, process.improvement(self._at_full(more), best))
            candidates = np.vstack([candidates, more])
        return self._values(candidates[np.argmax(gain)], cell)

    def _theta(self, study: Study, history: History, number: int, process: Process) -> np.ndarray:
        """Return the parameters of the kernel: the recorded ones, or fitted again if there are enough new values."""
        count = sum(history.count(level) for level in history.levels)
        if self._fitted is None:
            told = (t.system_attrs.get(FITTED) for t in reversed(study.get_trials(deepcopy=False)))
            self._fitted = next(((n, theta) for n, theta in (json.loads(text) for text in told if text)), None)
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
        """Return the (n, dimensions) places of trials that have all dimensions."""
        observed = internal(trials, self.names)
        return self.axes.places(np.column_stack([observed[name] for name in self.axes.names]))

    def _values(self, place: np.ndarray, cell: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of a place, without those of the cell."""
        return {name: value for name, value in self.axes.external(place).items() if name not in cell}

    def _at_full(self, x: np.ndarray) -> np.ndarray:
        """Return the inputs at full fidelity."""
        return np.column_stack([x, np.ones(len(x))])

    def _fresh(self, places: np.ndarray, cell: Mapping[str, Any], taken: set[Point]) -> np.ndarray:
        """Move places to the cell, and leave out points that are taken. The returned points are taken from then on."""
        places = self._in_cell(places, cell)
        if not self._discrete:
            return places
        values = places.copy()
        values[:, self.axes.numbers] = self.axes.values(places[:, self.axes.numbers])
        points = [frozenset(zip(self.axes.names, row, strict=True)) for row in values.tolist()]
        kept = []
        for i, point in enumerate(points):
            if point not in taken:
                taken.add(point)
                kept.append(i)
        return places[kept]

    def _in_cell(self, x: np.ndarray, cell: Mapping[str, Any]) -> np.ndarray:
        """Return the places with the values of the cell."""
        x = x.copy()
        for i, (name, distribution) in enumerate(self.names.items()):
            if name in cell:
                x[:, i] = distribution.to_internal_repr(cell[name])
        return x

    def _around(self, centres: np.ndarray, width: float, rng: np.random.RandomState) -> np.ndarray:
        """Return neighbours of the centres, which differ in some dimensions."""
        x = centres[rng.randint(len(centres), size=AROUND)]
        changed = rng.rand(*x.shape) < max(0.5, 1 / x.shape[1])
        moved = np.clip(x + changed * rng.normal(0, 1, x.shape) * np.maximum(width, self._reach), 0, 1)
        for i, count in self.axes.choices.items():
            moved[:, i] = np.where(rng.rand(len(x)) < 0.1, rng.randint(count, size=len(x)), x[:, i])
        return self.axes.on_steps(moved)


def observations(history: History, rng: np.random.RandomState) -> list[tuple[float, FrozenTrial, float]]:
    """Level, trial and value (smaller is better) of at most `MOST` observations, those of the rungs below as they would be at the highest.

    The value of what failed or violates a constraint is that of the worst.
    """
    by_level: dict[float, list[tuple[float, float, int]]] = {}
    for level in sorted((level for level in history.levels if history.count(level)), reverse=True):
        if min(by_level, default=FULL) in (FULL, level) or level <= min(by_level) / 2:  # each step is one where all are compared
            cells = history.levels[level].values()
            by_level[level] = sorted((violation, values[0], number) for cell in cells for violation, values, number in cell)
    shift, shifts = 0.0, {}
    above: dict[int, float] = {}
    for level, ranked in by_level.items():
        values = {number: value for violation, value, number in ranked if not violation and math.isfinite(value)}
        if change := [above[n] - v for n, v in values.items() if n in above]:
            shift += float(np.median(change))
        shifts[level], above = shift, values
    found: list[tuple[float, FrozenTrial, float]] = []
    left = MOST
    for i, (level, ranked) in enumerate(by_level.items()):
        share = left // (len(by_level) - i)
        if len(ranked) > share:
            best = share // 2
            picked = best + rng.choice(len(ranked) - best, share - best, replace=False)
            ranked = ranked[:best] + [ranked[j] for j in sorted(picked)]
        left -= len(ranked)
        for violation, value, number in ranked:
            found.append((level, history.known[number], math.inf if violation else value + shifts[level]))
    return found


def standardised(values: np.ndarray) -> np.ndarray:
    """(n,) values with mean 0 and deviation 1.

    None is worse (higher) than a boxplot's whisker reaches (Tukey, 1977: Exploratory Data Analysis): beside what diverged all others would
    look alike. What is not finite is at the whisker's end.
    """
    finite = values[np.isfinite(values)]
    if not len(finite) or finite.min() == finite.max():
        return np.zeros(len(values))
    low, high = finite.min() / 2, finite.max() / 2  # halves, as the difference of two numbers may be too large for one
    unit = np.where(np.isfinite(values), (values / 2 - low) / (high - low), np.inf)
    first, third = np.quantile(unit[np.isfinite(unit)], (0.25, 0.75))
    unit = np.minimum(unit, third + 1.5 * (third - first))
    scaled: np.ndarray = (unit - unit.mean()) / max(unit.std(), 1e-12)
    return scaled
