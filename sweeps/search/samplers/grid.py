"""Grid search. Every dimension is a grid, so no values are sampled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sweeps.search.samplers.base import Algorithm, ReseededSampler, SamplerContext, independent_sampler


@dataclass(frozen=True)
class Grid(Algorithm):
    """Visit every cell of the grid in turn."""

    several_objectives: ClassVar[bool] = True

    def build(self, context: SamplerContext) -> ReseededSampler:
        """Build Optuna's random sampler, which draws what no grid fixes."""
        return independent_sampler(context)
