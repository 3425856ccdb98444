"""A trial that the pool has started and that has not ended."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from sweeps.core.trial import State, Trial
from sweeps.execution.messages import Silence, Stage
from sweeps.execution.trial_progress import TrialProgress
from sweeps.execution.worker_pool import Worker

# A rank that is silent or late gets this long to write its stack to its log, in seconds.
STACKS_WITHIN = 2.0


class RunningTrial:
    """A trial over all its attempts.

    Args:
        trial: The trial.
        folder: Folder for its checkpoints and logs.
        progress: What its ranks reported.

    Attributes:
        stage: What it is at.
        runner: Number of Tune's runners that have followed it.
        follower: Name of the last of them; None before the first.
        decisions: By rung, whether the trial continues there; one future for all ranks.
        resumed: Whether the loop continues from its checkpoint.
        stopped: Whether the driver recorded its end before its ranks came to theirs.
        seconds: Seconds on workers in attempts that have ended.
        began: Time at which its ranks began this attempt, by the monotonic clock; None between attempts.
        failures: Attempts that count against `limits.max_failures`.
        blameless: Consecutive attempts without a report that were lost without the trial's fault.
        silent: Ranks that have not reported for long.
        heard: Time of the latest news of each rank in this attempt, by the monotonic clock.
        yields: Whether its ranks are being stopped at a perturbation step, for another attempt to continue from there.
        workers: The workers that run it, in the order of ranks.
        task: The task that drives it.
        changed: Set when there may be something to tell.
    """

    def __init__(self, trial: Trial, folder: str, progress: TrialProgress):
        self.trial, self.folder, self.progress = trial, folder, progress
        self.stage = Stage.PREPARING
        self.runner = 0
        self.follower: str | None = None
        self.decisions: dict[int, asyncio.Future[bool]] = {}
        self.resumed: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.stopped = False
        self.seconds = 0.0
        self.began: float | None = None
        self.failures = self.blameless = 0
        self.silent: dict[int, Silence] = {}
        self.heard: dict[int, float] = {}
        self.yields = False
        self.task: asyncio.Task[None] | None = None
        self.changed = asyncio.Event()
        self.workers: list[Worker] = []
        self._exchanges: dict[int, tuple[dict[int, Any], asyncio.Event]] = {}

    def begin_attempt(self) -> int:
        """Prepare for another attempt; return its number."""
        self.silent, self.heard, self._exchanges = {}, {}, {}
        self.resumed = asyncio.get_running_loop().create_future()
        return self.progress.begin()

    async def exchange(self, rank: int, number: int, value: Any) -> list[Any]:
        """Wait until every rank has given a value for its exchange of this number; return all values by rank."""
        values, complete = self._exchanges.setdefault(number, ({}, asyncio.Event()))
        values[rank] = value
        if len(values) == self.trial.shape.workers:
            complete.set()
            self._exchanges.pop(number)
        await complete.wait()
        return [values[other] for other in sorted(values)]

    def spent(self) -> float:
        """Return the seconds on workers up to now."""
        return self.seconds + (time.monotonic() - self.began if self.began is not None else 0.0)

    def overdue(self, limit: float, workers: int, now: float) -> list[Silence]:
        """Return the ranks of this attempt that have not reported for longer than they may, or did not even answer.

        Args:
            limit: `limits.report_timeout`, in seconds.
            workers: Number of workers.
            now: The time by the monotonic clock.
        """
        if self.began is None or any(not decision.done() for decision in self.decisions.values()):
            return []
        late = {rank: silence for rank, silence in self.silent.items() if silence.seconds >= limit}
        for rank in set(range(workers)) - set(late):
            quiet = now - max(self.heard.get(rank, 0.0), self.began)
            if not self.progress.has_ended(rank) and quiet > limit + STACKS_WITHIN:
                late[rank] = Silence(rank, quiet)
        return [late[rank] for rank in sorted(late)]

    def decision(self, step: int) -> asyncio.Future[bool]:
        """Return the future of the driver's decision at a rung: whether the trial continues."""
        if step not in self.decisions:
            self.decisions[step] = asyncio.get_running_loop().create_future()
            if self.stopped:
                self.decisions[step].set_result(False)
        return self.decisions[step]

    def awaits(self, step: int) -> bool:
        """Return whether ranks wait for the driver's decision at this rung; from now on they do not."""
        return self.progress.answered(step) and not self.decisions[step].done()

    def decide(self, step: int, go_on: bool) -> None:
        """Tell all ranks the decision at a rung."""
        self.decisions[step].set_result(go_on)

    def look_at_rungs(self, together: bool) -> None:
        """After a rank has come to a rung or to its end: ask the driver if rank 0 waits, and let nobody wait for a rank that has ended.

        Args:
            together: Ask the driver only when every rank is there, as the trial may continue with other parameters.
        """
        progress = self.progress
        if progress.has_ended(0) and not self.resumed.done():
            self.resumed.set_result(False)
        for step, decision in self.decisions.items():
            if decision.done() or progress.rung == step:
                continue
            if progress.has_ended(0):  # It never comes: the ranks have not reported equally often.
                decision.set_result(False)
            elif progress.together_at(step) if together else progress.has_come(0, step):
                progress.waits_at(step)
                self.changed.set()

    def retry(self) -> None:
        """Prepare for another attempt after an exception: a rank that ended then decided no rung of the next attempt."""
        if not self.stopped:
            self.decisions = {step: decision for step, decision in self.decisions.items() if not decision.done() or decision.result()}

    def stop(self) -> None:
        """Take note that its end is on record: ranks that still run stop at their next rung."""
        self.stopped = True
        for decision in self.decisions.values():
            if not decision.done():
                decision.set_result(False)

    def finish(
        self, state: State, error: str | None = None, refused: tuple[str, str] | None = None, final: dict[str, float] | None = None
    ) -> None:
        """End the trial; see `TrialProgress.finish`."""
        self.progress.finish(state, error, refused, final)
        self.changed.set()
