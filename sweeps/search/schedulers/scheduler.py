"""Interface of a scheduler.

A scheduler sets the rungs (steps at which a trial waits), and decides what happens to the trial
there.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from sweeps.core.trial import Action, Trial
from sweeps.space import Dimension
from sweeps.space.model.conditions import Key
from sweeps.space.sections.key_types import ROWS

from .view import StudyView

# Function of a dimension and the donor's key; see `Scheduler.explorer`.
Explore = Callable[[Dimension, Key], Key]


@dataclass(frozen=True)
class Decision:
    """Decision of a scheduler about a trial at a rung.

    Attributes:
        action: CONTINUE, STOP, PAUSE or EXPLOIT.
        donor: For EXPLOIT, the number of another trial, from whose checkpoint this trial continues.
            None for the other actions.
    """

    action: Action
    donor: int | None = None


CONTINUE = Decision(Action.CONTINUE)
STOP = Decision(Action.STOP)
PAUSE = Decision(Action.PAUSE)


class Scheduler(ABC):
    """Interface of a scheduler.

    To write a scheduler, define a dataclass that inherits from this class. Its fields are its
    options.

    A scheduler must keep no state between calls: each decision depends only on the study. A resumed
    sweep then makes the same decisions.

    Attributes:
        resource: Unit of the rungs and of `max_t`. Trials are compared at equal amounts of this
            resource. "step" is a step of the loop. "data.rows" is a part of the train split, of
            which `max_t` is the whole: the loop runs at each rung and at `max_t`, each time on more
            rows.
        stops: True if `decide` may return STOP.
        pauses: True if `decide` may return PAUSE.
        perturbs: True if `decide` may return EXPLOIT. In this case, all trials start at the
            beginning of the sweep. If they do not fit on the workers at the same time, they take
            turns.
        needs_checkpoint: True if a trial must report a checkpoint at every rung.
        max_t: Amount of the resource at which a trial ends; None if a trial ends only when its
            training loop returns. Every scheduler must have this field or attribute.
    """

    resource: str = "step"
    stops: ClassVar[bool] = False
    pauses: ClassVar[bool] = False
    perturbs: ClassVar[bool] = False
    needs_checkpoint: ClassVar[bool] = False
    max_t: int | None

    @abstractmethod
    def rungs(self, bracket: int = 0) -> Sequence[int]:
        """Return the steps at which a trial waits for a decision, sorted.

        A bracket is a group of trials with the same steps, as in Hyperband.

        Args:
            bracket: Number of the trial's bracket; 0 if there is only one bracket.

        Returns:
            The steps. If there are very many steps, return a `range` instead of a tuple.
        """

    @abstractmethod
    def decide(self, view: StudyView, trial: int, rung: int) -> Decision:
        """Decide what happens to a trial at a rung.

        Args:
            view: The trials so far. They include this trial, with its value at the rung if the
                trial reported at this step.
            trial: Number of the trial.
            rung: Step at which the trial waits; one of the steps that `rungs` returns for the
                trial's bracket.

        Returns:
            The decision.
        """

    def next_paused(self, view: StudyView) -> int | None:
        """Return the number of the paused trial that continues now.

        Return None if no paused trial continues now.

        The driver calls this method before it starts a new trial.

        Args:
            view: The sweep's trials so far, with their reported values.
        """
        return None

    @property
    def bracket_count(self) -> int:
        """Number of brackets."""
        return 1

    def bracket(self, seed: int, trial: int) -> int:
        """Return the number of the bracket to which a trial belongs.

        Args:
            seed: Seed of the sweep.
            trial: Number of the trial.
        """
        return 0

    def explorer(self, view: StudyView, trial: int, rung: int) -> Explore:
        """Return the function that perturbs the donor's parameters after an EXPLOIT decision.

        Args:
            view: The sweep's trials so far, with their reported values.
            trial: Number of the trial that gets the perturbed parameters.
            rung: Step at which the trial waits.

        Returns:
            A function `f(dimension, key)` that returns the new key. `key` is the donor's key for
            the dimension, or None if the dimension is not active for the donor.
        """
        return lambda dimension, key: key

    def option_problems(self) -> Iterator[tuple[str, str]]:
        """Yield (name of the option, problem) for options that the type checks do not reject.

        An example is a `grace_period` above `max_t`.
        """
        for option in ("grace_period", "perturbation_interval"):
            first = getattr(self, option, 0)
            if self.max_t is not None and isinstance(first, int) and first > self.max_t:
                yield option, f"must be at most max_t, {self.max_t}, got {first}"


def row_steps(scheduler: Scheduler, seed: int, trial: Trial) -> tuple[int, ...]:
    """Return the steps at which a trial trains: the rungs and `max_t`.

    Return () if the scheduler does not count rows. A trial that repeats another one trains only on
    all rows, because it is never stopped.

    Args:
        scheduler: The scheduler.
        seed: Seed of the sweep.
        trial: The trial.
    """
    if trial.repeat_of is not None:
        return _steps_of_rows(scheduler, ())
    return _steps_of_rows(scheduler, scheduler.rungs(scheduler.bracket(seed, trial.number)))


def all_row_steps(scheduler: Scheduler) -> tuple[int, ...]:
    """Return the steps at which some trial trains, if the scheduler counts rows.

    See `row_steps`.
    """
    return _steps_of_rows(scheduler, all_rungs(scheduler))


def _steps_of_rows(scheduler: Scheduler, rungs: Sequence[int]) -> tuple[int, ...]:
    """Return the given rungs and `max_t`; () if the scheduler does not count rows."""
    if scheduler.resource != ROWS or scheduler.max_t is None:
        return ()
    return (*(rung for rung in rungs if rung < scheduler.max_t), scheduler.max_t)


def rung_set(scheduler: Scheduler) -> range | frozenset[int]:
    """Return the rungs of all brackets of a scheduler in a form that finds a step fast."""
    rungs = all_rungs(scheduler)
    return rungs if isinstance(rungs, range) else frozenset(rungs)


def all_rungs(scheduler: Scheduler) -> Sequence[int]:
    """Return the rungs of all brackets of a scheduler, sorted and without duplicates."""
    if scheduler.bracket_count == 1:
        return scheduler.rungs()
    return sorted(
        {rung for bracket in range(scheduler.bracket_count) for rung in scheduler.rungs(bracket)}
    )
