"""CMA-ES, an evolution strategy for numbers (Hansen and Ostermeier, 2001).

Optuna and the package `cmaes` implement it.
"""

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import Field

from sweeps.space.sections.key_types import AtLeast1, AtLeast2, Number

from .sampler import Algorithm, ReseededSampler, SamplerContext


@dataclass(frozen=True)
class Cmaes(Algorithm):
    """Adapt a normal distribution to the best trials, and sample numbers from it.

    A `choice` is sampled uniformly.
    """

    package: ClassVar[str | None] = "cmaes"

    n_startup_trials: Annotated[
        AtLeast1, Field(description="number of complete trials before the distribution is adapted")
    ] = 1
    sigma0: Annotated[
        Number | None,
        Field(
            gt=0,
            description="initial standard deviation; by default a sixth of the smallest range of a "
            "dimension",
        ),
    ] = None
    popsize: Annotated[
        AtLeast2 | None,
        Field(
            description="number of trials in a generation; by default computed from the number of "
            "dimensions"
        ),
    ] = None

    def build(self, context: SamplerContext) -> ReseededSampler:
        """Build Optuna's sampler."""
        from optuna.distributions import CategoricalDistribution
        from optuna.samplers import CmaEsSampler

        numbers = {
            name: d
            for name, d in context.free.items()
            if not isinstance(d, CategoricalDistribution)
        }
        options: dict[str, Any] = dataclasses.asdict(self) | {"warn_independent_sampling": False}
        space = numbers if len(numbers) > 1 else {}  # CMA-ES needs at least two dimensions.
        return ReseededSampler(lambda seed, index: CmaEsSampler(**options, seed=seed), space)
