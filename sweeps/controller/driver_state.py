"""Facts on which a driver decides: those that stay the same, and those that change."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sweeps.core.trial import State
from sweeps.search.default_points import default_points, is_default
from sweeps.search.schedulers.scheduler import Scheduler, rung_set
from sweeps.search.schedulers.view import StudyView
from sweeps.search.trial_queue import TrialQueue
from sweeps.space import Space
from sweeps.space.model.conditions import Key
from sweeps.study import ranking
from sweeps.study.states import TrialState
from sweeps.study.sweep_state import SweepState


@dataclass(frozen=True)
class Policy:
    """The facts that stay the same while a driver runs.

    Attributes:
        space: The search space.
        scheduler: The scheduler of the space.
        rungs: The rungs of all brackets.
        earlier_ended: Number of ended trials of earlier drivers that do not count for the rule that
            ends a sweep whose first trials all fail.
        defaults: Keys of the default configurations; see `default_points`.
    """

    space: Space
    scheduler: Scheduler
    rungs: range | frozenset[int]
    earlier_ended: int = 0
    defaults: Sequence[Mapping[str, Key]] = ()

    @classmethod
    def of(cls, space: Space, scheduler: Scheduler, sweep: SweepState) -> Policy:
        """Return the policy of a driver, given what is known when it begins."""
        ended = sweep.budget.ended
        # If an earlier driver stopped because its first trials all failed, this driver counts
        # failures from zero.
        left_out = len(ended) if ranking.should_abort(ended, len(space.trainers)) else 0
        return cls(space, scheduler, rung_set(scheduler), left_out, default_points(space))

    def is_default(self, state: TrialState) -> bool:
        """Return whether a trial has a default configuration. The winner is compared with it."""
        return is_default(self.defaults, state.keys)

    def can_win(self, state: TrialState) -> bool:
        """Return whether a trial may win if a time limit ends it.

        Its value must be that of one model that was trained on all rows. If the winner has a
        bundle, the trial must have a checkpoint.
        """
        space = self.space
        has_parts = space.data.folds or space.scheduler.counts_rows or space.repeats.count > 1
        has_bundle = space.trainer_of(state.trial.labels).load is not None
        return not has_parts and (state.best is not None or not has_bundle)


@dataclass
class DriverState:
    """The facts on which a driver decides.

    Attributes:
        sweep: The trials and the spent budget.
        view: The trials as the scheduler sees them.
        queue: The trials that have not started.
        interrupted: Numbers of the trials that were running when an earlier driver ended. This
            driver must continue them.
        running: Numbers of the trials that this driver runs.
        reason: Reason why no more trials start; None while trials can still start.
        unfinished: State to record for the trials that are running when the sweep stops. With
            RUNNING, a resume continues them.
        paused: True if a user has paused the sweep.
        slots: Largest number of trials that run at the same time. None if Ray Tune alone limits the
            number.
        stop_requested: Numbers of the running trials that a user stops.
    """

    sweep: SweepState
    view: StudyView
    queue: TrialQueue
    interrupted: deque[int]
    running: Mapping[int, object] = field(default_factory=dict)
    reason: str | None = None
    unfinished: State = State.RUNNING
    paused: bool = False
    slots: int | None = None
    stop_requested: set[int] = field(default_factory=set)

    def trials_left(self, scheduler: Scheduler) -> bool:
        """Return whether this driver may still start or continue a trial.

        Repeats that are added when running trials end are not counted.
        """
        if self.interrupted or self.queue.remaining > 0:
            return True
        return bool(self.view.paused) and scheduler.next_paused(self.view) is not None

    @property
    def may_wait(self) -> bool:
        """True if a running trial may let others start or continue when it ends.

        It may add repeats to the queue, or let a paused trial continue.
        """
        return bool(self.running) and (self.queue.may_grow or bool(self.view.paused))
