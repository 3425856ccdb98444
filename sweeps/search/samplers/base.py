"""The ports of a sampler. A model suggests values from what earlier trials reported; an Optuna sampler is reseeded for each trial.

A class with options, such as `Tpe`, builds one of the two. These classes are light: numpy, SciPy and Optuna are imported by `build`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    import numpy as np
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler

    from sweeps.search.samplers.history import History


class Model(Protocol):
    """Suggests values. This is also the port of a sampler of your own."""

    def suggest(self, history: History, cell: Mapping[str, Any], rng: np.random.RandomState) -> dict[str, Any]:
        """Return values by dimension. Dimensions that are missing are sampled at random.

        Args:
            history: The trials so far. `history.trials()` has them, `history.space` the dimensions that every trial has.
            cell: Values of the grid dimensions, which are fixed.
            rng: Random numbers of this trial. Use no others, so that a resumed sweep suggests the same.
        """


@dataclass
class ReseededSampler:
    """A sampler of Optuna.

    Attributes:
        sampler: The sampler.
        space: Dimensions that it samples together. The others are sampled independently.
        reseed: Prepares the sampler for a trial, from the trial's own seed and the number of earlier trials in its cell.
    """

    sampler: BaseSampler
    space: Mapping[str, BaseDistribution]
    reseed: Callable[[int, int], None]


@dataclass(frozen=True)
class SamplerContext:
    """What a sampler may know of the sweep.

    Attributes:
        seed: Seed of the sweep.
        always: Distributions of the dimensions that every trial has, grid dimensions too.
        grids: Names of the grid dimensions.
        max_t: Step at which a trial ends, or None.
    """

    seed: int
    always: Mapping[str, BaseDistribution]
    grids: frozenset[str]
    max_t: int | None = None

    @property
    def free(self) -> dict[str, BaseDistribution]:
        """Distributions of the dimensions that every trial has, without the grid dimensions and those with a single value."""
        return {name: d for name, d in self.always.items() if name not in self.grids and not d.single()}


class Algorithm(ABC):
    """A sampling algorithm of ours: a dataclass whose fields are its options.

    Attributes:
        several_objectives: Whether it can optimize several objectives.
        package: Package that it needs and that is not always installed, which is also the name of our extra; or None.
    """

    several_objectives: ClassVar[bool] = False
    package: ClassVar[str | None] = None

    @abstractmethod
    def build(self, context: SamplerContext) -> Model | ReseededSampler:
        """Build the sampler of a sweep."""


def independent_sampler(context: SamplerContext) -> ReseededSampler:
    """Return a sampler that samples each dimension at random."""
    from optuna.samplers import RandomSampler

    sampler = RandomSampler(seed=context.seed)
    return ReseededSampler(sampler, {}, lambda seed, index: sampler._rng.rng.seed(seed))
