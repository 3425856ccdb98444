"""The port of a scheduler: at which rungs trials wait for a decision, and what the decision is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from sweeps.core.trial import Action
from sweeps.search.schedulers.view import StudyView

if TYPE_CHECKING:
    from sweeps.space import Dimension

Explore = Callable[["Dimension", Any], Any]


@dataclass(frozen=True)
class Decision:
    """What happens to a trial at a rung.

    Attributes:
        action: Continue, stop, pause or exploit.
        donor: Number of the trial whose checkpoint to continue from, if the action is EXPLOIT.
    """

    action: Action
    donor: int | None = None


CONTINUE = Decision(Action.CONTINUE)
STOP = Decision(Action.STOP)
PAUSE = Decision(Action.PAUSE)


class Scheduler(ABC):
    """Port of a scheduler. A scheduler of your own is a dataclass that inherits from it; its fields are its options.

    A scheduler is a pure function of the study. It keeps nothing between calls, so a resumed sweep decides as before.

    Attributes:
        resource: What rungs count. Trials are compared at equal amounts of it.
        stops: Whether `decide` may return STOP.
        pauses: Whether `decide` may return PAUSE.
        perturbs: Whether `decide` may return EXPLOIT. Trials then begin together and take turns.
        needs_checkpoint: Whether a trial must report a checkpoint at every rung.
        max_t: Amount of the resource at which a trial ends, or None. Every scheduler must have this field or attribute.
    """

    resource: ClassVar[str] = "step"
    stops: ClassVar[bool] = False
    pauses: ClassVar[bool] = False
    perturbs: ClassVar[bool] = False
    needs_checkpoint: ClassVar[bool] = False
    max_t: int | None

    @abstractmethod
    def rungs(self, bracket: int = 0) -> Sequence[int]:
        """Return the steps at which a trial of a bracket waits for a decision; a `range` if there are very many."""

    @abstractmethod
    def decide(self, view: StudyView, trial: int, rung: int) -> Decision:
        """Decide what happens to a trial.

        Args:
            view: The study. The trial's report at the rung is part of it, unless the trial skipped this step.
            trial: Number of the trial.
            rung: Step that the trial has reached; one of `rungs(bracket)`.
        """

    def next_paused(self, view: StudyView) -> int | None:
        """Return the number of the paused trial that continues now, or None. It is asked before a new trial starts."""
        return None

    @property
    def bracket_count(self) -> int:
        """Number of brackets."""
        return 1

    def bracket(self, seed: int, trial: int) -> int:
        """Return the bracket of a trial, from the sweep's seed and the trial's number."""
        return 0

    def explorer(self, view: StudyView, trial: int, rung: int) -> Explore:
        """Return the function that perturbs the donor's parameters after an EXPLOIT decision.

        The function takes a dimension and the donor's key of that dimension (None if it is inactive), and returns the new key.
        """
        return lambda dimension, key: key

    def option_problems(self) -> Iterator[tuple[str, str]]:
        """Yield (option, what is wrong with its value) for rules that the types of the options cannot state."""
        yield from ()

    # What `sweeps plan` asks

    def min_complete(self, trials: int, seed: int = 0) -> int:
        """Return the least number of trials that run to their end."""
        return 0 if self.stops and self.rungs() else trials

    def min_steps(self, trials: int, seed: int = 0) -> int:
        """Return the least number of steps that all trials take together, if `max_t` is set."""
        assert self.max_t is not None
        complete = self.min_complete(trials, seed)
        return complete * self.max_t + (trials - complete) * (self.rungs()[0] if self.rungs() else self.max_t)

    def late_trial_steps(self, repeats: int) -> float | None:
        """Return the mean number of steps of a trial that starts late, with this many repeats of each complete trial.

        None means that late trials take as long as early ones.
        """
        return None


def all_rungs(scheduler: Scheduler) -> Sequence[int]:
    """Return the rungs of all brackets, sorted."""
    if scheduler.bracket_count == 1:
        return scheduler.rungs()
    return sorted({rung for bracket in range(scheduler.bracket_count) for rung in scheduler.rungs(bracket)})
