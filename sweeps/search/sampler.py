"""How the dimensions outside the grid are sampled, given the cell of a trial.

`enqueue_trial` with the cell's values does not condition the other dimensions, not even under a multivariate TPE (mean late regret
0.5 where conditioning reaches 0.26). Here the Parzen estimators of Optuna's TPE are conditioned on the cell: a kernel counts by the
probability it gives to the cell's values, and the values themselves are fixed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.samplers._tpe.parzen_estimator import _ParzenEstimator
from optuna.samplers._tpe.probability_distributions import _BatchedCategoricalDistributions, _MixtureOfProductDistribution

from sweeps.space import Dimension


class _CellEstimator(_ParzenEstimator):
    """A Parzen estimator of the dimensions given the cell. Optuna's own class is private; tests/search/test_sampler.py watches it."""

    cell: Mapping[str, Any] = {}

    def __init__(self, observations, search_space, parameters, predetermined_weights=None) -> None:
        super().__init__(observations, search_space, parameters, predetermined_weights)
        mixture = self._mixture_distribution
        weights, distributions = mixture.weights.copy(), list(mixture.distributions)
        for i, (name, distribution) in enumerate(search_space.items()):
            if name in self.cell:
                choice = int(distribution.to_internal_repr(self.cell[name]))
                weights *= distributions[i].weights[:, choice]
                fixed = np.zeros_like(distributions[i].weights)
                fixed[:, choice] = 1.0
                distributions[i] = _BatchedCategoricalDistributions(weights=fixed)
        self._mixture_distribution = _MixtureOfProductDistribution(weights=weights / weights.sum(), distributions=distributions)


class CellSampler(BaseSampler):
    """Fixes the cell's values and lets another sampler choose the rest.

    What it suggests depends on the study, the seed and the trial's number alone: it is seeded anew for each trial.

    Args:
        algorithm: "tpe", "random" or "grid".
        seed: the sweep's.
    """

    def __init__(self, algorithm: str, seed: int):
        self.seed = seed
        self.cell: Mapping[str, Any] = {}
        self.base: BaseSampler
        if algorithm == "tpe":
            # group: dimensions that only some trials have (inside a branch of a choice) are modelled among those trials
            tpe = TPESampler(seed=seed, multivariate=True, group=True)
            tpe._parzen_estimator_cls = type("Estimator", (_CellEstimator,), {})
            self.base = tpe
        else:
            self.base = RandomSampler(seed=seed)

    def begin(self, cell: Mapping[str, Any], number: int) -> None:
        """Make ready for the trial of this number in this cell."""
        self.cell = dict(cell)
        seed = seed_of(self.seed, number, "sampler")
        if isinstance(self.base, TPESampler):
            self.base._parzen_estimator_cls.cell = self.cell  # type: ignore[attr-defined]
            self.base._rng.rng.seed(seed)
            self.base._random_sampler._rng.rng.seed(seed)
        elif isinstance(self.base, RandomSampler):
            self.base._rng.rng.seed(seed)

    def infer_relative_search_space(self, study, trial) -> dict[str, BaseDistribution]:
        return self.base.infer_relative_search_space(study, trial)

    def sample_relative(self, study, trial, search_space) -> dict[str, Any]:
        return {**self.base.sample_relative(study, trial, search_space), **{k: v for k, v in self.cell.items() if k in search_space}}

    def sample_independent(self, study, trial, param_name, param_distribution) -> Any:
        if param_name in self.cell:
            return self.cell[param_name]
        return self.base.sample_independent(study, trial, param_name, param_distribution)

    def after_trial(self, study, trial, state, values) -> None:
        self.base.after_trial(study, trial, state, values)


def seed_of(seed: int, number: int, purpose: str) -> int:
    """A seed for one purpose of one trial, from the sweep's seed; 0 <= seed < 2**32."""
    digest = hashlib.sha256(f"{seed}/{number}/{purpose}".encode()).digest()
    return int.from_bytes(digest[:4], "big")


def distribution_of(dimension: Dimension) -> BaseDistribution:
    """Optuna's distribution of a dimension's keys (see `Dimension.value` for the way from key to value).

    A quantised logarithmic domain is sampled without its step, which Optuna does not allow there; a normal one by its quantile.
    """
    d = dimension
    if d.options:
        return CategoricalDistribution([option.key for option in d.options])
    match d.kind:
        case "uniform":
            return FloatDistribution(d.lower, d.upper)
        case "quniform":
            return FloatDistribution(d.lower, d.upper, step=d.q)
        case "loguniform" | "qloguniform":
            return FloatDistribution(d.lower, d.upper, log=True)
        case "randint":
            return IntDistribution(d.lower, d.upper - 1)
        case "qrandint":
            return IntDistribution(d.lower, d.upper, step=d.q)
        case "lograndint":
            return IntDistribution(d.lower, d.upper - 1, log=True)
        case "qlograndint":
            return IntDistribution(d.lower, d.upper, log=True)
        case "randn" | "qrandn":
            return FloatDistribution(1e-9, 1 - 1e-9)
    raise ValueError(f"{d.name}: no distribution for {d.kind}")


def suggest(trial: optuna.Trial, dimension: Dimension) -> Any:
    """Ask Optuna for the dimension's key."""
    return trial._suggest(dimension.name, distribution_of(dimension))
