"""NSGA-II, a genetic algorithm for several objectives (Deb et al., 2002), as implemented by Optuna."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from sweeps.search.samplers.base import Algorithm, ReseededSampler, SamplerContext, independent_sampler
from sweeps.space.section_models import AtLeast2, Number


@dataclass(frozen=True)
class Nsga2(Algorithm):
    """Cross and mutate the best trials of the last generation."""

    several_objectives: ClassVar[bool] = True

    population_size: Annotated[AtLeast2, Field(description="number of complete trials of a generation")] = 50
    mutation_prob: Annotated[Number | None, Field(ge=0, le=1, description="probability of mutating a value; 1/n if None")] = None
    crossover_prob: Annotated[Number, Field(ge=0, le=1, description="probability that a trial has two parents")] = 0.9
    swapping_prob: Annotated[Number, Field(ge=0, le=1, description="probability of taking a value from the second parent")] = 0.5

    def build(self, context: SamplerContext) -> ReseededSampler:
        """Build Optuna's sampler."""
        from optuna.samplers import NSGAIISampler

        random = independent_sampler(context)
        sampler = NSGAIISampler(
            population_size=self.population_size,
            mutation_prob=self.mutation_prob,
            crossover_prob=self.crossover_prob,
            swapping_prob=self.swapping_prob,
            seed=context.seed,
        )

        def reseed(seed: int, index: int) -> None:
            random.reseed(seed, index)
            sampler._rng.rng.seed(seed)
            sampler._random_sampler._rng.rng.seed(seed)

        return ReseededSampler(sampler, context.free, reseed)
