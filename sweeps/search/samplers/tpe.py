"""The tree-structured Parzen estimator (Bergstra et al., 2011).

There is one model for each rung and grid cell.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from sweeps.space.sections.key_types import AtLeast0, AtLeast1

from .sampler import Algorithm, SamplerContext, SuggestingSampler


@dataclass(frozen=True)
class Tpe(Algorithm):
    """Suggest values that are more frequent among good trials than among the other trials."""

    several_objectives: ClassVar[bool] = True

    n_startup_trials: Annotated[
        AtLeast0,
        Field(
            description="number of trials that must reach the same rung before the values at this "
            "rung guide the search"
        ),
    ] = 10
    n_ei_candidates: Annotated[
        AtLeast1,
        Field(
            description="number of candidates that are drawn for a suggestion; the best one is "
            "suggested"
        ),
    ] = 16

    def build(self, context: SamplerContext) -> SuggestingSampler:
        """Build the model."""
        from .tpe_model import TpeModel

        return TpeModel(self.n_startup_trials, self.n_ei_candidates, context.space.scheduler.max_t)
