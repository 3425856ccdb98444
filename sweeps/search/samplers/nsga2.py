"""NSGA-II as in Optuna, a genetic algorithm for several objectives (Deb et al., 2002)."""

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import Field

from sweeps.space.sections.key_types import AtLeast2, Number

from .sampler import Algorithm, ReseededSampler, SamplerContext


@dataclass(frozen=True)
class Nsga2(Algorithm):
    """Cross and mutate the best trials of the earlier generations."""

    several_objectives: ClassVar[bool] = True

    population_size: Annotated[
        AtLeast2, Field(description="number of complete trials in a generation")
    ] = 50
    mutation_prob: Annotated[
        Number | None,
        Field(
            ge=0,
            le=1,
            description="probability that a value is drawn at random; by default 1 / (number of "
            "dimensions)",
        ),
    ] = None
    crossover_prob: Annotated[
        Number,
        Field(
            ge=0,
            le=1,
            description="probability that a trial combines the values of two earlier trials, its "
            "parents",
        ),
    ] = 0.9
    swapping_prob: Annotated[
        Number,
        Field(
            ge=0,
            le=1,
            description="if there are two parents, probability that a value comes from the second "
            "one",
        ),
    ] = 0.5

    def build(self, context: SamplerContext) -> ReseededSampler:
        """Build Optuna's sampler."""
        from optuna.samplers import NSGAIISampler

        options: dict[str, Any] = dataclasses.asdict(self)
        return ReseededSampler(
            lambda seed, index: NSGAIISampler(**options, seed=seed), context.free
        )
