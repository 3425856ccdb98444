"""Interfaces of samplers. There are two kinds of samplers.

A `SuggestingSampler` suggests values from the reports of earlier trials. A `ReseededSampler` builds
an Optuna sampler for each trial. An `Algorithm`, such as `Tpe`, has options and builds a
`SuggestingSampler` or a `ReseededSampler`. Algorithm classes are cheap to import, because only
their method `build` imports numpy, SciPy and Optuna.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Protocol

if TYPE_CHECKING:
    import numpy as np
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler

    from sweeps.search.earlier_trials import EarlierSweep
    from sweeps.space import Space
    from sweeps.space.model.conditions import Key

    from .trial_groups import History


class SuggestingSampler(Protocol):
    """Interface of a sampler that suggests values based on earlier trials.

    Any class with the method `suggest` can be such a sampler.
    """

    def suggest(
        self, history: History, cell: Mapping[str, Key], rng: np.random.RandomState
    ) -> dict[str, Key]:
        """Suggest values for the next trial.

        Args:
            history: History of the sweep. `history.trials()` returns the trials. `history.space`
                has the dimensions that occur in every trial, without dimensions that only some
                trials have.
            cell: Value of each grid dimension in this trial, by name. The sampler cannot change
                these values.
            rng: Random number generator for this trial. Use no other generator, so that a resumed
                sweep suggests the same values.

        Returns:
            Values by dimension name. Dimensions that are not in the returned mapping are sampled at
            random. Values of inactive dimensions are ignored.
        """


class ReseededSampler:
    """Optuna sampler that is built again for each trial, with the trial's own seed.

    The sampler keeps no state between trials, so each suggestion is a function of the study and the
    seed.

    Args:
        build: Function `build(seed, index)` that returns the Optuna sampler of a trial. `seed` is
            the seed of the trial. `index` is the number of configurations that started in the
            trial's cell before the trial.
        space: Distributions of the dimensions that are sampled together, by name. The other
            dimensions are sampled independently.

    Attributes:
        space: The argument `space`.
        sampler: The Optuna sampler of the current trial.
    """

    def __init__(
        self, build: Callable[[int, int], BaseSampler], space: Mapping[str, BaseDistribution]
    ):
        self._build = build
        self.space = space
        self.reseed(0, 0)

    def reseed(self, seed: int, index: int) -> None:
        """Build the Optuna sampler of the next trial.

        Args:
            seed: Seed of the trial.
            index: Number of configurations that started in the trial's cell before the trial.
        """
        self.sampler = self._build(seed, index)


@dataclass(frozen=True)
class SamplerContext:
    """Facts about the sweep that are known when its sampler is built.

    Attributes:
        space: The search space.
        earlier: Earlier sweeps from which the sweep learns.
    """

    space: Space
    earlier: tuple[EarlierSweep, ...] = ()

    @cached_property
    def distributions(self) -> dict[str, BaseDistribution]:
        """Distribution of each dimension of the space, by name."""
        from sweeps.study.distributions import distribution_of  # imports optuna

        return {dimension.name: distribution_of(dimension) for dimension in self.space.dimensions}

    @property
    def free(self) -> dict[str, BaseDistribution]:
        """Distributions of the dimensions that every trial has.

        Grid dimensions and dimensions with a single value are left out.
        """
        names = [d.name for d in self.space.always if not d.is_grid]
        return {n: self.distributions[n] for n in names if not self.distributions[n].single()}


class Algorithm(ABC):
    """Built-in sampling algorithm: a dataclass whose fields are its options.

    Attributes:
        several_objectives: True if the algorithm can optimize several objectives.
        package: Name of the optional package that the algorithm needs, such as "cmaes" for `pip
            install 'sweeps-ray[cmaes]'`; None if no optional package is needed.
    """

    several_objectives: ClassVar[bool] = False
    package: ClassVar[str | None] = None

    @abstractmethod
    def build(self, context: SamplerContext) -> SuggestingSampler | ReseededSampler:
        """Build the sampler of a sweep.

        Args:
            context: The search space, and the earlier sweeps from which the sweep learns.
        """


def independent_sampler() -> ReseededSampler:
    """Return a sampler that samples each dimension independently and at random."""
    from optuna.samplers import RandomSampler

    return ReseededSampler(lambda seed, index: RandomSampler(seed), {})
