"""Gaussian process over configuration and step, as in MOBSTER. It suggests the configuration with the largest expected improvement.

MOBSTER: Klein et al., 2020, Model-based Asynchronous Hyperparameter and Neural Architecture Search.

The expected improvement is computed at full fidelity, the step at which a trial ends. The logarithm of the step is one more input dimension
of the kernel. The length scale of this dimension is fitted, so the fit decides how strongly a value at one rung predicts a value at another
rung.

`gp_observations` chooses the observations, `gaussian_process` has the process, `candidates` draws candidates, `acquisition` scores them.
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

from sweeps.search.samplers.candidates import BEST, Candidates
from sweeps.search.samplers.encoding import Axes
from sweeps.search.samplers.gp_observations import observations, standardized
from sweeps.search.samplers.history import FULL, History, internal, point_of

if TYPE_CHECKING:
    from sweeps.search.samplers.gaussian_process import Process

# The kernel is fitted again when the number of values has grown by this factor since the last fit.
GROWTH = 1.05
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
        self._fitted: tuple[int, list[float]] | None = None  # number of values at the last fit, and the fitted parameters

    def suggest(self, history: History, cell: Mapping[str, Any], rng: np.random.RandomState) -> dict[str, Any]:
        """Return values by dimension; see `Model.suggest`.

        If this call fits the kernel, it records the fitted parameters as a system attribute of the trial that is being sampled.
        """
        study, number = history.study, history.number
        if not set(self.names) - set(cell):
            return {}
        if number == 0:
            return self._values(Candidates(self.axes, cell, set()).in_cell(self.axes.middle(rng))[0], cell)
        if len(history.known) < self.enough:
            return {}
        # Not needed for the first trials.
        from sweeps.search.samplers.acquisition import Surrogate, acquisition
        from sweeps.search.samplers.gaussian_process import Process

        observed = observations(history, rng)
        steps = sorted({level for level, _, _ in observed if level != FULL})
        full = self.max_t or max([history.last_step, *steps])
        low = math.log(min([*steps, full]))
        span = max(math.log(full) - low, 1e-9)
        fidelity = [1.0 if level == FULL else (math.log(level) - low) / span for level, _, _ in observed]
        x = np.column_stack([self._places([trial for _, trial, _ in observed]), fidelity])
        process = Process(x, standardized(np.array([value for _, _, value in observed])), self._categorical)
        process.condition(self._theta(study, history, number, process))
        surrogate = Surrogate(process, self._at_full)
        pending = [t for n, t in history.running.items() if n != number and self.names.keys() <= t.params.keys()]
        if pending:
            surrogate.imagine(self._places(pending))
        taken = history.tried | {point_of(t.params, t.distributions) for t in pending}
        candidates = Candidates(self.axes, cell, taken)
        observed_places = candidates.in_cell(x[:, :-1])
        mean = surrogate.predict(observed_places)[0]
        centers = observed_places[np.argsort(mean)[:BEST]]
        place = candidates.best(lambda places: acquisition(surrogate, float(mean.min()), places), centers, rng)
        return {} if place is None else self._values(place, cell)

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
