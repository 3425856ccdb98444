"""A trial that the pool has started and that has not ended."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sweeps.core import clock
from sweeps.core.text.secrets import masked
from sweeps.core.trial import Checkpoint, GangSizePeriod, State, Trial
from sweeps.execution.gangs.pool_worker import PoolWorker
from sweeps.execution.messages import Ended, RankUpdate, Silence, TrialUpdate
from sweeps.execution.pool_usage import Stage
from sweeps.study.events import (
    AttemptFailed,
    AttemptStarted,
    FailureCounts,
    RankPlace,
    TrialEvent,
    TrialReported,
    TrialResized,
    merge_reports,
)
from sweeps.study.states import TrialState
from sweeps.study.transitions import apply, new_reports

from .checkpoint_parts import CheckpointParts

# After a rank has exceeded a time limit, the pool waits this long, in seconds, until the rank has
# written its stack to its log.
STACKS_WITHIN = 2.0
# A trial that ends at once has this many seconds to make its next report, before its worker is
# killed.
STOPS_WITHIN = 1.0


class StepAnswers(dict[int, "asyncio.Future[bool]"]):
    """Answers to ranks that wait at steps: True if they continue. All ranks share the answers.

    `answers[step]` is the future of the answer at a step.
    """

    def __init__(self) -> None:
        self._closed = False

    def __missing__(self, step: int) -> asyncio.Future[bool]:
        self[step] = asyncio.get_running_loop().create_future()
        if self._closed:
            self[step].set_result(False)
        return self[step]

    def close(self) -> None:
        """Stop the ranks that wait, and those that will."""
        self._closed = True
        for answer in self.values():
            if not answer.done():
                answer.set_result(False)


class RunningTrial:
    """A trial over all its attempts.

    Messages of ranks may arrive twice or out of order. Ray does not preserve the order of calls to
    an asyncio actor, and a rank resends each report and checkpoint until the pool acknowledges it.
    Each report and each checkpoint is recorded once.

    Args:
        state: The state of the trial at its start.
        folder: Folder for the trial's checkpoints and logs.
        row_steps: See `Assignment.row_steps`.
        keep_latest: See `Job.keep_latest`.
        keeps_last: True if the latest checkpoint is the best one; see `Job.keep_last`.

    Attributes:
        state: The current state of the trial, without its end.
        parts: The parts of checkpoints that ranks have written.
        rung: Step at which rank 0 waits for the driver's decision; None if rank 0 does not wait.
        ended: Result of the trial; None while it runs.
        stage: Current stage of the trial; see `Stage`.
        decisions: The driver's decisions at rungs.
        stopped: True if the driver has recorded the end of the trial. Its ranks may still be
            running.
        seconds: Seconds on workers in attempts that have ended.
        worker_seconds: Sum of the seconds of all workers in attempts that have ended.
        began: Time at which the ranks started this attempt, by the monotonic clock; None between
            attempts. Waiting for a decision and the import of the user's module do not count, so
            each of these pauses moves this time forward.
        silent: Latest notice of each rank that has not reported for a long time.
        last_update: Time of the latest message of each rank in this attempt, by the monotonic
            clock.
        yields: True if the ranks stop so that another attempt can continue from this step. False if
            they stop because the trial ends.
        workers: The workers that run the trial, in the order of ranks; empty between attempts.
        next_workers: Reserved workers with which an elastic trial starts its next attempt; empty if
            it must wait for workers.
        may_grow: True if the gang of an elastic trial may grow. False after an attempt to grow, if
            workers could not join a larger gang.
        may_change_size: True if the gang may change its size in this attempt. The ranks then ask at
            each report whether to continue.
        answers: The answers of the pool to ranks that ask in this attempt whether to continue.
        task: Background task that runs the trial; None before it starts.
        changed: Event that is set when there may be progress for the driver.
    """

    def __init__(
        self,
        state: TrialState,
        folder: str,
        row_steps: tuple[int, ...] = (),
        keep_latest: int = 1,
        keeps_last: bool = False,
    ):
        self.state = state
        self.folder = folder
        self.row_steps = row_steps
        self.parts = CheckpointParts(state.trial.shape.workers, keep_latest)
        if state.attempt:
            self.parts.restore(state)
        self.rung: int | None = None
        self.ended: Ended | None = None
        self._keeps_last = keeps_last
        self._unsent: list[TrialEvent] = []
        self._has_unsent_checkpoint = False
        self._sent_rung: int | None = None
        self.stage = Stage.PREPARING
        self.decisions = StepAnswers()
        self.stopped = False
        self.seconds = state.seconds
        self.worker_seconds = state.worker_seconds
        self.began: float | None = None
        self.yields = False
        self.task: asyncio.Task[None] | None = None
        self.changed = asyncio.Event()
        self.workers: list[PoolWorker] = []
        self.next_workers: list[PoolWorker] = []
        self.may_change_size = False
        self.may_grow = True
        self._clear()

    def _clear(self) -> None:
        """Forget what belongs to one attempt."""
        self.answers = StepAnswers()
        self.silent: dict[int, Silence] = {}
        self.last_update: dict[int, float] = {}
        # By number of the exchange: the values by rank, and an event for the last value
        self._exchanges: dict[int, tuple[dict[int, Any], asyncio.Event]] = {}
        self._resumed: asyncio.Future[bool] | None = None

    @property
    def resumed(self) -> asyncio.Future[bool]:
        """Future whose result is True if the loop continues from its checkpoint in this attempt."""
        if self._resumed is None:
            self._resumed = asyncio.get_running_loop().create_future()
        return self._resumed

    @property
    def trial(self) -> Trial:
        """The trial, with its current parameters."""
        return self.state.trial

    def begin_attempt(self, places: Sequence[RankPlace]) -> int:
        """Start a new attempt, and return its number.

        Args:
            places: Place of each rank.
        """
        now = clock.time()
        number = self.state.number
        workers = len(places)
        self._add(AttemptStarted(now, number, self.state.attempt + 1, tuple(places)))
        sizes = self.state.sizes
        if self.state.is_elastic and (not sizes or sizes[-1].workers != workers):
            step = self.state.checkpoint.step if self.state.checkpoint is not None else 0
            size = GangSizePeriod(step, workers, self.state.steps, now)
            self._add(TrialResized(now, number, size))
        self.parts.begin(workers)
        self._clear()
        return self.state.attempt

    # ---- what happened, for the driver

    def record(self, attempt: int, update: RankUpdate, ended: Ended | None = None) -> bool:
        """Record a message of a rank.

        Args:
            attempt: Number of the attempt in which the rank sent the message.
            update: The message.
            ended: Result of the loop on this rank; None if the loop has not ended. After an
                exception, checkpoints at later steps stay incomplete.

        Returns:
            False if the message was ignored, because the trial has ended or another attempt has
            started.
        """
        if self.ended is not None or attempt != self.state.attempt:
            return False
        new = new_reports(self.state, update.reports)
        time = new[-1].time if new else clock.time()
        event = replace(self._progress(), time=time, reports=new)
        latest = self.state.checkpoint.step if self.state.checkpoint is not None else 0
        failed = ended is not None and ended.state is State.FAIL
        complete = self.parts.add(update, latest, ended is not None, failed)
        if complete:
            best = self._best(apply(self.state, event), complete)
            event = replace(event, checkpoint=complete[-1], best=best)
            self._has_unsent_checkpoint = True
        if new or complete:
            self.state = apply(self.state, event)
            self._unsent.append(event)
        self.silent.pop(update.rank, None)
        self.last_update[update.rank] = clock.monotonic()
        return True

    def _progress(self) -> TrialReported:
        """Return an event without reports, with the seconds up to now."""
        return TrialReported(
            clock.time(),
            self.state.number,
            reports=(),
            seconds=self.seconds_spent(),
            worker_seconds=self.worker_seconds_spent(),
        )

    def _best(self, state: TrialState, complete: Sequence[Checkpoint]) -> Checkpoint | None:
        """Return the checkpoint with the best model: one of the new ones, or `state.best`."""
        best = state.best
        for new in complete:
            is_first = best is None or self._keeps_last
            if is_first or (best and state.key_at(new.best_step) <= state.key_at(best.best_step)):
                best = new
        return best

    def _add(self, event: TrialEvent) -> None:
        """Apply an event to the state, and keep it for the driver."""
        self.state = apply(self.state, event)
        self._unsent.append(event)

    def renew(self, recorded: TrialState) -> None:
        """Give the trial the parameters and the checkpoint that a perturbation has chosen."""
        self.state = recorded
        self.parts.restore(recorded)

    @property
    def is_urgent(self) -> bool:
        """True if the trial has ended, waits at a rung, or has a new checkpoint."""
        return self.ended is not None or self.rung != self._sent_rung or self._has_unsent_checkpoint

    @property
    def has_unsent(self) -> bool:
        """True if there are reports that the driver has not received."""
        return any(isinstance(event, TrialReported) for event in self._unsent)

    def next_update(self) -> TrialUpdate:
        """Return what happened since the last call, and mark it as received by the driver."""
        rung = self.rung if self.rung != self._sent_rung else None
        update = TrialUpdate(self.trial.id, merge_reports(self._unsent), rung, self.ended)
        self._unsent = []
        self._has_unsent_checkpoint = False
        self._sent_rung = self.rung
        self.parts.mark_sent(self.state)
        return update

    # ---- ranks

    async def exchange(self, rank: int, number: int, value: Any) -> list[Any]:
        """Wait until every rank has given a value; return all values, ordered by rank.

        Args:
            rank: Rank that gives the value.
            number: Number of the exchange, the same on all ranks; 1 for the first exchange of the
                attempt.
            value: The value.
        """
        values, complete = self._exchanges.setdefault(number, ({}, asyncio.Event()))
        values[rank] = value
        if len(values) == self.parts.ranks:
            complete.set()
            self._exchanges.pop(number)
        await complete.wait()
        return [values[other] for other in sorted(values)]

    def seconds_spent(self) -> float:
        """Return the seconds of the trial's attempts on workers, including the current attempt."""
        return round(self.seconds + self._attempt_seconds(), 4)

    def worker_seconds_spent(self) -> float:
        """Return the worker seconds of the trial, including the current attempt.

        Ten seconds on two workers are 20 worker seconds.
        """
        return round(self.worker_seconds + self._attempt_seconds() * self.parts.ranks, 4)

    def _attempt_seconds(self) -> float:
        """Return the seconds of the current attempt; 0 between attempts."""
        return clock.monotonic() - self.began if self.began is not None else 0.0

    def end_attempt(self) -> None:
        """Add the time of an attempt that has ended to `seconds` and `worker_seconds`."""
        seconds = self._attempt_seconds()
        self.seconds += seconds
        self.worker_seconds += seconds * self.parts.ranks
        self.workers = []
        self.began = None

    def find_overdue(self, limit: float) -> list[Silence]:
        """Return the notices of ranks that have not reported for at least `limit` seconds.

        The result is empty while the trial waits for the driver's decision, because ranks do not
        report then.
        """
        if any(not decision.done() for decision in self.decisions.values()):
            return []
        return [
            self.silent[rank] for rank in sorted(self.silent) if self.silent[rank].seconds >= limit
        ]

    def accept_decision(self, step: int) -> bool:
        """Record that the driver has decided at this rung. Return False if no rank waits for it."""
        return self.leave_rung(step) and not self.decisions[step].done()

    def leave_rung(self, step: int) -> bool:
        """Record that rank 0 no longer waits at this rung. Return False if it does not wait."""
        if self.rung != step:
            return False
        self.rung = self._sent_rung = None
        return True

    def update_rungs(self, together: bool) -> None:
        """Ask the driver for decisions after a rank has reached a rung or has ended.

        If rank 0 has ended before the rung, stop the ranks that wait at the rung.

        Args:
            together: True to ask the driver when every rank has reached the rung, because the trial
                may continue from the checkpoint of the rung, as under PBT. False to ask when rank 0
                waits at the rung.
        """
        parts = self.parts
        if parts.has_ended(0) and not self.resumed.done():
            self.resumed.set_result(False)
        for step, decision in self.decisions.items():
            if decision.done() or self.rung == step:
                continue
            # If the numbers of reports of the ranks differ, rank 0 may never reach this step.
            if parts.has_ended(0):
                decision.set_result(False)
                continue
            reached = parts.all_have_reached(step) if together else parts.has_reached(0, step)
            if reached:
                self.rung = step
                self.changed.set()

    def retry(self, reason: str, counts: FailureCounts, after_exception: bool) -> None:
        """Prepare for another attempt.

        After an exception, decisions to stop are deleted. They were made because an exception on
        rank 0 also stops the ranks that wait at a rung.

        Args:
            reason: Reason why the attempt ended, in one line.
            counts: The failed attempts so far.
            after_exception: True if the loop raised an exception.
        """
        self._add(AttemptFailed(clock.time(), self.state.number, masked(reason), counts))
        if after_exception and not self.stopped:
            for step, decision in list(self.decisions.items()):
                if decision.done() and not decision.result():
                    del self.decisions[step]

    def stop(self) -> None:
        """Stop the trial's ranks at their next rung.

        Call this method after the driver has recorded the end of the trial.
        """
        self.stopped = True
        self.decisions.close()

    def finish(self, ended: Ended) -> None:
        """End the trial and answer the driver. If it has ended already, its result stays."""
        if self.ended is None:
            self._add(self._progress())
            self.ended = replace(ended, update=None)
        self.changed.set()

    def end(self, state: State) -> None:
        """End the trial at once with a state. Do nothing if the trial has ended.

        A single worker may end the loop at its next report, and then stays warm. Other workers are
        killed at once, because the task that runs the trial is cancelled. If the trial can be
        resumed, its worker is killed, too: it must not report more than the driver has recorded.
        """
        if self.task is not None and self.ended is None:
            if state is State.PRUNED and len(self.workers) == 1:
                self.workers[0].send("stop", self.trial.id)
                asyncio.get_running_loop().call_later(STOPS_WITHIN, self.task.cancel)
            else:
                self.task.cancel()
        self.finish(Ended(0, state))
