"""NSGA-II, a genetic algorithm for several objectives (Deb et al., 2002), as implemented by Optuna."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import Field

from sweeps.search.samplers.base import Algorithm, ReseededSampler, SamplerContext
from sweeps.space.section_models import AtLeast2, Number


@dataclass(frozen=True)
class Nsga2(Algorithm):
    """Cross and mutate the best trials of the earlier generations."""

    several_objectives: ClassVar[bool] = True

    population_size: Annotated[AtLeast2, Field(description="number of complete trials in a generation")] = 50
    mutation_prob: Annotated[
        Number | None, Field(ge=0, le=1, description="probability of mutating a value; 1 / (number of dimensions) if None")
    ] = None
    crossover_prob: Annotated[Number, Field(ge=0, le=1, description="probability that a trial has two parents")] = 0.9
    swapping_prob: Annotated[Number, Field(ge=0, le=1, description="probability of taking a value from the second parent")] = 0.5

    def build(self, context: SamplerContext) -> ReseededSampler:
        """Build Optuna's sampler."""
        from optuna.samplers import NSGAIISampler

        options: dict[str, Any] = dataclasses.asdict(self)
        return ReseededSampler(lambda seed, index: NSGAIISampler(**options, seed=seed), context.free)
