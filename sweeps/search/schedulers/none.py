"""Default scheduler, which lets every trial run to its end."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from sweeps.space.sections.key_types import AtLeast1

from .scheduler import CONTINUE, Decision, Scheduler
from .view import StudyView


@dataclass(frozen=True)
class NoScheduler(Scheduler):
    """Let every trial run to its end, or to `max_t`."""

    max_t: Annotated[AtLeast1 | None, Field(description="the step at which a trial ends")] = None

    def rungs(self, bracket: int = 0) -> tuple[int, ...]:
        """Return (), because no trial waits for a decision."""
        return ()

    def decide(self, view: StudyView, trial: int, rung: int) -> Decision:
        """Return CONTINUE."""
        return CONTINUE
