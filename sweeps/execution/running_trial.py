"""A trial that the pool has started and that has not ended."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from sweeps.core.trial import State, Trial
from sweeps.execution.messages import Silence, Stage
from sweeps.execution.pool_worker import Worker
from sweeps.execution.retry import FailureCounts
from sweeps.execution.trial_progress import TrialProgress

# After a rank has exceeded a time limit, the pool waits this long, in seconds, until the rank has
# written its stack to its log.
STACKS_WITHIN = 2.0
# A trial that ends at once has this many seconds to make its next report, before its worker is
# killed.
STOPS_WITHIN = 1.0


class RunningTrial:
    """State of a trial over all its attempts.

    Args:
        trial: The trial.
        folder: Folder for the trial's checkpoints and logs.
        progress: Progress of the trial.
        row_steps: See `Assignment.row_steps`.

    Attributes:
        stage: What the trial does now; see `Stage`.
        decisions: Maps each rung to the future of the decision, which all ranks share. The result
            is True if the trial continues.
        resumed: Future whose result is True if the loop continues from its checkpoint in this
            attempt.
        stopped: Whether the driver has recorded the end of the trial. Its ranks may still be
            running.
        seconds: Seconds on workers in attempts that have ended.
        worker_seconds: Sum of the seconds of all workers in attempts that have ended.
        began: Time at which the ranks started this attempt, by the monotonic clock; None between
            attempts. Waiting for a decision and the import of the user's module do not count, so
            each of these pauses moves this time forward.
        counts: The failed attempts so far.
        silent: Latest notice of each rank that has not reported for a long time.
        last_update: Time of the latest message of each rank in this attempt, by the monotonic
            clock.
        yields: Whether the ranks stop so that another attempt can continue from this step. False if
            they stop because the trial ends.
        workers: The workers that run the trial, in the order of ranks; empty between attempts.
        kept: Reserved workers with which an elastic trial starts its next attempt; empty if it must
            wait for workers.
        may_grow: Whether the gang of an elastic trial may grow. False after an attempt to grow, if
            workers could not join a larger gang.
        asks: Whether the gang may change its size in this attempt. The ranks then ask at each
            report whether to continue.
        answers: For each step at which ranks ask whether to continue, the future of the answer.
        task: Background task that runs the trial; None before it starts.
        changed: Event that is set when there may be progress for the driver.
    """

    def __init__(
        self,
        trial: Trial,
        folder: str,
        progress: TrialProgress,
        row_steps: tuple[int, ...] = (),
    ):
        self.trial, self.folder, self.progress, self.row_steps = trial, folder, progress, row_steps
        self.stage = Stage.PREPARING
        self.decisions: dict[int, asyncio.Future[bool]] = {}
        self.resumed: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.stopped = False
        self.seconds = self.worker_seconds = 0.0
        self.began: float | None = None
        self.counts = FailureCounts()
        self.silent: dict[int, Silence] = {}
        self.last_update: dict[int, float] = {}
        self.yields = False
        self.task: asyncio.Task[None] | None = None
        self.changed = asyncio.Event()
        self.workers: list[Worker] = []
        self.kept: list[Worker] = []
        self.asks = False
        self.may_grow = True
        self.answers: dict[int, asyncio.Future[bool]] = {}
        self._closed = False
        self._exchanges: dict[int, tuple[dict[int, Any], asyncio.Event]] = {}

    @property
    def is_elastic(self) -> bool:
        """True if the number of workers may change during the trial."""
        return self.trial.shape.most is not None

    def begin_attempt(self, workers: int) -> int:
        """Start a new attempt with this number of workers, and return the number of the attempt."""
        self.answers = {}
        self._closed = False
        self.silent = {}
        self.last_update = {}
        self._exchanges = {}
        self.resumed = asyncio.get_running_loop().create_future()
        return self.progress.begin(workers if self.is_elastic else None)

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
        if len(values) == self.progress.workers:
            complete.set()
            self._exchanges.pop(number)
        await complete.wait()
        return [values[other] for other in sorted(values)]

    def spent(self) -> float:
        """Return the seconds of the trial's attempts on workers, including the current attempt."""
        return self.seconds + self._spent_now()

    def worker_seconds_spent(self) -> float:
        """Return the worker seconds of the trial, including the current attempt.

        Ten seconds on two workers are 20 worker seconds.
        """
        return self.worker_seconds + self._spent_now() * self.progress.workers

    def _spent_now(self) -> float:
        return time.monotonic() - self.began if self.began is not None else 0.0

    def end_attempt(self) -> None:
        """Add the time of an attempt that has ended to `seconds` and `worker_seconds`."""
        seconds = self._spent_now()
        self.seconds += seconds
        self.worker_seconds += seconds * self.progress.workers
        self.workers = []
        self.began = None

    def overdue(self, limit: float) -> list[Silence]:
        """Return the notices of ranks that have not reported for at least `limit` seconds.

        The result is empty while the trial waits for the driver's decision, because ranks do not
        report then.
        """
        if any(not decision.done() for decision in self.decisions.values()):
            return []
        return [
            self.silent[rank] for rank in sorted(self.silent) if self.silent[rank].seconds >= limit
        ]

    def answer(self, step: int) -> asyncio.Future[bool]:
        """Return the future of the answer to ranks that ask at a step whether to continue."""
        if step not in self.answers:
            self.answers[step] = asyncio.get_running_loop().create_future()
            if self._closed:
                self.answers[step].set_result(False)
        return self.answers[step]

    def close_answers(self) -> None:
        """Stop ranks that ask whether to continue, because another rank has died or failed."""
        self._closed = True
        for answer in self.answers.values():
            if not answer.done():
                answer.set_result(False)

    def decision(self, step: int) -> asyncio.Future[bool]:
        """Return the future of the driver's decision at a rung.

        Its result is True if the trial continues.
        """
        if step not in self.decisions:
            self.decisions[step] = asyncio.get_running_loop().create_future()
            if self.stopped:
                self.decisions[step].set_result(False)
        return self.decisions[step]

    def awaits(self, step: int) -> bool:
        """Return whether the ranks wait for the driver's decision at this rung.

        If so, record that the driver has decided.
        """
        return self.progress.answered(step) and not self.decisions[step].done()

    def decide(self, step: int, continues: bool) -> None:
        """Pass the driver's decision at a rung to all ranks.

        Args:
            step: Step of the rung.
            continues: Whether the loop continues on the ranks.
        """
        self.decisions[step].set_result(continues)

    def update_rungs(self, together: bool) -> None:
        """Ask the driver for decisions after a rank has reached a rung or has ended.

        The driver is asked when rank 0 waits at a rung. If rank 0 has ended before the rung, stop
        the ranks that wait at the rung.

        Args:
            together: Whether to ask the driver only when every rank has reached the rung. This is
                True if the trial may continue from the checkpoint of the rung, as under PBT.
        """
        progress = self.progress
        if progress.has_ended(0) and not self.resumed.done():
            self.resumed.set_result(False)
        for step, decision in self.decisions.items():
            if decision.done() or progress.rung == step:
                continue
            if progress.has_ended(
                0
                # Rank 0 never reaches this step, because the numbers of reports of the ranks
                # differ.
            ):
                decision.set_result(False)
            elif progress.all_have_reached(step) if together else progress.has_reached(0, step):
                progress.wait_at(step)
                self.changed.set()

    def retry(self) -> None:
        """Prepare for another attempt after an exception.

        Decisions to stop are deleted. They were made because an exception on rank 0 also stops the
        ranks that wait at a rung.
        """
        if not self.stopped:
            self.decisions = {
                step: decision
                for step, decision in self.decisions.items()
                if not decision.done() or decision.result()
            }

    def stop(self) -> None:
        """Stop the trial's ranks at their next rung.

        The reason: the driver has recorded the end of the trial.
        """
        self.stopped = True
        for decision in self.decisions.values():
            if not decision.done():
                decision.set_result(False)

    def finish(
        self,
        state: State,
        error: str | None = None,
        refused: tuple[str, str] | None = None,
        final: dict[str, float] | None = None,
    ) -> None:
        """End the trial and answer the driver.

        If the trial has ended already, its result does not change.

        Args:
            state: State of the trial.
            error: Error text of a failed trial; else None.
            refused: Key of the wrong value and description of the problem, if a value in the space
                file made the trial fail; else None.
            final: Metrics of the finished model; None if there are none.
        """
        self.progress.finish(state, error, refused, final)
        self.changed.set()

    def end(self, state: State) -> None:
        """End the trial at once. Do nothing if the trial has ended.

        A single worker may end the loop at its next report, and then stays warm. Other workers are
        killed at once, because the task that runs the trial is cancelled. If the trial can be
        resumed, its worker is killed, too: it must not report more than the driver has recorded.
        """
        if self.task is not None and self.progress.state is None:
            if state is State.PRUNED and len(self.workers) == 1:
                self.workers[0].send("stop", self.trial.id)
                asyncio.get_running_loop().call_later(STOPS_WITHIN, self.task.cancel)
            else:
                self.task.cancel()
        self.finish(state)
