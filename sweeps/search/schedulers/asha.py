"""Asynchronous successive halving (ASHA), the variant that stops trials (Li et al., MLSys 2020; as in Ray Tune and Syne Tune)."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from sweeps.search.schedulers.base import CONTINUE, STOP, Decision, Scheduler
from sweeps.search.schedulers.view import StudyView
from sweeps.space.section_models import AtLeast1, AtLeast2


@dataclass(frozen=True)
class Asha(Scheduler):
    """Compare trials at rungs that grow geometrically, and stop the trials that are not among the best at a rung."""

    stops: ClassVar[bool] = True

    max_t: Annotated[AtLeast1, Field(examples=[100], description="the step at which a trial ends")]
    grace_period: Annotated[AtLeast1, Field(examples=[10], description="step of the first rung; no trial is stopped before this step")] = 1
    reduction_factor: Annotated[
        AtLeast2,
        Field(
            examples=[4],
            description="with 3, each rung is at 3 times the step of the previous one, and the best third of the trials passes it",
        ),
    ] = 3

    def rungs(self, bracket: int = 0) -> tuple[int, ...]:
        """Return the rungs below `max_t`. The first is `grace_period`; each later one is `reduction_factor` times the previous rung."""
        rungs, step = [], self.grace_period
        while step < self.max_t:
            rungs.append(step)
            step *= self.reduction_factor
        return tuple(rungs)

    def decide(self, view: StudyView, trial: int, rung: int) -> Decision:
        """Continue if the trial is among the best 1/reduction_factor of all trials that have reached this rung so far. Otherwise stop.

        The trial itself is one of these trials. A trial whose value is NaN or missing is stopped.
        """
        own = view.trials[trial]
        value = own.values.get(rung, math.nan)
        if math.isnan(value):
            return STOP
        worst = math.inf if view.minimize else -math.inf
        values = [t.values[rung] for t in view.at_rung(rung, own.bracket) if t is not own]
        values = [worst if math.isnan(v) else v for v in values]
        better = sum(v < value if view.minimize else v > value for v in values)
        passing = max(1, math.ceil((len(values) + 1) / self.reduction_factor))
        return CONTINUE if better < passing else STOP

    def min_complete(self, trials: int, seed: int = 0) -> int:
        """Return the smallest possible number of trials that run to their end: 1 if there are rungs, and all trials if there are none.

        At each rung, only the first trial that reaches the rung is certain to continue.
        """
        return min(trials, 1) if self.rungs() else trials

    def late_trial_steps(self, repeats: int) -> float | None:
        """Return the expected number of steps of a trial that starts late in the sweep; see `Scheduler.late_trial_steps`."""
        ends = (*self.rungs(), self.max_t)
        steps = ends[0] + sum((b - a) / self.reduction_factor ** (i + 1) for i, (a, b) in enumerate(itertools.pairwise(ends)))
        return float(steps + repeats * self.max_t / self.reduction_factor ** len(self.rungs()))
