"""CMA-ES, an evolution strategy for numbers (Hansen and Ostermeier, 2001), as implemented by Optuna and the package `cmaes`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from sweeps.search.samplers.base import Algorithm, ReseededSampler, SamplerContext, independent_sampler
from sweeps.space.section_models import AtLeast1, AtLeast2, Number


@dataclass(frozen=True)
class Cmaes(Algorithm):
    """Adapt a normal distribution to the best trials. Only numbers are sampled from this distribution; a `choice` is sampled at random."""

    package: ClassVar[str | None] = "cmaes"

    n_startup_trials: Annotated[AtLeast1, Field(description="number of complete trials before the distribution is adapted")] = 1
    sigma0: Annotated[Number | None, Field(gt=0, description="standard deviation at the start, or None for a sixth of the range")] = None
    popsize: Annotated[AtLeast2 | None, Field(description="trials of a generation, or None to follow from the number of dimensions")] = None

    def build(self, context: SamplerContext) -> ReseededSampler:
        """Build Optuna's sampler."""
        from optuna.distributions import CategoricalDistribution
        from optuna.samplers import CmaEsSampler

        numbers = {name: d for name, d in context.free.items() if not isinstance(d, CategoricalDistribution)}
        random = independent_sampler(context)
        sampler = CmaEsSampler(
            n_startup_trials=self.n_startup_trials,
            sigma0=self.sigma0,
            popsize=self.popsize,
            seed=context.seed,
            independent_sampler=random.sampler,
            warn_independent_sampling=False,
        )

        def reseed(seed: int, index: int) -> None:
            random.reseed(seed, index)
            sampler._cma_rng.rng.seed(seed)

        return ReseededSampler(sampler, numbers if len(numbers) > 1 else {}, reseed)  # CMA-ES needs at least two dimensions.
