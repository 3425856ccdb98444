"""Quasi-Monte Carlo search: a low-discrepancy sequence fills the space evenly."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, StrictBool

from sweeps.search.samplers.base import Algorithm, ReseededSampler, SamplerContext, independent_sampler


@dataclass(frozen=True)
class Qmc(Algorithm):
    """Take the next point of a low-discrepancy sequence. Each cell gets the same points."""

    several_objectives: ClassVar[bool] = True

    qmc_type: Annotated[Literal["sobol", "halton"], Field(description="the sequence")] = "sobol"
    scramble: Annotated[StrictBool, Field(description="shift the sequence at random, by the seed of the sweep")] = True

    def build(self, context: SamplerContext) -> ReseededSampler:
        """Build Optuna's sampler."""
        from optuna.exceptions import ExperimentalWarning
        from optuna.samplers import QMCSampler

        class IndexedQmc(QMCSampler):
            """QMC sampler that takes the point at `index`. In contrast, Optuna counts the points in the study and takes the next one."""

            index = 0

            def _find_sample_id(self, study: Any, search_space: Any) -> int:
                return self.index

        random = independent_sampler(context)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            sampler = IndexedQmc(
                qmc_type=self.qmc_type,
                scramble=self.scramble,
                seed=context.seed,
                independent_sampler=random.sampler,
                warn_independent_sampling=False,
            )

        def reseed(seed: int, index: int) -> None:
            random.reseed(seed, index)
            sampler.index = index

        return ReseededSampler(sampler, context.free, reseed)
