"""Optuna's own samplers, made to suggest the same again: what they draw is seeded by the trial, and their state is in the study.

They know neither cells nor rungs. The grid's dimensions and conditional ones are kept from them; these are sampled independently.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler, CmaEsSampler, NSGAIISampler, QMCSampler, RandomSampler

from sweeps.core.errors import InputError
from sweeps.search.optional_packages import missing


class Plain:
    """One of Optuna's samplers for the dimensions that every trial has.

    Args:
        algorithm: "random", "grid", "qmc", "cmaes" or "nsga2".
        seed: the sweep's.
        options: the algorithm's.
        space: the dimensions that every trial has and the grid does not decide.

    Raises:
        InputError: `cmaes` is not installed.
    """

    def __init__(self, algorithm: str, seed: int, options: Mapping[str, Any], space: Mapping[str, BaseDistribution]):
        self._random = RandomSampler(seed=seed)
        self.space = {name: distribution for name, distribution in space.items() if not distribution.single()}
        self.base: BaseSampler = self._random
        if algorithm == "qmc":
            self.base = _Qmc(seed=seed, independent_sampler=self._random, warn_independent_sampling=False, **{"scramble": True, **options})
        elif algorithm == "cmaes":
            if problems := missing(algorithm):
                raise InputError(problems)
            numbers = {n: d for n, d in self.space.items() if not isinstance(d, CategoricalDistribution)}
            self.space = numbers if len(numbers) > 1 else {}  # it has no use for a single one
            self.base = CmaEsSampler(seed=seed, independent_sampler=self._random, warn_independent_sampling=False, **options)
        elif algorithm == "nsga2":
            self.base = NSGAIISampler(seed=seed, **options)
        if self.base is self._random:
            self.space = {}

    def begin(self, seed: int, index: int) -> None:
        """Make ready for a trial.

        Args:
            seed: of its own.
            index: how many were begun in its cell before.
        """
        self._random._rng.rng.seed(seed)
        match self.base:
            case _Qmc():
                self.base.index = index
            case CmaEsSampler():
                self.base._cma_rng.rng.seed(seed)
            case NSGAIISampler():
                self.base._rng.rng.seed(seed)
                self.base._random_sampler._rng.rng.seed(seed)


class _Qmc(QMCSampler):
    """Takes the point of a sequence that belongs to the trial, where Optuna takes the next one and counts in the study."""

    index = 0

    def _find_sample_id(self, study: Any, search_space: Any) -> int:
        return self.index
