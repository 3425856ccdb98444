"""Gaussian process over configuration and step, as in MOBSTER (Klein et al., 2020)."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field, StrictBool

from sweeps.space.sections.key_types import AtLeast1

from .sampler import Algorithm, SamplerContext, SuggestingSampler


@dataclass(frozen=True)
class Gp(Algorithm):
    """Suggest the configuration with the largest expected improvement at the last step of a trial.

    Conditional dimensions, ordered choices, failures, constraints, several objectives and the noise
    among repeats are modeled, too.
    """

    several_objectives: ClassVar[bool] = True

    n_startup_trials: Annotated[
        AtLeast1,
        Field(
            description="number of trials that must have a value before the model is used; until "
            "then, suggestions are random"
        ),
    ] = 10
    deterministic_objective: Annotated[
        StrictBool,
        Field(
            description="whether two trials with equal parameters always have equal values, so "
            "that values have no noise"
        ),
    ] = False

    def build(self, context: SamplerContext) -> SuggestingSampler:
        """Build the model."""
        from .gp_model import GpModel

        return GpModel(context, self.n_startup_trials, self.deterministic_objective)
