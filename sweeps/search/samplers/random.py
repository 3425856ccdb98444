"""Random search: every dimension is sampled independently."""

from dataclasses import dataclass
from typing import ClassVar

from .sampler import Algorithm, ReseededSampler, SamplerContext, independent_sampler


@dataclass(frozen=True)
class Random(Algorithm):
    """Sample each trial independently of all others."""

    several_objectives: ClassVar[bool] = True

    def build(self, context: SamplerContext) -> ReseededSampler:
        """Build Optuna's random sampler."""
        return independent_sampler()
