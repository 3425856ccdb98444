"""The pool: one actor that owns the gangs, leases them to trials and carries messages between runners and ranks.

Ray starts it again when its process is lost, and its gangs die with it, as Ray ends what a dead process has made; the driver then
tells it what is on record of the trials that ran (`Past`), and they go on from their checkpoints.

Behind `start`, `_drive` takes one trial through: prepared data, a gang, the attempts it needs. Who gets which gang is the business of
`leases`, what counts of the news that of `trial_progress`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayActorError, RayTaskError

from sweeps.core import exit_causes
from sweeps.core.checkpoint_files import delete_checkpoint
from sweeps.core.resources import Shape
from sweeps.core.sweep_folder import FILES
from sweeps.core.trial import LOST, State, Trial
from sweeps.execution.data_affinity import keep, room_of
from sweeps.execution.data_requests import Fits
from sweeps.execution.leases import Background, Gang, Leases, said
from sweeps.execution.memory_guard import MONITOR, Guard
from sweeps.execution.messages import Data, Ended, Job, Labels, News, Order, Past, Progress, Silence, Stage, Usage
from sweeps.execution.trial_logs import log_of
from sweeps.execution.trial_progress import TrialProgress
from sweeps.execution.trial_run import STACKS_WITHIN, Run
from sweeps.execution.tune_runners import Runners

log = logging.getLogger(__name__)

# A runner hears of its trial at least this often while there is news, in seconds.
PROGRESS_EVERY = 1.0
# The driver's `start` of a trial may come this much later than its runner, in seconds.
START_WITHIN = 30.0
# When one rank raised, the others get this long to raise as well before the gang counts as broken.
RAISED_ALONE_AFTER = 2.0
# A rank's last news wait so long for the other ranks' to go with them, in seconds.
ENDS_WITHIN = 0.05
# How often it is seen whether a trial with a time limit has begun, in seconds.
LOOK_EVERY = 0.5


class _Pool:
    """See the module. An asyncio actor: every method runs on one event loop, and none blocks it."""

    def __init__(
        self,
        job: Job,
        cluster: dict[str, float],
        storage: str,
        max_failures: int,
        environment: dict[str, str],
        room: dict[str, float] | None = None,
    ):
        os.environ.update(environment)
        self.job, self.max_failures = job, max_failures
        self.spawn = Background()
        self.threads = ThreadPoolExecutor(max_workers=256, thread_name_prefix="gang")
        self.leases = Leases(job, cluster, storage, room, self.spawn, self.threads)
        self.labels = Labels()
        self.fits = Fits(self.leases, self.spawn)
        self.runs: dict[str, Run] = {}
        self.runners = Runners()
        self.stopping: State | None = None
        self.guard = Guard()

    def _kills_for_memory(self) -> int:
        return exit_causes.kills_for_memory() + self.guard.kills

    async def warm(self, shapes: Sequence[Shape]) -> None:
        """Start gangs that will be wanted, while the data is being read."""
        self.leases.warm(shapes)

    async def configure(self, data_actor: Any, labels: Labels) -> None:
        """Tell the pool of the data, once it is known."""
        self.labels = labels
        self.fits.configure(data_actor)
        if os.environ.get(MONITOR) == "0":
            self.spawn(self.guard.watch())

    async def life(self) -> None:
        """Never answers: whoever waits for it learns that the pool has died."""
        await asyncio.Event().wait()

    # ---- what the driver calls

    async def prefit(self, fits: Sequence[tuple[dict, tuple]], warm: Sequence[Shape] = ()) -> None:
        """Fit chains, each on its variant of the data, that are known beforehand, before the first gang takes the CPU that a fit needs.

        Args:
            fits: variant and chain of each.
            warm: gangs that will be wanted; they are started meanwhile, if no fit needs the CPUs that Ray gives them.

        Raises:
            InputError: of the first chain that cannot be fitted.
        """
        await self.fits.ahead(fits, warm)

    async def start(self, trial: Trial, folder: str, past: Past | None = None) -> None:
        """Set a trial going, or going on; its checkpoints go to `folder`."""
        metric = None if self.job.keep_last else self.job.metric
        book = TrialProgress(trial.shape.workers, metric, self.job.goal == "minimize", self.job.keep_latest)
        run = self.runs[trial.id] = Run(trial, folder, book)
        if past is not None:
            book.recall(past)
            run.seconds, run.lost = past.seconds, past.lost
        if self.stopping is not None:
            run.finish(self.stopping)
        else:
            run.task = self.spawn(self._drive(run))

    async def answer(self, trial_id: str, step: int, go_on: bool) -> None:
        """The driver's verdict on a rung, for all ranks that wait there. At a milestone a trial gives way to who is in line."""
        run = self.runs.get(trial_id)
        if run is not None and run.awaits(step):
            run.again = go_on and step in self.job.milestones and self.leases.in_line
            run.decide(step, go_on and not run.again)

    async def renew(self, trial: Trial, step: int, past: Past) -> None:
        """A trial that waits at a milestone goes on with other parameters, from the checkpoint that it is given."""
        run = self.runs.get(trial.id)
        if run is not None and run.awaits(step):
            run.trial, run.again = trial, True
            run.book.recall(past)
            run.decide(step, False)

    async def forget(self, trial_id: str) -> None:
        """The trial's end is on record; ranks that are still at it are stopped at their next rung."""
        run = self.runs.get(trial_id)
        if run is None:
            return
        run.book.on_record()
        self._clear(run)
        run.stop()
        if run.book.state is not None:
            del self.runs[trial_id]

    async def cancel(self, trial_id: str) -> None:
        """End a trial whose runner is gone for good, and the gang it runs on."""
        if (run := self.runs.get(trial_id)) is not None and run.task is not None:
            run.task.cancel()
            run.finish(State.FAIL, "cancelled")
            await self.forget(trial_id)

    async def interrupt(self, state: State) -> None:
        """End every trial now: RUNNING leaves it resumable, PRUNED counts it as stopped. No gang is leased any more."""
        self.stopping = state
        self.runners.changed.set()  # nobody waits for one any more
        for run in list(self.runs.values()):
            if run.task is not None and run.book.state is None:
                run.task.cancel()
            run.finish(state)

    async def usage(self) -> Usage:
        """What is held of the cluster, and what each trial is at."""
        busy, warm = self.leases.held()
        going = {name: run for name, run in self.runs.items() if run.book.state is None}
        stages = {name: (run.stage, run.book.rung) for name, run in going.items()}
        seconds = {name: run.spent() for name, run in going.items()}
        silent = {name: "\n".join(map(str, run.silent.values())) for name, run in going.items() if run.silent}
        return Usage(self.leases.cluster, busy, warm, self.fits.count, stages, seconds, silent)

    async def shutdown(self, timeout: float = 10.0) -> None:
        """Close every gang, waiting for them; kill those that take longer."""
        await self.interrupt(self.stopping or State.RUNNING)
        await self.leases.close_all(timeout)

    # ---- what a runner calls

    async def attach(self, trial_id: str, name: str = "", slots: int = 1) -> int:
        """A runner takes up a trial that was started, one of `slots` at once.

        Returns:
            Its number, which `advance` wants. An earlier runner of the trial hears nothing more.
        """
        give_up = time.monotonic() + START_WITHIN
        while trial_id not in self.runs and time.monotonic() < give_up:  # `start` is on its way: Ray keeps no order between callers
            await asyncio.sleep(0.002)
        run = self.runs[trial_id]
        if run.runner:
            run.book.repeat()
        self.runners.came(name, slots, run.follower)
        run.runner, run.follower = run.runner + 1, name
        run.changed.set()
        return run.runner

    async def detach(self, name: str) -> None:
        """A runner is ended by Tune."""
        self.runners.went(name)

    async def advance(self, trial_id: str, runner: int) -> Progress:
        """Wait for the trial's next news: its end, a rung that waits for a verdict, a checkpoint, or reports that are due."""
        run = self.runs[trial_id]
        run.book.on_record()  # Tune asks for more when the driver has recorded what the runner brought
        self._clear(run)
        since = time.monotonic()
        while run.runner == runner and not run.book.urgent:
            left = PROGRESS_EVERY - (time.monotonic() - since)
            if run.book.unheard and left <= 0:
                break
            run.changed.clear()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(run.changed.wait(), max(left, 0.05) if run.book.unheard else None)
        if run.book.state is not None and run.runner == runner:
            await self.runners.complete(lambda: self.stopping is None and any(not other.runner for other in self.runs.values()))
        if run.runner != runner:
            return Progress()
        return run.book.hear(run.spent())

    async def checkpoint_step(self, trial_id: str) -> int:
        """The step of a running trial's newest whole checkpoint; 0 without one."""
        checkpoint = self.runs[trial_id].book.checkpoint
        return checkpoint.step if checkpoint else 0

    # ---- what a rank calls

    async def hello(self, gang_id: str, rank: int, handle: Any) -> None:
        """A rank is up."""
        if gang := self.leases.gangs.get(gang_id):
            gang.greet(rank, handle)

    async def next_order(self, gang_id: str, rank: int, index: int) -> Order | None:
        """Wait for the gang's order of this index; None when the gang is to close."""
        gang = self.leases.gangs.get(gang_id)
        if gang is None:
            return None
        async with gang.changed:
            await gang.changed.wait_for(lambda: len(gang.orders) > index)
        order = gang.orders[index]
        if order is not None and rank == 0 and (run := self.runs.get(order.trial.id)):
            run.began, run.stage = time.monotonic(), Stage.TRAINING  # not before: the gang may still have been starting
        return order

    async def exchange(self, gang_id: str, rank: int, index: int, value: Any) -> list[Any]:
        """Wait until every rank of a gang has given a value for the order of this index; return all values, by rank."""
        gang = self.leases.gangs[gang_id]
        async with gang.changed:
            gang.exchanged[index, rank] = value
            gang.changed.notify_all()
            ranks = [(index, r) for r in range(gang.shape.workers)]
            await gang.changed.wait_for(lambda: gang.exchanged.keys() >= set(ranks))
            return [gang.exchanged[key] for key in ranks]

    async def imported(self, trial_id: str, attempt: int) -> None:
        """The user's module is imported, by a gang that is new: from here on time is the trial's."""
        run = self.runs.get(trial_id)
        if run is not None and run.book.attempt == attempt and run.began is not None:
            run.began = time.monotonic()

    async def resumed(self, trial_id: str, rank: int, asked: bool) -> bool:
        """Whether the loop goes on from the checkpoint it was given: whether rank 0 has asked for it. The same for all ranks."""
        run = self.runs.get(trial_id)
        if run is None:
            return asked
        if rank == 0 and not run.resumed.done():
            run.resumed.set_result(asked)
        return await asyncio.shield(run.resumed)

    async def tell(self, gang_id: str, trial_id: str, attempt: int, news: News) -> None:
        """Take a rank's news."""
        if (run := self._book(trial_id, attempt, news)) is not None and news.checkpoints and (gang := self.leases.gangs.get(gang_id)):
            for rank, step in run.book.behind().items():
                if rank in gang.handles:
                    gang.handles[rank].__ray_call__.remote(_hurry, trial_id, step)

    async def silent(self, trial_id: str, attempt: int, silence: Silence) -> None:
        """A rank has not reported for long."""
        run = self.runs.get(trial_id)
        if run is not None and run.book.attempt == attempt:
            log.warning("trial %s: %s", trial_id, silence)
            run.silent[silence.rank] = silence

    async def at_rung(self, gang_id: str, trial_id: str, attempt: int, news: News) -> bool:
        """The verdict at a rung, the same for every rank: whether to go on. The driver is asked when rank 0 has come."""
        run = self._book(trial_id, attempt, news)
        if run is None:
            return False
        verdict = run.verdict(news.step)
        run.look_at_rungs(together=bool(self.job.milestones))
        since, began = time.monotonic(), run.began
        go_on = await asyncio.shield(verdict)
        if news.rank == 0 and began is not None and run.began == began:  # the driver's time, as its runner starts, is not the trial's
            run.began += time.monotonic() - since
        return go_on

    async def ended(self, gang_id: str, trial_id: str, attempt: int, news: News, index: int, ended: Ended) -> None:
        """Take a rank's last news of a trial."""
        if (run := self._book(trial_id, attempt, news, ended=True, failed=ended.state is State.FAIL)) is not None:
            run.look_at_rungs(together=bool(self.job.milestones))
        if gang := self.leases.gangs.get(gang_id):
            async with gang.changed:
                if index == len(gang.orders) - 1:
                    gang.ended.append(ended)
                gang.changed.notify_all()

    def _book(self, trial_id: str, attempt: int, news: News, ended: bool = False, failed: bool = False) -> Run | None:
        run = self.runs.get(trial_id)
        if run is None or not run.book.take(attempt, news, ended, failed):
            return None
        run.silent.pop(news.rank, None)
        run.heard[news.rank] = time.monotonic()
        self._clear(run)
        if ended:  # the trial's end mostly follows at once: one message to the driver instead of two
            asyncio.get_running_loop().call_later(ENDS_WITHIN, run.changed.set)
        else:
            run.changed.set()
        return run

    def _clear(self, run: Run) -> None:
        for path in run.book.drop():
            self.threads.submit(delete_checkpoint, Path(path))

    # ---- one trial's way

    async def _drive(self, run: Run) -> None:
        try:
            while run.book.state is None and not run.stopped:
                run.stage = Stage.PREPARING
                prepared = await asyncio.shield(self.fits.of(run.trial.data, run.trial.preprocessor))
                run.stage = Stage.WAITING
                gang = await self.leases.gang(run.trial.shape, prepared["key"], again=run.lost > 0)
                run.stage, kills = Stage.STARTING, self._kills_for_memory()
                try:
                    ended = await self._attempt(gang, run, prepared)
                except BaseException:
                    await self.leases.close(gang, kill=True)
                    raise
                finally:
                    if run.began is not None:
                        run.seconds, run.began = run.seconds + time.monotonic() - run.began, None
                again, run.again = run.again, False
                if ended is not None and again and ended.state is State.PRUNED:
                    continue
                if ended is not None and not ended.retry:
                    run.finish(ended.state, ended.error, ended.refused, ended.final)
                    break
                run.lost += 1
                died = _death(gang, run, self._kills_for_memory() > kills) if ended is None else ""
                limit = f"limits.max_failures: {self.max_failures}"
                if ended is not None and run.lost > self.max_failures:
                    before = f"{run.lost} attempts failed of what limits.retry_on names ({limit}); the last:\n" if run.lost > 1 else ""
                    run.finish(State.FAIL, f"{before}{ended.error}")
                elif ended is not None:
                    run.retry()
                elif LOST not in self.job.retry_on:
                    run.finish(State.FAIL, f"a worker process died (limits.retry_on does not name `{LOST}`): {died}")
                elif run.lost > self.max_failures:
                    run.finish(State.FAIL, f"a worker process died in {run.lost} attempts ({limit}): {died}")
            run.finish(State.PRUNED)  # stopped, and its gang lost before it heard of it
        except asyncio.CancelledError:
            raise
        except RayActorError:  # the data actor's: no trial's fault; the driver watches it, and ends the sweep so that it can be resumed
            await asyncio.Event().wait()
        except RayTaskError as e:
            run.finish(State.FAIL, str(e.cause) if e.cause is not None else str(e))
        except Exception:
            run.finish(State.FAIL, traceback.format_exc())
        finally:
            with contextlib.suppress(OSError):  # there are files in it, or none was asked for
                Path(run.folder, FILES).rmdir()
            if run.stopped:
                self.runs.pop(run.trial.id, None)

    async def _attempt(self, gang: Gang, run: Run, prepared: dict[str, Any]) -> Ended | None:
        """Run a trial on a leased gang; None if a process was lost under it. The gang is given back, or closed where this returns."""
        attempt, workers = run.book.begin(), gang.shape.workers
        run.silent, run.heard = {}, {}
        run.resumed = asyncio.get_running_loop().create_future()
        if attempt > 1:
            loop = asyncio.get_running_loop()
            there = await loop.run_in_executor(self.threads, _checkpoints, run.folder)
            await loop.run_in_executor(self.threads, _delete, run.book.take_stock(there))
        key = prepared["key"]
        data = None if key in dict(gang.kept) else Data(prepared["shards"][workers], prepared["check"])  # which its ranks have already
        gang.kept = keep(gang.kept, key, prepared["bytes"], room_of(self.leases.cluster, gang.shape))
        kept = tuple(k for k, _ in gang.kept)
        await gang.order(Order(run.trial, attempt, run.folder, key, kept, self.labels, data, run.book.checkpoint, run.seconds))
        if (late := await self._await_ranks(gang, run)) is not None:
            await self.leases.close(gang, kill=True)
            return Ended(0, State.FAIL, late)
        failed = [e for e in gang.ended if e.state is State.FAIL]
        if len(gang.ended) < workers:
            # A rank that lost its peer in a collective raises as well: it is the trial's fault only if its peers live.
            lost = gang.lost or await gang.lost_a_rank()
            await self.leases.close(gang, kill=True)  # the others may wait for the one that raised
            if lost:
                return None
            if await self.fits.caused(failed):
                raise RayActorError
            failed.sort(key=lambda e: not e.retry)
            return failed[0] if failed else Ended(0, State.FAIL, f"its workers could not start: {said(gang.gone)}")
        if failed and await self.fits.caused(failed):
            raise RayActorError
        failed.sort(key=lambda e: not e.retry)  # a peer of the rank that raised such an exception may raise another for its sake
        broken = next((e.broken for e in gang.ended if e.broken), None)
        if broken or self.job.reuse == "never":
            log.info("%s is closed: %s", gang.id, broken or "trainer.reuse: never")
            await self.leases.close(gang)
        else:
            self.leases.release(gang)
        if not failed and len({e.reports for e in gang.ended}) > 1:
            counts = ", ".join(f"rank {e.rank} {e.reports}" for e in sorted(gang.ended, key=lambda e: e.rank))
            return Ended(0, State.FAIL, f"every rank must report equally often; reports were: {counts}")
        return failed[0] if failed else min(gang.ended, key=lambda e: e.rank)

    async def _await_ranks(self, gang: Gang, run: Run) -> str | None:
        """Wait until all ranks have ended the order, or the gang is gone, or one rank raised alone; why the trial is too late, if it is."""
        workers = gang.shape.workers
        limit, silence = self.job.trial_timeout, self.job.report_timeout
        async with gang.changed:
            while not (gang.gone or len(gang.ended) == workers or any(e.error for e in gang.ended)):
                left = None
                if limit is not None:  # the clock runs from the moment its ranks begin
                    left = limit + STACKS_WITHIN - run.seconds - (time.monotonic() - run.began) if run.began is not None else LOOK_EVERY
                    if run.began is not None and left <= 0:
                        stands = "; its log has the stack of every thread" if len(gang.ended) < workers else ""
                        return f"the trial took longer than it may (limits.trial_timeout: {limit:g} s){stands}"
                if silence is not None:
                    left = min(left or LOOK_EVERY, LOOK_EVERY)
                    if run.overdue(silence, workers, time.monotonic()):
                        await asyncio.sleep(STACKS_WITHIN)  # other ranks may wait for this one, and say so as well
                        if late := run.overdue(silence, workers, time.monotonic()):
                            return "\n".join([*map(str, late), f"no report within limits.report_timeout, {silence:g} s"])
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(gang.changed.wait(), left)
            if not gang.gone and len(gang.ended) < workers:  # a rank raised: do the others too?
                with contextlib.suppress(asyncio.TimeoutError):
                    everyone = gang.changed.wait_for(lambda: gang.gone or len(gang.ended) == workers)
                    await asyncio.wait_for(everyone, RAISED_ALONE_AFTER)
        return None


def _death(gang: Gang, run: Run, killed_for_memory: bool) -> str:
    """Say what a process of a gang died of under a trial.

    Args:
        gang: that is gone.
        run: of the trial.
        killed_for_memory: whether a process was, during the attempt.
    """
    silent = sorted(set(range(gang.shape.workers)) - {e.rank for e in gang.ended})
    for rank in silent:
        if (died := exit_causes.exit_cause(None, exit_causes.last_attempt_log(log_of(run.folder, rank)), killed_for_memory)) is not None:
            return f"rank {rank}: {died}"
    return said(gang.gone)


def _checkpoints(folder: str) -> list[str]:
    """Return the paths of all checkpoints in a trial's folder."""
    return [str(path) for path in Path(folder).glob("checkpoint_*")]


def _delete(paths: list[str]) -> None:
    for path in paths:
        delete_checkpoint(Path(path))


def _hurry(actor: Any, trial_id: str, step: int) -> None:
    """Run in a rank's process: have it tell the pool at once when it has come to a step."""
    from sweeps.execution import rank  # not in the pool's process, which starts faster without Ray Data

    rank.hurry(trial_id, step)


_remote: Any = ray.remote  # Ray's types know no `max_concurrency`
Pool = _remote(num_cpus=0, max_restarts=-1, max_concurrency=10_000)(_Pool)
