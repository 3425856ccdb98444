"""Gaussian process over configuration and step, as in MOBSTER.

It suggests the configuration with the largest expected improvement.

MOBSTER: Klein et al., 2020, Model-based Asynchronous Hyperparameter and Neural Architecture Search.

The expected improvement is computed at full fidelity, the step at which a trial ends. The logarithm
of the step is one more input dimension of the kernel. The length scale of this dimension is fitted,
so the fit decides how strongly a value at one rung predicts a value at another rung. There is one
process for each objective, one for each constraint that some trial violates, and one for failures
if some trial failed.

`gp_observations` chooses the observations, `gaussian_process` has the process, `candidates` draws
candidates, `acquisition` scores them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from optuna import Study
from optuna.trial import FrozenTrial

from sweeps.space.model.conditions import Key

from .activity import Activity, is_ordered
from .candidates import BEST, Candidates
from .encoding import Axes
from .gp_kernels import FittedKernels
from .gp_observations import (
    MOST,
    Observations,
    fidelity,
    limits,
    observations,
    scaled,
    share_of_noise,
)
from .sampler import SamplerContext
from .trial_groups import FULL, History, point_of

if TYPE_CHECKING:
    from .acquisition import Surrogate
    from .warm_start import EarlierProcess


class GpModel:
    """Suggest the configuration with the largest expected improvement at full fidelity.

    The first suggestion is the middle of each numeric dimension, with a random option of each other
    dimension. The middle is often good, because users tend to choose ranges around values that
    work. Google's Vizier does the same (Song et al., 2024: The Vizier Gaussian Process Bandit
    Algorithm).

    Args:
        context: Facts about the sweep. The scheduler's `max_t` is full fidelity; if it is None, the
            highest recorded step is.
        n_startup_trials, deterministic_objective: See `Gp`.
    """

    def __init__(
        self, context: SamplerContext, n_startup_trials: int, deterministic_objective: bool
    ):
        self._n_startup_trials = n_startup_trials
        self._deterministic_objective = deterministic_objective
        self.space = context.space
        distributions = {
            name: distribution
            for name, distribution in sorted(context.distributions.items())
            if not distribution.single()
        }
        self.axes = Axes(distributions, [d.name for d in self.space.dimensions if is_ordered(d)])
        # Names of the dimensions that every trial has
        self.always = distributions.keys() & {d.name for d in self.space.always}
        self.activity: Activity | None = None
        if len(self.space.always) < len(self.space.dimensions):
            self.activity = Activity(self.space, self.axes.names)
        # For each input of a process; the last input is the fidelity.
        columns = range(len(distributions) + 1)
        self._categorical = np.array([column in self.axes.choices for column in columns])
        self._kernels = FittedKernels()
        self._ended_rows: dict[int, list[float]] = {}  # `Axes.row` of ended trials, by number
        self._earlier: Sequence[Sequence[EarlierProcess]] = ()
        if context.earlier:
            from .warm_start import earlier_processes

            self._earlier = earlier_processes(context, self.axes)

    def suggest(
        self, history: History, cell: Mapping[str, Key], rng: np.random.RandomState
    ) -> dict[str, Key]:
        """Return values by dimension; see `SuggestingSampler.suggest`.

        If this call fits kernels, it records the fitted parameters as a system attribute of the
        trial that is being sampled.
        """
        if not set(self.axes.names) - set(cell):
            return {}
        place: np.ndarray | None
        if history.number == 0:
            candidates = Candidates(self.axes, self.activity, cell)
            place = candidates.in_cell(self.axes.middle(rng))[0]
        elif len(history.known) < self._n_startup_trials:
            return {}
        else:
            place = self._best_place(history, cell, rng)
        if place is None:
            return {}
        values = self.axes.external(place)
        return {name: value for name, value in values.items() if name not in cell}

    def _best_place(
        self, history: History, cell: Mapping[str, Key], rng: np.random.RandomState
    ) -> np.ndarray | None:
        """Return the places with the largest score, an array of shape (dimensions,).

        Return None for random values.
        """
        from .acquisition import acquisition, best_first, improvement_region

        observed = observations(history, rng)
        surrogate = self._surrogate(history, observed, rng)
        running = [
            t
            for n, t in history.running.items()
            if n != history.number and self.always <= t.params.keys()
        ]
        surrogate.imagine(self._places(running))

        running_points = {point_of(t.params, t.distributions) for t in running}
        candidates = Candidates(
            self.axes,
            self.activity,
            cell,
            lambda point: point in history.tried or point in running_points,
        )
        # The places of all trials, as if they were in this cell
        places = self._places([*observed.trials, *running])
        places = candidates.in_cell(candidates.fill(places, rng))
        means = surrogate.predict(places)[0]
        feasibility = surrogate.feasibility(places)
        # Observed trials, which come first, are certainly feasible if they ended so.
        feasibility[: len(observed.feasible)][observed.feasible] = 1.0
        region = improvement_region(means[feasibility >= 0.5])
        centers = places[best_first(means, feasibility)[:BEST]]
        self._kernels.record(history.study, history.number)
        return candidates.best(lambda places: acquisition(surrogate, region, places), centers, rng)

    def _surrogate(
        self, history: History, observed: Observations, rng: np.random.RandomState
    ) -> Surrogate:
        """Condition a process for each objective, each violated constraint, and failures.

        If there are earlier sweeps, an objective has two processes: with and without their
        predictions as prior mean. The one that predicts the trials better is used.
        """
        from .acquisition import Bound, Surrogate
        from .gaussian_process import NONE, VAGUE, Process

        # Kernels are fitted again when this number has grown.
        count = sum(history.count(level) for level in history.levels) + len(history.failed)
        full = self.space.scheduler.max_t or history.last_step
        lowest = min([*observed.levels, full])
        inputs = self._inputs(
            self._places(observed.trials), fidelity(observed.levels, lowest, full)
        )
        shares = np.where(observed.levels == FULL, share_of_noise(self.space.repeats), 1.0)
        freedom, variances = history.noise()
        objectives = []
        for i, variance in enumerate(variances):
            values, factor = scaled(observed.values[:, i])
            noise = VAGUE.with_estimate(variance * factor**2, freedom)
            if self._deterministic_objective:
                noise = NONE
            create = functools.partial(
                Process, inputs, values, self._categorical, shares=shares, noise=noise
            )
            name = f"objective {i}"
            process = create()
            self._kernels.condition(process, name, history.study, count)
            if self._earlier and self._earlier[i]:
                from .warm_start import predicts_better, prior_mean

                informed = create(prior=prior_mean(self._earlier[i], inputs, values))
                name = f"objective {i} with earlier sweeps"
                self._kernels.condition(informed, name, history.study, count)
                if predicts_better(informed, process, observed.trials):
                    process = informed
            objectives.append(process)
        bounds = []
        for limit in limits(history, observed.trials, self.always, rng):
            inputs = self._inputs(self._places(limit.trials), fidelity(limit.levels, lowest, full))
            process = Process(inputs, limit.values, self._categorical)
            self._kernels.condition(process, limit.name, history.study, count)
            bounds.append(Bound(process, limit.threshold))
        return Surrogate(objectives, bounds, self._at_full)

    def final_means(self, study: Study, variance: float) -> dict[int, float]:
        """Return the posterior mean of the objective at the complete configurations.

        Smaller is better. Only the best `MOST` feasible configurations are modeled. The mean is
        less noisy than the value, because similar configurations have similar scores.

        Args:
            study: A study with one objective.
            variance: Variance of the noise of a configuration's value.

        Returns:
            The means by the number of the configuration's first trial; {} if fewer than two
            distinct values are known, or if nothing is tuned.
        """
        from .gaussian_process import LEAST_NOISE, Noise, Process

        history = History(repeats=self.space.repeats)
        history.refresh(study)
        ranks = [rank for cell in history.levels[FULL].values() for rank in cell]
        ranks = sorted(rank for rank in ranks if not rank.violation)[:MOST]
        values, factor = scaled(np.array([rank.values[0] for rank in ranks]))
        if not factor or not self.axes.names:
            return {}
        noise = Noise(math.log(min(max(variance * factor**2, LEAST_NOISE), 1.0)), 0.0)
        inputs = self._at_full(self._places([history.known[rank.number] for rank in ranks]))
        process = Process(inputs, values, self._categorical, noise=noise)
        process.condition(process.fit(process.start))
        means = process.predict(inputs)[0]
        return {rank.number: float(mean) for rank, mean in zip(ranks, means, strict=True)}

    def _places(self, trials: Sequence[FrozenTrial]) -> np.ndarray:
        """Return the places of n trials, an array of shape (n, dimensions).

        The place of a dimension that a trial lacks is NaN.
        """
        rows = []
        for trial in trials:
            row = self._ended_rows.get(trial.number)
            if row is None:
                row = self.axes.row(trial.params)
                if trial.state.is_finished():
                    self._ended_rows[trial.number] = row
            rows.append(row)
        return self.axes.places(np.array(rows).reshape(-1, len(self.axes.names)))

    def _inputs(self, places: np.ndarray, fidelities: np.ndarray) -> np.ndarray:
        """Convert places and fidelities to inputs of a `Process`.

        The places have the shape (n, dimensions), the fidelities (n,), and the inputs (n,
        dimensions + 1). In place of an inactive dimension, the input is the middle of its range, or
        an option of its own if it is a choice. The dimensions on which the condition depends tell
        the process whether the dimension is active.
        """
        inactive = np.where(self._categorical[:-1], -1.0, 0.5)
        return np.column_stack([np.where(np.isnan(places), inactive, places), fidelities])

    def _at_full(self, places: np.ndarray) -> np.ndarray:
        """Return the inputs of a `Process` for (n, dimensions) places at full fidelity."""
        return self._inputs(places, np.ones(len(places)))
