"""The pool: one actor that owns the workers, runs each trial on a gang of them, and carries messages between Tune's runners and ranks.

Ray starts it again when its process is lost. Its workers die with it, because Ray ends what a dead process has started. The driver then
tells it what is on record of the trials that ran (`Past`), and they continue from their checkpoints.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ray

from sweeps.core import exit_causes
from sweeps.core.resources import Shape
from sweeps.core.trial import State, Trial
from sweeps.execution.data_requests import Fits
from sweeps.execution.memory_guard import MONITOR, Guard
from sweeps.execution.messages import Job, Labels, News, Past, Progress, Silence, Usage
from sweeps.execution.runner_slots import RunnerSlots
from sweeps.execution.running_trial import RunningTrial
from sweeps.execution.trial_driver import TrialDriver
from sweeps.execution.trial_progress import TrialProgress
from sweeps.execution.worker_pool import Background, WorkerPool

log = logging.getLogger(__name__)

# A runner hears of its trial at least this often while there is news, in seconds.
PROGRESS_EVERY = 1.0
# The driver's `start` of a trial may come this much later than its runner, in seconds.
START_WITHIN = 30.0


class _Pool:
    """See the module. An asyncio actor: every method runs on one event loop, and none blocks it.

    Args:
        job: What all trials of the sweep share.
        resources: All resources that the sweep may use, if the cluster has one node; None to use what the nodes have.
        max_failures: Attempts of a trial that may fail of what `limits.retry_on` names, beyond the first.
        parked: CPUs that idle workers may hold beyond `resources`; see `allocation.Cluster`.
    """

    def __init__(self, job: Job, resources: dict[str, float] | None, max_failures: int, parked: int | None = None):
        self.job = job
        self.spawn = Background()
        self.workers = WorkerPool(job, resources, parked, self.spawn)
        self.fits = Fits(self.workers, self.spawn)
        self.trials: dict[str, RunningTrial] = {}
        self.runners = RunnerSlots()
        self.stopping: State | None = None
        self.guard = Guard()
        files = ThreadPoolExecutor(max_workers=32, thread_name_prefix="files")
        self.driver = TrialDriver(job, max_failures, self.workers, self.fits, self.spawn, files, self._kills_for_memory)
        self.spawn(self.workers.watch())

    def _kills_for_memory(self) -> int:
        return exit_causes.kills_for_memory() + self.guard.kills

    async def warm(self, shapes: Sequence[Shape]) -> None:
        """Start the workers that trials of these shapes need at the same time, while the data is read."""
        self.workers.warm(shapes)

    async def configure(self, data_actor: Any, labels: Labels) -> None:
        """Tell the pool of the data, once it is known."""
        self.driver.labels = labels
        self.fits.configure(data_actor)
        if os.environ.get(MONITOR) == "0":
            self.spawn(self.guard.watch())

    async def life(self) -> None:
        """Never answer: whoever waits for it learns that the pool has died."""
        await asyncio.Event().wait()

    # ---- what the driver calls

    async def prefit(self, fits: Sequence[tuple[dict[str, Any], tuple[Any, ...]]], warm: Sequence[Shape] = ()) -> None:
        """Fit the chains that are known before the first trial, before the first gang takes the CPU that a fit needs.

        Args:
            fits: Variant of the data and chain of each.
            warm: Shapes whose workers start meanwhile, if no fit needs the CPUs that Ray gives them.

        Raises:
            InputError: The first chain that cannot be fitted.
        """
        await self.fits.ahead(fits, warm)

    async def start(self, trial: Trial, folder: str, past: Past | None = None) -> None:
        """Start a trial, or continue one.

        Args:
            trial: The trial.
            folder: Folder for its checkpoints and logs.
            past: What is on record of a trial that continues.
        """
        metric = None if self.job.keep_last else self.job.metric
        progress = TrialProgress(trial.shape.workers, metric, self.job.goal == "minimize", self.job.keep_latest)
        running = self.trials[trial.id] = RunningTrial(trial, folder, progress)
        if past is not None:
            progress.recall(past)
            running.seconds, running.failures = past.seconds, past.lost
        if self.stopping is not None:
            running.finish(self.stopping)
        else:
            running.task = self.spawn(self._drive(running))

    async def _drive(self, running: RunningTrial) -> None:
        await self.driver.drive(running)
        if running.stopped:
            self.trials.pop(running.trial.id, None)

    async def answer(self, trial_id: str, step: int, go_on: bool) -> None:
        """Take the driver's decision on a rung, for all ranks. At a perturbation step, a trial gives way to trials that wait."""
        running = self.trials.get(trial_id)
        if running is not None and running.awaits(step):
            running.yields = go_on and step in self.job.milestones and self.workers.has_queue
            running.decide(step, go_on and not running.yields)

    async def renew(self, trial: Trial, step: int, past: Past) -> None:
        """Have a trial that waits at a perturbation step continue with other parameters, from the checkpoint that it is given."""
        running = self.trials.get(trial.id)
        if running is not None and running.awaits(step):
            running.trial, running.yields = trial, True
            running.progress.recall(past)
            running.decide(step, False)

    async def forget(self, trial_id: str) -> None:
        """Drop a trial whose end is on record. Ranks that still run it are stopped at their next rung."""
        running = self.trials.get(trial_id)
        if running is None:
            return
        running.progress.on_record()
        self.driver.delete_unneeded(running)
        running.stop()
        if running.progress.state is not None:
            del self.trials[trial_id]

    async def cancel(self, trial_id: str) -> None:
        """End a trial whose runner is gone for good, and kill its workers."""
        if (running := self.trials.get(trial_id)) is not None and running.task is not None:
            running.task.cancel()
            running.finish(State.FAIL, "cancelled")
            await self.forget(trial_id)

    async def interrupt(self, state: State) -> None:
        """End every trial now: RUNNING leaves it resumable, PRUNED counts it as stopped. No trial starts any more."""
        self.stopping = state
        self.runners.changed.set()  # Nobody waits for one any more.
        for running in list(self.trials.values()):
            if running.task is not None and running.progress.state is None:
                running.task.cancel()
            running.finish(state)

    async def usage(self) -> Usage:
        """Return what is held of the cluster, and what each trial is at."""
        busy, idle = self.workers.held()
        active = {name: running for name, running in self.trials.items() if running.progress.state is None}
        stages = {name: (running.stage, running.progress.rung) for name, running in active.items()}
        seconds = {name: running.spent() for name, running in active.items()}
        silent = {name: "\n".join(map(str, running.silent.values())) for name, running in active.items() if running.silent}
        return Usage(self.workers.total, busy, idle, self.fits.count, stages, seconds, silent)

    async def shutdown(self, timeout: float = 10.0) -> None:
        """Close all workers; kill those that take longer than `timeout` seconds."""
        await self.interrupt(self.stopping or State.RUNNING)
        await self.workers.close_all(timeout)

    # ---- what a runner calls

    async def attach(self, trial_id: str, name: str = "", slots: int = 1) -> int:
        """Have a runner follow a trial that was started, one of `slots` at once.

        Returns:
            Its number, which `advance` needs. An earlier runner of the trial hears nothing more.
        """
        give_up = time.monotonic() + START_WITHIN
        while trial_id not in self.trials and time.monotonic() < give_up:  # `start` may come later: Ray keeps no order between callers.
            await asyncio.sleep(0.002)
        running = self.trials[trial_id]
        if running.runner:
            running.progress.repeat()
        self.runners.came(name, slots, running.follower)
        running.runner, running.follower = running.runner + 1, name
        running.changed.set()
        return running.runner

    async def detach(self, name: str) -> None:
        """Forget a runner that Tune has ended."""
        self.runners.went(name)

    async def advance(self, trial_id: str, runner: int) -> Progress:
        """Wait for the trial's next news: its end, a rung that waits for a decision, a checkpoint, or reports that are due."""
        running = self.trials[trial_id]
        progress = running.progress
        progress.on_record()  # Tune asks for more when the driver has recorded what the runner brought.
        self.driver.delete_unneeded(running)
        since = time.monotonic()
        while running.runner == runner and not progress.urgent:
            left = PROGRESS_EVERY - (time.monotonic() - since)
            if progress.unheard and left <= 0:
                break
            running.changed.clear()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(running.changed.wait(), max(left, 0.05) if progress.unheard else None)
        if progress.state is not None and running.runner == runner:
            await self.runners.complete(lambda: self.stopping is None and any(not other.runner for other in self.trials.values()))
        if running.runner != runner:
            return Progress()
        return progress.hear(running.spent())

    async def checkpoint_step(self, trial_id: str) -> int:
        """Return the step of a running trial's newest complete checkpoint; 0 without one."""
        checkpoint = self.trials[trial_id].progress.checkpoint
        return checkpoint.step if checkpoint else 0

    # ---- what a worker calls

    async def listen(self, worker: str) -> tuple[int, str, tuple[Any, ...]] | None:
        """See `WorkerPool.listen`."""
        return await self.workers.listen(worker)

    async def answered(self, worker: str, number: int, error: str | None) -> None:
        """See `WorkerPool.answered`."""
        self.workers.answered(worker, number, error)

    async def imported(self, trial_id: str, attempt: int) -> None:
        """Start the trial's clock: a new worker has imported the user's module, which is no trial's time."""
        running = self.trials.get(trial_id)
        if running is not None and running.progress.attempt == attempt and running.began is not None:
            running.began = time.monotonic()

    async def resumed(self, trial_id: str, rank: int, asked: bool) -> bool:
        """Return whether the loop continues from its checkpoint: whether rank 0 has read it. The same for all ranks."""
        running = self.trials.get(trial_id)
        if running is None:
            return asked
        if rank == 0 and not running.resumed.done():
            running.resumed.set_result(asked)
        return await asyncio.shield(running.resumed)

    async def exchange(self, trial_id: str, attempt: int, rank: int, number: int, value: Any) -> list[Any]:
        """Wait until every rank has given a value for its exchange of this number; return all values by rank."""
        running = self.trials[trial_id]
        if running.progress.attempt != attempt:
            raise RuntimeError("this attempt has ended")
        return await running.exchange(rank, number, value)

    async def tell(self, trial_id: str, attempt: int, news: News) -> None:
        """Take a rank's news."""
        running = self.trials.get(trial_id)
        if running is not None:
            self.driver.record(running, attempt, news)

    async def silent(self, trial_id: str, attempt: int, silence: Silence) -> None:
        """Take note of a rank that has not reported for long."""
        running = self.trials.get(trial_id)
        if running is not None and running.progress.attempt == attempt:
            log.warning("trial %s: %s", trial_id, silence)
            running.silent[silence.rank] = silence

    async def at_rung(self, trial_id: str, attempt: int, news: News) -> bool:
        """Wait for the decision at a rung, the same for all ranks: whether to continue. The driver is asked when rank 0 is there."""
        running = self.trials.get(trial_id)
        if running is None or not self.driver.record(running, attempt, news):
            return False
        decision = running.decision(news.step)
        running.look_at_rungs(together=bool(self.job.milestones))
        since, began = time.monotonic(), running.began
        go_on = await asyncio.shield(decision)
        if news.rank == 0 and began is not None and running.began == began:  # While the driver decides, the trial's clock stands still.
            running.began += time.monotonic() - since
        return go_on


_remote: Any = ray.remote  # Ray's types know no `max_concurrency`.
Pool = _remote(num_cpus=0, max_restarts=-1, max_concurrency=10_000)(_Pool)
