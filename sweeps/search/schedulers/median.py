"""The median stopping rule (Golovin et al., KDD 2017: Google Vizier)."""

import math
import statistics
import sys
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from sweeps.space.sections.key_types import AtLeast1

from .scheduler import CONTINUE, STOP, Decision, Scheduler
from .view import StudyView


@dataclass(frozen=True)
class Median(Scheduler):
    """Stop a trial if its best value so far is worse than the median of the other trials' means.

    The mean of a trial is the mean of all values that it reported up to this step.
    """

    stops: ClassVar[bool] = True

    max_t: Annotated[AtLeast1 | None, Field(description="the step at which a trial ends")] = None
    grace_period: Annotated[
        AtLeast1,
        Field(
            description="first step at which trials are compared; after it, they are compared at "
            "every step"
        ),
    ] = 1
    min_trials: Annotated[
        AtLeast1,
        Field(
            description="number of other trials that must reach a step before a trial can be "
            "stopped at this step"
        ),
    ] = 5

    def rungs(self, bracket: int = 0) -> range:
        """Return every step from `grace_period` on, but before `max_t`."""
        return range(self.grace_period, self.max_t or sys.maxsize)

    def decide(self, view: StudyView, trial: int, rung: int) -> Decision:
        """Stop the trial if its best value so far is worse than the median of some means.

        The means are those of the other trials. If the best value is not worse, the trial
        continues. If fewer than `min_trials` other trials have a value at this step, the trial
        continues in any case. Otherwise, a trial is also stopped if it has no value at this step,
        or if all its values so far are NaN. If the mean of another trial is NaN, it counts as the
        worst possible value.
        """
        own = view.trials[trial]
        others = [t for t in view.at_rung(rung) if t is not own]
        if len(others) < self.min_trials:
            return CONTINUE
        best = own.best_until(rung, view.minimize) if rung in own.values else math.nan
        if math.isnan(best):
            return STOP
        worst = math.inf if view.minimize else -math.inf
        means = [t.mean_until(rung) for t in others]
        median = statistics.median(worst if math.isnan(mean) else mean for mean in means)
        is_worse = best > median if view.minimize else best < median
        return STOP if is_worse else CONTINUE
