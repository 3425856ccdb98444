"""Quasi-Monte Carlo search: a low-discrepancy sequence fills the space evenly."""

from __future__ import annotations

import dataclasses
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, StrictBool

from .sampler import Algorithm, ReseededSampler, SamplerContext

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution


@dataclass(frozen=True)
class Qmc(Algorithm):
    """Take the next point of a low-discrepancy sequence.

    Each grid cell starts at the first point, so all cells get the same points.
    """

    several_objectives: ClassVar[bool] = True

    qmc_type: Annotated[
        Literal["sobol", "halton"], Field(description="the low-discrepancy sequence")
    ] = "sobol"
    scramble: Annotated[
        StrictBool, Field(description="whether the seed of the sweep randomizes the sequence")
    ] = True

    def build(self, context: SamplerContext) -> ReseededSampler:
        """Build Optuna's sampler."""
        from optuna.exceptions import ExperimentalWarning
        from optuna.samplers import QMCSampler, RandomSampler

        class IndexedQmc(QMCSampler):
            """QMC sampler that takes the point at a given index of the sequence.

            Optuna's own sampler takes the index from the study.
            """

            def __init__(self, index: int, **options: Any):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", ExperimentalWarning)
                    super().__init__(**options, warn_independent_sampling=False)
                self._index = index

            def _find_sample_id(
                self, study: Study, search_space: dict[str, BaseDistribution]
            ) -> int:
                return self._index

        options = dataclasses.asdict(self) | {"seed": context.space.search.seed}
        return ReseededSampler(
            lambda seed, index: IndexedQmc(
                index, independent_sampler=RandomSampler(seed), **options
            ),
            context.free,
        )
