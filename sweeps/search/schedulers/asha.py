"""Asynchronous successive halving (ASHA; Li et al., MLSys 2020).

It stops trials at rungs, as in Ray Tune, or pauses them, as in the paper.

Syne Tune has both variants, with the names `stopping` and `promotion`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from sweeps.space.sections.key_types import AtLeast1, AtLeast2, Resource

from .promotion import is_closing, next_promoted
from .scheduler import CONTINUE, PAUSE, STOP, Decision, Scheduler
from .view import StudyView


@dataclass(frozen=True)
class Asha(Scheduler):
    """Compare trials at rungs that grow geometrically, and stop or pause all but the best."""

    stops: ClassVar[bool] = True

    max_t: Annotated[AtLeast1, Field(description="the step at which a trial ends")]
    grace_period: Annotated[
        AtLeast1,
        Field(description="step of the first rung; no trial is stopped or paused before this step"),
    ] = 1
    reduction_factor: Annotated[
        AtLeast2,
        Field(
            description="with 3, each rung is at 3 times the step of the previous one, and the "
            "best third of the trials passes it"
        ),
    ] = 3

    resource: Annotated[
        Resource,
        Field(
            description="what `max_t` and `grace_period` count: `step` counts steps of the loop, "
            "`data.rows` counts parts of the train rows, of which `max_t` is the whole. The loop "
            "then runs at each rung and at `max_t`, each time on more rows"
        ),
    ] = field(default="step", kw_only=True)
    type: Annotated[
        Literal["stopping", "promotion"],
        Field(
            description="what happens to a trial that is not among the best at a rung: it stops "
            "for good, or it pauses and may continue from its checkpoint after other trials have "
            "reached the rung"
        ),
    ] = field(default="stopping", kw_only=True)

    def rungs(self, bracket: int = 0) -> tuple[int, ...]:
        """Return the rungs below `max_t`.

        The first is `grace_period`; each later one is `reduction_factor` times the previous rung.
        """
        rungs = []
        step = self.grace_period
        while step < self.max_t:
            rungs.append(step)
            step *= self.reduction_factor
        return tuple(rungs)

    def promotable(self, view: StudyView, waiting: Mapping[int, int]) -> int | None:
        """Return the number of the paused trial to continue now; None if there is none.

        While trials can still start, a trial continues if it is among the best 1/`reduction_factor`
        of its rung. When all trials have started and each one has ended or is paused, the best
        trial of each rung continues in any case. So one trial reaches `max_t`.

        Args:
            view: The trials so far.
            waiting: Rung at which each paused trial waits, by the number of the trial.
        """
        if not waiting:
            return None
        factor = self.reduction_factor
        rungs = [(step, b) for b in range(self.bracket_count) for step in self.rungs(b)]
        rungs.sort(key=lambda rung: (-rung[0], rung[1]))  # the highest step first
        number = next_promoted(view, waiting, rungs, lambda reached: reached // factor)
        if number is None and is_closing(view, waiting):
            number = next_promoted(view, waiting, rungs, lambda reached: 1)
        return number

    @property
    def pauses(self) -> bool:  # type: ignore[override]  # It depends on an option.
        """True if the type is `promotion`."""
        return self.type == "promotion"

    @property
    def needs_checkpoint(self) -> bool:  # type: ignore[override]
        """True if the type is `promotion`."""
        return self.pauses

    def decide(self, view: StudyView, trial: int, rung: int) -> Decision:
        """Continue if the trial is among the best 1/reduction_factor of the trials at this rung.

        These are all trials that have reached the rung so far, this trial included. If it is not
        among the best, stop or pause it. A trial whose value is NaN or missing is stopped. With the
        type `promotion`, a trial continues only if `promotable` would choose it at once.
        """
        own = view.trials[trial]
        value = own.values.get(rung, math.nan)
        if math.isnan(value):
            return STOP
        if self.pauses:
            promoted = self.promotable(view, {**view.paused, trial: rung})
            return CONTINUE if promoted == trial else PAUSE
        values = view.values_at(rung, own.bracket)
        better = sum(v < value if view.minimize else v > value for v in values)  # NaN never is
        passing = max(1, math.ceil(len(values) / self.reduction_factor))
        return CONTINUE if better < passing else STOP

    def next_paused(self, view: StudyView) -> int | None:
        """Return the number of the paused trial that continues now; see `promotable`."""
        return self.promotable(view, view.paused)
