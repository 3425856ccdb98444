"""Decide what a driver does next. Pure functions, no I/O.

The driver tells `decide` what happened. `decide` returns commands, which the driver carries out in
their order. The driver records each change in the study before it tells the pool. If it dies before
the record, the next driver decides again. If it dies after the record, the next driver keeps the
decision.
"""

from collections.abc import Iterable

from sweeps.core.errors import InputError, Problem
from sweeps.core.trial import TIME_LIMITS, Action, State
from sweeps.execution.messages import Ended, TrialUpdate
from sweeps.search.schedulers.scheduler import CONTINUE, Decision
from sweeps.study import budgets, ranking
from sweeps.study.record_reader import STOPPED
from sweeps.study.states import TrialState

from .driver_commands import (
    Ask,
    Continue,
    DriverCommand,
    DriverEvent,
    End,
    Exploit,
    LimitsChecked,
    PauseTrial,
    Refuse,
    ResumeTrial,
    StartLater,
    StartNoMore,
    StopSweep,
    TrialLeft,
    TrialWanted,
)
from .driver_state import DriverState, Policy


def decide(driver: DriverState, event: DriverEvent, policy: Policy) -> tuple[DriverCommand, ...]:
    """Return what a driver does after something has happened.

    Args:
        driver: The facts on which the driver decides. They include the events of a `TrialUpdate`.
        event: Event to react to.
        policy: Settings that stay the same while the driver runs.
    """
    match event:
        case TrialWanted():
            return tuple(_next_trial(driver, policy))
        case TrialLeft(state):
            return tuple(_decide_leftover(driver, state, policy))
        case TrialUpdate(end=Ended() as end):
            return tuple(_follow_end(driver, int(event.trial), end, policy))
        case TrialUpdate(rung=int() as rung):
            return (_decide_at_rung(driver, driver.sweep.trials[int(event.trial)], rung, policy),)
        case LimitsChecked():
            return tuple(_check_limits(driver, event, policy))
    return ()


def _next_trial(driver: DriverState, policy: Policy) -> Iterable[DriverCommand]:
    """Decide which trial starts or continues, now that there is room for one."""
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
    ends = [End(n, State.PRUNED, reason=_stop_reason(policy, rung)) for n, rung in paused.items()]
    return [*ends, StartNoMore()]


def _decide_leftover(
    driver: DriverState, state: TrialState, policy: Policy
) -> Iterable[DriverCommand]:
    """Decide about a trial that an earlier driver left running.

    It ends or is paused if the earlier driver would have decided so at the trial's last step.
    """
    scheduler = policy.scheduler
    steps = state.steps
    saved = state.checkpoint.step if state.checkpoint else 0
    # With several ranks, one rank may not have written its part of the last checkpoint, so the last
    # complete checkpoint counts.
    has_one_rank = state.trial.shape.sizes == range(1, 2)
    finished_steps = steps if has_one_rank else saved
    if scheduler.max_t is not None and finished_steps >= scheduler.max_t:
        return [End(state.number, State.COMPLETE)]
    # A trial that may be paused or perturbed needs a checkpoint of this step. Without one, it
    # reaches the rung again.
    needs_checkpoint = scheduler.pauses or scheduler.perturbs
    if not (scheduler.stops or needs_checkpoint) or steps not in policy.rungs:
        return []
    if needs_checkpoint and saved != steps:
        return []
    return [_ask_scheduler(driver, state, steps, policy)]


def _decide_at_rung(
    driver: DriverState, state: TrialState, rung: int, policy: Policy
) -> DriverCommand:
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
    return _ask_scheduler(driver, state, rung, policy)


def _ask_scheduler(
    driver: DriverState, state: TrialState, rung: int, policy: Policy
) -> DriverCommand:
    """Let the scheduler decide about a trial at a rung, unless it continues anyway."""
    number = state.number
    scheduler = policy.scheduler
    # Neither a repeat nor a default configuration is ever stopped.
    runs_to_end = state.trial.repeat_of is not None or policy.is_default(state)
    # After a failed attempt, a trial reaches a rung again. It may have been decided on, or the
    # trial may have got past it before an earlier driver died.
    is_decided = state.decided_rung >= rung
    is_past = state.steps > rung and not scheduler.perturbs
    if runs_to_end or is_decided or is_past:
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
            return End(number, State.PRUNED, reason=_stop_reason(policy, rung))
        case _:
            return Continue(number, rung)


def _stop_reason(policy: Policy, rung: int) -> str:
    """Return the reason of a trial that the scheduler stops at a rung."""
    return f"{policy.space.scheduler.name} at step {rung}"


def _follow_end(
    driver: DriverState, number: int, end: Ended, policy: Policy
) -> Iterable[DriverCommand]:
    """Decide what follows from the end of a trial in the pool."""
    # Every other trial would fail for the same reason, unless it has another trainer.
    is_first = not driver.sweep.budget.ended and len(policy.space.trainers) == 1
    if end.refused is not None and is_first:
        yield Refuse(InputError(Problem(*end.refused)))
    reason = reason_of_stop(driver, number, policy) if end.state is State.PRUNED else None
    yield End(number, end.state, end.error, reason, end.final)


def reason_of_stop(driver: DriverState, number: int, policy: Policy) -> str | None:
    """Return why a trial was stopped, if it was not stopped by the scheduler."""
    if number in driver.stop_requested:
        return STOPPED
    if driver.reason in TIME_LIMITS and not policy.can_win(driver.sweep.trials[number]):
        return f"{driver.reason}, unfinished"
    return driver.reason


def _check_limits(driver: DriverState, event: LimitsChecked, policy: Policy) -> Iterable[StopSweep]:
    """Stop the sweep if it has reached a limit of the space file and has trials left."""
    budget = driver.sweep.budget
    limits = policy.space.limits
    if driver.reason is not None:
        return
    ended = budget.ended[policy.earlier_ended :]
    if ranking.should_abort(ended, len(policy.space.trainers)):
        first = ranking.ABORT_AFTER_FAILURES * len(policy.space.trainers)
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
    gpu_seconds = 0.0
    for number in (*driver.running, *driver.interrupted, *driver.view.paused):
        state = driver.sweep.trials[number]
        worker_seconds = state.worker_seconds
        if number in driver.running:
            worker_seconds = event.worker_seconds.get(state.id, 0.0)
        gpu_seconds += worker_seconds * dict(state.trial.shape.per_worker).get("GPU", 0.0)
    return gpu_seconds
