"""A scheduler of a user that pauses trials."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sweeps.core.trial import Action
from sweeps.search.schedulers import Decision, Scheduler
from sweeps.search.schedulers.view import StudyView

TRIALS, RUNG, MAX_T = 4, 3, 6


@dataclass(frozen=True)
class PauseAll(Scheduler):
    """Pauses every trial at its rung, and continues the best one when four are paused."""

    pauses: ClassVar[bool] = True
    needs_checkpoint: ClassVar[bool] = True
    max_t: int | None = MAX_T

    def rungs(self, bracket: int = 0) -> tuple[int, ...]:
        return (RUNG,)

    def decide(self, view: StudyView, trial: int, rung: int) -> Decision:
        return Decision(Action.PAUSE)

    def next_paused(self, view: StudyView) -> int | None:
        if len(view.paused) < TRIALS:
            return None
        return min(view.paused, key=lambda number: view.trials[number].values[RUNG])
