"""Learn from the trials of earlier sweeps (`search.from`).

The second configuration of the new sweep is the best configuration of the earlier sweep; with
several earlier sweeps, each one gives its best configuration. `gp` uses a Gaussian process of each
earlier sweep, too. The weighted sum of their predictions is the prior mean of the process of the
new sweep. The weights are fitted to the values of the new sweep. The prior is used only while it
helps: the process with the prior must predict each trial of the new sweep from the others better
than the process without it. Without this rule, the search stays where an unrelated sweep was good:
values there say little about the rest of the space.

Related methods: Feurer et al., 2018, Scalable Meta-Learning for Bayesian Optimization using
Ranking-Weighted Gaussian Process Ensembles; Golovin et al., 2017, Google Vizier, whose transfer
learning stacks processes in the same way.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
from optuna.study._constrained_optimization import _CONSTRAINTS_KEY
from optuna.trial import FrozenTrial, TrialState, create_trial
from scipy.linalg import cho_solve
from scipy.optimize import nnls

from sweeps.search.earlier_trials import EarlierSweep
from sweeps.space.model.conditions import Key

from .encoding import Axes
from .gaussian_process import Process
from .gp_observations import fidelity, observations, scaled
from .sampler import SamplerContext
from .trial_groups import History

# The best trial of an earlier sweep is the best one at the highest level that at least this many
# trials reached.
LEAST_TRIALS = 4
# Least number of observations of an earlier sweep for a process.
LEAST_OBSERVATIONS = 5
# Sum of the weights of the earlier sweeps before the new sweep has values.
ASSUMED_WEIGHT = 0.5
# Number of values that count as much as this assumption.
ASSUMED_VALUES = 4.0
# By how much the logarithm of the density of the new values must be larger with the prior than
# without it. From ten trials on, this difference was at most 5 with unrelated earlier sweeps, and
# more than 5 with most related ones.
EVIDENCE = 5.0


def history_of(sweep: EarlierSweep, context: SamplerContext) -> History:
    """Return the trials of an earlier sweep as the history of a sweep."""
    frozen = []
    for number, trial in enumerate(sweep.trials):
        distributions = {name: d for name, d in context.distributions.items() if name in trial.keys}
        attributes = {}
        if 0 < trial.violation < math.inf:
            attributes[f"{_CONSTRAINTS_KEY}:earlier"] = trial.violation
        if math.isinf(trial.violation):
            state = TrialState.FAIL
        elif trial.values is None:
            state = TrialState.PRUNED
        else:
            state = TrialState.COMPLETE
        frozen_trial = create_trial(
            state=state,
            values=trial.values if state is TrialState.COMPLETE else None,
            params={name: trial.keys[name] for name in distributions},
            distributions=distributions,
            intermediate_values=dict(trial.rungs),
            system_attrs=attributes,
        )
        frozen_trial.number = number
        frozen.append(frozen_trial)
    history = History(space=context.distributions)
    history.number = len(frozen)
    goals = [objective.goal for objective in context.space.objectives]
    history.add(frozen, [1.0 if goal == "minimize" else -1.0 for goal in goals])
    return history


class EarlierProcess:
    """Gaussian process of one objective of an earlier sweep, over the dimensions that vary.

    These are the dimensions in which its trials differ.

    Args:
        places: (n, dimensions) places of the observations. The place of a dimension that a trial
            lacks is NaN.
        fidelities: (n,) fidelities of the observations.
        values: (n,) values of the observations.
        categorical: (dimensions,) booleans: True for a categorical dimension.

    Attributes:
        columns: Indices of the dimensions of the new sweep that the process has.
    """

    def __init__(
        self,
        places: np.ndarray,
        fidelities: np.ndarray,
        values: np.ndarray,
        categorical: np.ndarray,
    ):
        self.columns = [
            i
            for i, column in enumerate(places.T)
            if not np.isnan(column).any() and len(np.unique(column)) > 1
        ]
        inputs = np.column_stack([places[:, self.columns], fidelities])
        self._process = Process(
            inputs, scaled(values)[0], np.append(categorical[self.columns], False)
        )
        self._process.condition(np.round(self._process.fit(self._process.start), 4))

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Predict the values at inputs of the new sweep's process.

        The inputs are (m, dimensions + 1) places and fidelities. The result is (m,) means.
        """
        return self._process.predict(x[:, [*self.columns, x.shape[1] - 1]])[0]


def earlier_processes(context: SamplerContext, axes: Axes) -> list[list[EarlierProcess]]:
    """Return a list for each objective: the processes of the earlier sweeps.

    A sweep has none if it has too few observations, or if its trials differ in no dimension.

    Args:
        context: The new space, and the earlier sweeps.
        axes: Dimensions of the new sweep.
    """
    processes: list[list[EarlierProcess]] = [[] for _ in context.space.objectives]
    categorical = np.array([i in axes.choices for i in range(len(axes.names))], dtype=bool)
    for sweep in context.earlier:
        history = history_of(sweep, context)
        observed = observations(history, np.random.RandomState(0))
        if len(observed.trials) < LEAST_OBSERVATIONS:
            continue
        places = axes.places(np.array([axes.row(trial.params) for trial in observed.trials]))
        full = float(history.last_step)
        fidelities = fidelity(observed.levels, min([*observed.levels, full]), full)
        for i, of_objective in enumerate(processes):
            process = EarlierProcess(places, fidelities, observed.values[:, i], categorical)
            if process.columns:
                of_objective.append(process)
    return processes


def prior_mean(
    earlier: Sequence[EarlierProcess], x: np.ndarray, y: np.ndarray
) -> Callable[[np.ndarray], np.ndarray]:
    """Return a prior mean of a `Process`: a weighted sum of the predictions of earlier sweeps.

    Args:
        earlier: Processes of the earlier sweeps.
        x: (n, dimensions + 1) inputs: places and fidelities.
        y: (n,) values with mean 0 and standard deviation 1.
    """

    def predicted(inputs: np.ndarray) -> np.ndarray:
        return np.column_stack([process.predict(inputs) for process in earlier])

    weights = prior_weights(predicted(x), y)
    return lambda inputs: predicted(inputs) @ weights


def predicts_better(informed: Process, process: Process, trials: Sequence[FrozenTrial]) -> bool:
    """Return True if a prior improves a process's predictions of the trials of the new sweep.

    The process is compared with one without a prior.

    Args:
        informed: The process with the prior, conditioned on all observations.
        process: The process without the prior, conditioned on the same observations.
        trials: Trial of each observation.
    """
    numbers = np.array([trial.number for trial in trials])
    return log_density(informed, numbers) > log_density(process, numbers) + EVIDENCE


def log_density(process: Process, groups: np.ndarray) -> float:
    """Return how well a process predicts each trial from the other trials.

    The result is the sum of the logarithms of the densities of the values, up to a constant. It
    follows from the inverse of the covariance matrix (Rasmussen and Williams, 2006, section 5.4.2).

    Args:
        process: The process, conditioned on all observations.
        groups: (n,) number of the trial of each observation.
    """
    precision = cho_solve((process._low, True), np.eye(len(groups)))
    total = 0.0
    for group in np.unique(groups):
        own = np.flatnonzero(groups == group)
        inner = precision[np.ix_(own, own)]
        error = np.linalg.solve(inner, process._alpha[own])
        total += 0.5 * np.linalg.slogdet(inner)[1] - 0.5 * float(error @ inner @ error)
    return float(total)


def prior_weights(predicted: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the weights of earlier sweeps, by non-negative least squares with a prior.

    The prior is a sum of `ASSUMED_WEIGHT`. It counts as much as `ASSUMED_VALUES` values.

    Args:
        predicted: (n, sweeps) predictions of the earlier sweeps for the observations of the new
            sweep.
        y: (n,) values of these observations, with mean 0.
    """
    count = predicted.shape[1]
    centered = predicted - predicted.mean(axis=0) if len(predicted) else predicted
    pull = math.sqrt(ASSUMED_VALUES) * np.eye(count)
    target = np.concatenate([y, pull @ np.full(count, ASSUMED_WEIGHT / count)])
    weights: np.ndarray = nnls(np.vstack([centered, pull]), target)[0]
    return weights


def starting_points(context: SamplerContext) -> list[dict[str, Key]]:
    """Return the keys that are fixed in the first configurations of a new sweep.

    The first configuration has no fixed keys: the sampler suggests it as in any sweep. The best
    trial of each earlier sweep follows. ASHA never stops the first trial at a rung, so in this
    order it stops the best trial of an unrelated sweep early.
    """
    chosen: list[dict[str, Key]] = []
    for sweep in context.earlier:
        best = _best(history_of(sweep, context))
        if best is not None and best not in chosen:
            chosen.append(best)
    return [{}, *chosen] if chosen else []


def _best(history: History) -> dict[str, Key] | None:
    """Return the keys of the best trial at the highest level that enough trials reached.

    Return None if no feasible trial has a value.
    """
    level = history.highest(LEAST_TRIALS) or history.highest(1)
    if level is None:
        return None
    ranks = [
        rank
        for cell in history.levels[level].values()
        for rank in cell
        if not rank.violation and math.isfinite(rank.values[0])
    ]
    return dict(history.known[min(ranks).number].params) if ranks else None
