"""Decide what a driver does next. Pure functions, no I/O.

The driver tells `decide` what happened. `decide` returns commands, which the driver carries out in
their order. The driver records each change in the study before it tells the pool. If it dies before
the record, the next driver decides again. If it dies after the record, the next driver keeps the
decision.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sweeps.core.errors import InputError, Problem
from sweeps.core.trial import TIME_LIMITS, Action, State
from sweeps.execution.messages import Ended, TrialUpdate
from sweeps.search.schedulers.scheduler import CONTINUE, Decision, Scheduler, rung_set
from sweeps.search.schedulers.view import StudyView
from sweeps.search.trial_queue import TrialQueue
from sweeps.space import Space
from sweeps.study import budgets, ranking
from sweeps.study.record import STOPPED
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
    """

    space: Space
    scheduler: Scheduler
    rungs: range | frozenset[int]
    earlier_ended: int = 0

    @classmethod
    def of(cls, space: Space, scheduler: Scheduler, sweep: SweepState) -> Policy:
        """Return the policy of a driver, given what is known when it begins."""
        ended = sweep.budget.ended
        # If an earlier driver stopped because its first trials all failed, this driver counts
        # failures from zero.
        left_out = len(ended) if ranking.should_abort(ended) else 0
        return cls(space, scheduler, rung_set(scheduler), left_out)

    def can_win(self, state: TrialState) -> bool:
        """Return whether a trial that time ends may win.

        Its value must be that of one model that was trained on all rows. If the winner has a
        bundle, the trial must have a checkpoint.
        """
        space = self.space
        parts = space.data.folds or space.scheduler.counts_rows or space.repeats.count > 1
        return not parts and (state.best is not None or space.trainer.load is None)


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
        reason: Why no more trials start; None while trials can still start.
        unfinished: State to record for the trials that are running when the sweep stops. With
            RUNNING, a resume continues them.
        paused: Whether a user has paused the sweep.
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


# What may happen


@dataclass(frozen=True)
class TrialWanted:
    """There is room for another trial."""


@dataclass(frozen=True)
class TrialLeft:
    """An earlier driver ended while this trial ran.

    Attributes:
        state: The trial, without the checkpoints that do not exist.
    """

    state: TrialState


@dataclass(frozen=True)
class LimitsChecked:
    """The driver compares the spent budget with the limits now.

    Attributes:
        time_limit: The time limit that the sweep has reached; None if it has reached none.
        worker_seconds: Worker seconds of each running trial so far, by trial id; see
            `TrialReported`.
    """

    time_limit: str | None = None
    worker_seconds: Mapping[str, float] = field(default_factory=dict)


Happening = TrialWanted | TrialLeft | TrialUpdate | LimitsChecked


# What the driver does


@dataclass(frozen=True)
class Ask:
    """Start the next trial of the queue, with parameters from the sampler."""


@dataclass(frozen=True)
class StartLater:
    """Start no trial now. One may start later."""


@dataclass(frozen=True)
class StartNoMore:
    """Start no more trials."""


@dataclass(frozen=True)
class ResumeTrial:
    """Continue an interrupted trial.

    Attributes:
        number: Number of the trial.
        promoted_at: Rung at which a paused trial continues; None for an interrupted trial.
    """

    number: int
    promoted_at: int | None = None


@dataclass(frozen=True)
class Continue:
    """Let a trial that waits at a rung continue.

    Attributes:
        number: Number of the trial.
        rung: The rung.
        is_new: Whether the decision must be recorded. False if the trial continues without one.
    """

    number: int
    rung: int
    is_new: bool = True


@dataclass(frozen=True)
class Exploit:
    """Let a trial continue from a copy of a donor's checkpoint, with other parameters."""

    number: int
    rung: int
    donor: int


@dataclass(frozen=True)
class PauseTrial:
    """Let a trial give up its workers at a rung. It may continue later."""

    number: int
    rung: int


@dataclass(frozen=True)
class End:
    """End a trial.

    Attributes:
        number: Number of the trial.
        state: State of the trial at its end.
        error: Error with which it failed; None if it did not fail.
        reason: Why it was stopped; None if it was not stopped.
        final: Metrics of the finished model; empty if there are none.
    """

    number: int
    state: State
    error: str | None = None
    reason: str | None = None
    final: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Refuse:
    """End the sweep, because every trial would fail for the same reason."""

    error: InputError


@dataclass(frozen=True)
class StopSweep:
    """Start no more trials, and end the running trials.

    Attributes:
        reason: Why the sweep stops.
        unfinished: See `DriverState`.
    """

    reason: str
    unfinished: State


Command = (
    Ask
    | StartLater
    | StartNoMore
    | ResumeTrial
    | Continue
    | Exploit
    | PauseTrial
    | End
    | Refuse
    | StopSweep
)


def decide(driver: DriverState, event: Happening, policy: Policy) -> tuple[Command, ...]:
    """Return what a driver does after something has happened.

    Args:
        driver: The facts on which the driver decides. They include the events of a `TrialUpdate`.
        event: What happened.
        policy: What stays the same while the driver runs.
    """
    match event:
        case TrialWanted():
            return tuple(_next_trial(driver, policy))
        case TrialLeft(state):
            return tuple(_left(driver, state, policy))
        case TrialUpdate(end=Ended() as end):
            return tuple(_ended(driver, int(event.trial), end, policy))
        case TrialUpdate(rung=int() as rung):
            return (_at_rung(driver, driver.sweep.trials[int(event.trial)], rung, policy),)
        case LimitsChecked():
            return tuple(_over_limit(driver, event, policy))
    return ()


def _next_trial(driver: DriverState, policy: Policy) -> Iterable[Command]:
    scheduler = policy.scheduler
    if driver.paused and driver.trials_left(scheduler):
        return [StartLater()]
    if driver.reason is not None:
        return [StartNoMore()]  # Paused trials stay paused, so that a resume can continue them.
    if driver.slots is not None and len(driver.running) >= driver.slots:
        return [StartLater()]
    if driver.interrupted:
        return [ResumeTrial(driver.interrupted[0])]
    paused = driver.view.paused
    promoted = scheduler.next_paused(driver.view) if paused else None
    if promoted is not None:
        return [ResumeTrial(promoted, paused[promoted])]
    if not driver.queue.is_empty:
        return [Ask()]
    if driver.may_wait:
        return [StartLater()]
    # No other trial is left whose results could let a paused trial continue.
    ends = [End(n, State.PRUNED, reason=_at(policy, rung)) for n, rung in paused.items()]
    return [*ends, StartNoMore()]


def _left(driver: DriverState, state: TrialState, policy: Policy) -> Iterable[Command]:
    """Decide about a trial that an earlier driver left running.

    It ends or is paused if the earlier driver would have decided so at the trial's last step.
    """
    scheduler, steps = policy.scheduler, state.steps
    saved = state.checkpoint.step if state.checkpoint else 0
    # With several ranks, one rank may not have written its part of the last checkpoint, so the last
    # complete checkpoint counts.
    alone = state.trial.shape.sizes == range(1, 2)
    if scheduler.max_t is not None and (steps if alone else saved) >= scheduler.max_t:
        return [End(state.number, State.COMPLETE)]
    # A trial that may be paused or perturbed needs a checkpoint of this step. Without one, it
    # reaches the rung again.
    needs_checkpoint = scheduler.pauses or scheduler.perturbs
    decides = scheduler.stops or needs_checkpoint
    if not decides or steps not in policy.rungs or (needs_checkpoint and saved != steps):
        return []
    return [_decision(driver, state, steps, policy)]


def _at_rung(driver: DriverState, state: TrialState, rung: int, policy: Policy) -> Command:
    """Decide about a trial that waits at a rung."""
    saved = state.checkpoint is not None and state.checkpoint.step == rung
    if policy.scheduler.needs_checkpoint and not saved and state.decided_rung < rung:
        name = policy.space.scheduler.name
        error = (
            f"the scheduler {name} needs a checkpoint at each step at which it compares trials, "
            f"but trial {state.id} reported step {rung} without a checkpoint; pass a checkpoint to "
            "`report` whenever `sweeps.trial.current().checkpoint_due` is true"
        )
        if not driver.sweep.budget.ended:  # Every other trial would fail in the same way.
            return Refuse(InputError("scheduler.name", error))
        return End(state.number, State.FAIL, error)
    return _decision(driver, state, rung, policy)


def _decision(driver: DriverState, state: TrialState, rung: int, policy: Policy) -> Command:
    """Let the scheduler decide about a trial at a rung, unless it continues anyway."""
    number, scheduler = state.number, policy.scheduler
    repeats = state.trial.repeat_of is not None  # A repeat is never stopped.
    # After a failed attempt, a trial reaches a rung again. It may have been decided on, or the
    # trial may have got past it before an earlier driver died.
    is_decided = state.decided_rung >= rung
    is_past = state.steps > rung and not scheduler.perturbs
    if repeats or is_decided or is_past:
        return Continue(number, rung, is_new=False)
    decision = CONTINUE
    if scheduler.perturbs or rung in scheduler.rungs(driver.view.trials[number].bracket):
        decision = scheduler.decide(driver.view, number, rung)
    match decision:
        case Decision(Action.EXPLOIT, int() as donor):
            return Exploit(number, rung, donor)
        case Decision(Action.PAUSE):
            return PauseTrial(number, rung)
        case Decision(Action.STOP):
            return End(number, State.PRUNED, reason=_at(policy, rung))
        case _:
            return Continue(number, rung)


def _at(policy: Policy, rung: int) -> str:
    """Return the reason of a trial that the scheduler stops at a rung."""
    return f"{policy.space.scheduler.name} at step {rung}"


def _ended(driver: DriverState, number: int, end: Ended, policy: Policy) -> Iterable[Command]:
    """Decide what follows from the end of a trial in the pool."""
    # Every other trial would fail for the same reason.
    if end.refused is not None and not driver.sweep.budget.ended:
        yield Refuse(InputError(Problem(*end.refused)))
    reason = reason_of_stop(driver, number, policy) if end.state is State.PRUNED else None
    yield End(number, end.state, end.error, reason, end.final)


def reason_of_stop(driver: DriverState, number: int, policy: Policy) -> str | None:
    """Return why a trial was stopped that the scheduler has not stopped."""
    if number in driver.stop_requested:
        return STOPPED
    if driver.reason in TIME_LIMITS and not policy.can_win(driver.sweep.trials[number]):
        return f"{driver.reason}, unfinished"
    return driver.reason


def _over_limit(driver: DriverState, event: LimitsChecked, policy: Policy) -> Iterable[StopSweep]:
    """Stop the sweep if it has reached a limit of the space file and has trials left."""
    budget, limits = driver.sweep.budget, policy.space.limits
    if driver.reason is not None:
        return
    if ranking.should_abort(budget.ended[policy.earlier_ended :]):
        first = ranking.ABORT_AFTER_FAILURES
        yield StopSweep(f"the first {first} trials that ended have all failed", State.RUNNING)
        return
    if len(budget.ended) >= driver.queue.known_total:
        return
    if event.time_limit is not None:
        yield StopSweep(event.time_limit, State.PRUNED)
        return
    gpu_seconds = 0.0 if limits.max_gpu_hours is None else _unfinished_gpu_seconds(driver, event)
    if (reason := budgets.exhausted(limits, budget, gpu_seconds)) is not None:
        # After too many failures, the running trials stay resumable, because they did not fail
        # themselves.
        failures = reason.startswith("limits.max_failures")
        yield StopSweep(reason, State.RUNNING if failures else State.PRUNED)


def _unfinished_gpu_seconds(driver: DriverState, event: LimitsChecked) -> float:
    """Return the GPU seconds of the trials that have not ended."""
    trials = driver.sweep.trials
    used = [(event.worker_seconds.get(trials[n].id, 0.0), trials[n]) for n in driver.running]
    unfinished = (trials[n] for n in (*driver.interrupted, *driver.view.paused))
    used += [(state.worker_seconds, state) for state in unfinished]
    return sum(
        seconds * dict(state.trial.shape.per_worker).get("GPU", 0.0) for seconds, state in used
    )
