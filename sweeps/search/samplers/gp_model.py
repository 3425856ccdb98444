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

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial

from sweeps.search.samplers.activity import Activity, is_ordered
from sweeps.search.samplers.candidates import BEST, Candidates
from sweeps.search.samplers.encoding import Axes
from sweeps.search.samplers.gp_kernels import FittedKernels
from sweeps.search.samplers.gp_observations import (
    Observations,
    fidelity,
    limits,
    observations,
    scaled,
    share_of_noise,
)
from sweeps.search.samplers.history import FULL, History, point_of
from sweeps.space import Dimension, Repeats
from sweeps.space.conditions import Term

if TYPE_CHECKING:
    from sweeps.search.samplers.acquisition import Surrogate
    from sweeps.search.samplers.earlier_sweeps import EarlierProcess
    from sweeps.search.samplers.trial_cost import TrialCost


class GpModel:
    """Suggest the configuration with the largest expected improvement at full fidelity.

    The first suggestion is the middle of each numeric dimension, with a random option of each other
    dimension. The middle is often good, because users tend to choose ranges around values that
    work. Google's Vizier does the same (Song et al., 2024: The Vizier Gaussian Process Bandit
    Algorithm).

    Args:
        n_startup_trials: Number of trials that must have a value before the model is used. Until
            then, suggestions are random, except the first one.
        deterministic_objective: True if equal configurations have equal values.
        space: Distributions of all dimensions, by name.
        max_t: Step at which a trial ends. This step is full fidelity. If None, the highest recorded
            step is full fidelity.
        dimensions: All dimensions by name, in the order of the file; {} if none is conditional and
            no choice is ordered.
        conditions: Terms of each conditional dimension, by name.
        repeats: How many trials a configuration has, and how their values are aggregated.
        cost: Name of the cost that the search saves; None if costs do not count.
    """

    def __init__(
        self,
        n_startup_trials: int = 10,
        deterministic_objective: bool = False,
        space: Mapping[str, BaseDistribution] | None = None,
        max_t: int | None = None,
        dimensions: Mapping[str, Dimension] | None = None,
        conditions: Mapping[str, Sequence[Term]] | None = None,
        repeats: Repeats = Repeats(),  # noqa: B008 - frozen
        cost: str | None = None,
    ):
        self.enough, self.deterministic, self.max_t, self.repeats = (
            n_startup_trials,
            deterministic_objective,
            max_t,
            repeats,
        )
        self.cost = cost
        self.names = {
            name: distribution
            for name, distribution in sorted((space or {}).items())
            if not distribution.single()
        }
        self.axes = Axes(
            self.names,
            [name for name, dimension in (dimensions or {}).items() if is_ordered(dimension)],
        )
        self.always = {name for name in self.names if name not in (conditions or {})}
        self.activity = (
            Activity(dimensions, conditions, self.axes.names) if dimensions and conditions else None
        )
        self._categorical = np.array([i in self.axes.choices for i in range(len(self.names) + 1)])
        self._kernels = FittedKernels()
        self._ended: dict[int, list[float]] = {}  # values of trials that have ended, by number
        self._earlier: Sequence[Sequence[EarlierProcess]] = ()

    def learn_from(self, earlier: Sequence[Sequence[EarlierProcess]]) -> None:
        """Use the processes of earlier sweeps as the prior mean while they predict the values of this sweep.

        Args:
            earlier: The processes of each objective.
        """
        self._earlier = earlier

    def suggest(
        self, history: History, cell: Mapping[str, Any], rng: np.random.RandomState
    ) -> dict[str, Any]:
        """Return values by dimension; see `Model.suggest`.

        If this call fits kernels, it records the fitted parameters as a system attribute of the
        trial that is being sampled.
        """
        if not set(self.names) - set(cell):
            return {}
        if history.number == 0:
            place: np.ndarray | None = Candidates(self.axes, self.activity, cell).in_cell(
                self.axes.middle(rng)
            )[0]
        elif len(history.known) < self.enough:
            return {}
        else:
            place = self._best_place(history, cell, rng)
        return (
            {}
            if place is None
            else {
                name: value for name, value in self.axes.external(place).items() if name not in cell
            }
        )

    def _best_place(
        self, history: History, cell: Mapping[str, Any], rng: np.random.RandomState
    ) -> np.ndarray | None:
        """Return the places with the largest score, an array of shape (dimensions,); None for random values."""
        from sweeps.search.samplers.acquisition import acquisition, best_first, improvement_region

        observed = observations(history, rng)
        surrogate = self._surrogate(history, observed, rng)
        pending = [
            t
            for n, t in history.running.items()
            if n != history.number and self.always <= t.params.keys()
        ]
        surrogate.imagine(self._places(pending))

        begun = {point_of(t.params, t.distributions) for t in pending}
        candidates = Candidates(
            self.axes, self.activity, cell, lambda point: point in history.tried or point in begun
        )
        earlier = candidates.in_cell(
            candidates.filled(self._places([*observed.trials, *pending]), rng)
        )
        means, feasibility = surrogate.predict(earlier)[0], surrogate.feasibility(earlier)
        feasibility[: len(observed.feasible)][observed.feasible] = 1.0
        region = improvement_region(means[feasibility >= 0.5])
        centers = earlier[best_first(means, feasibility)[:BEST]]
        if self.cost:
            surrogate = replace(surrogate, cost=self._trial_cost(history, self.cost))
        self._kernels.record(history.study, history.number)
        return candidates.best(lambda places: acquisition(surrogate, region, places), centers, rng)

    def _surrogate(
        self, history: History, observed: Observations, rng: np.random.RandomState
    ) -> Surrogate:
        """Condition a process for each objective, for each violated constraint, and for failures."""
        from sweeps.search.samplers.acquisition import Bound, Surrogate
        from sweeps.search.samplers.gaussian_process import NONE, VAGUE, Process

        count = sum(history.count(level) for level in history.levels) + len(history.failed)
        full = self.max_t or history.last_step
        lowest = min([*observed.levels, full])
        inputs = self._inputs(
            self._places(observed.trials), fidelity(observed.levels, lowest, full)
        )
        shares = np.where(observed.levels == FULL, share_of_noise(self.repeats), 1.0)
        freedom, variances = history.noise()
        objectives = []
        for i, variance in enumerate(variances):
            values, factor = scaled(observed.values[:, i])
            noise = (
                NONE if self.deterministic else VAGUE.with_estimate(variance * factor**2, freedom)
            )
            arguments = (inputs, values, self._categorical, shares, noise)
            process = self._kernels.condition(
                Process(*arguments), f"objective {i}", history.study, count
            )
            if self._earlier and self._earlier[i]:
                from sweeps.search.samplers.earlier_sweeps import ProcessWithPrior, predicts_better

                informed = ProcessWithPrior(self._earlier[i], *arguments)
                self._kernels.condition(
                    informed, f"objective {i} with earlier sweeps", history.study, count
                )
                process = (
                    informed if predicts_better(informed, process, observed.trials) else process
                )
            objectives.append(process)
        bounds = []
        for limit in limits(history, observed.trials, self.always, rng):
            inputs = self._inputs(self._places(limit.trials), fidelity(limit.levels, lowest, full))
            process = Process(inputs, limit.values, self._categorical)
            bounds.append(
                Bound(
                    self._kernels.condition(process, limit.name, history.study, count),
                    limit.threshold,
                )
            )
        return Surrogate(objectives, bounds, self._at_full)

    def _trial_cost(self, history: History, name: str) -> TrialCost | None:
        """Condition a process on the costs of the ended trials.

        Return None if no trial has cost anything, or if all cost the same.
        """
        from sweeps.search.samplers.gaussian_process import Process
        from sweeps.search.samplers.trial_cost import TrialCost, cost_observations

        if (observed := cost_observations(history, name)) is None:
            return None
        full = self.max_t or max(history.last_step, int(observed.steps.max()))
        logs, factor = scaled(observed.logs)
        if not factor:
            return None
        inputs = self._inputs(self._places(observed.trials), fidelity(observed.steps, 1, full))
        process = self._kernels.condition(
            Process(inputs, logs, self._categorical), "cost", history.study, len(history.spent)
        )
        return TrialCost(process, factor)

    def _places(self, trials: Sequence[FrozenTrial]) -> np.ndarray:
        """Return the places of n trials, an array of shape (n, dimensions).

        The place of a dimension that a trial lacks is NaN.
        """
        rows = []
        for trial in trials:
            if (row := self._ended.get(trial.number)) is None:
                params = trial.params
                row = [
                    d.to_internal_repr(params[name]) if name in params else np.nan
                    for name, d in self.names.items()
                ]
                if trial.state.is_finished():
                    self._ended[trial.number] = row
            rows.append(row)
        return self.axes.places(np.array(rows).reshape(-1, len(self.names)))

    def _inputs(self, places: np.ndarray, fidelities: np.ndarray) -> np.ndarray:
        """Convert places of shape (n, dimensions) and fidelities of shape (n,) to inputs of a `Process`, of shape (n, dimensions + 1).

        In place of an inactive dimension, the input is the middle of its range, or an option of its
        own if it is a choice. The dimensions on which the condition depends tell the process
        whether the dimension is active.
        """
        inactive = np.where(self._categorical[:-1], -1.0, 0.5)
        return np.column_stack([np.where(np.isnan(places), inactive, places), fidelities])

    def _at_full(self, places: np.ndarray) -> np.ndarray:
        """Return the inputs of a `Process` for places of shape (n, dimensions), at full fidelity."""
        return self._inputs(places, np.ones(len(places)))
