"""A study with made-up values, to see what a scheduler decides without training."""

from sweeps.core.resources import Shape
from sweeps.core.trial import Checkpoint, Report, Result, State, Trial
from sweeps.space.sections.search_models import Objective
from sweeps.study.events import (
    TrialDecided,
    TrialEnded,
    TrialEvent,
    TrialPaused,
    TrialReported,
    TrialStarted,
)
from sweeps.study.objectives import Objectives
from sweeps.study.transitions import apply, initial_state

from .view import StudyView

METRIC = "value"


class SimulatedStudy(StudyView):
    """A study whose events the caller makes up. See `StudyView`."""

    def __init__(self, seed: int = 0, minimize: bool = True):
        super().__init__(seed, minimize)
        self._objectives = Objectives((Objective(METRIC, "minimize" if minimize else "maximize"),))

    def start(self, number: int, bracket: int = 0) -> None:
        """Start a trial."""
        trial = Trial(
            number=number,
            params={},
            preprocessor=(),
            shape=Shape(1, ()),
            seed=number,
            labels={},
        )
        self.add(initial_state(TrialStarted(0.0, number, trial), self._objectives), bracket)

    def report(self, number: int, values: dict[int, float], saves: bool = False) -> None:
        """Report values by step.

        Args:
            number: Number of the trial.
            values: The values of new steps, in the order of the steps.
            saves: True if the trial stores a checkpoint at the last step.
        """
        last = max(values)
        saved = Checkpoint(f"checkpoint_{last:06d}", last, last) if saves else None
        reports = tuple(Report(step, {METRIC: value}, 0.0) for step, value in values.items())
        self._happen(TrialReported(0.0, number, reports, saved, saved))

    def pause(self, number: int, rung: int) -> None:
        """Pause a trial at a rung."""
        self._happen(TrialPaused(0.0, number, rung))

    def resume(self, number: int) -> None:
        """Let a paused trial continue."""
        self._happen(TrialDecided(0.0, number, self.paused[number]))

    def end(self, number: int, state: State = State.PRUNED) -> None:
        """End a trial."""
        self._happen(TrialEnded(0.0, number, Result(state)))

    def _happen(self, event: TrialEvent) -> None:
        self.follow(apply(self.trials[event.number].state, event))
