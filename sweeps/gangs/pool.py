"""The pool: one actor that owns the gangs, leases them to trials and carries messages between runners and ranks.

A runner sees two calls, `start` and `advance`. Behind them `_drive` takes one trial through: prepared data, a gang, the attempts
it needs. Which gang is reused, started or evicted is `account.decide`'s; here are only the effects.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import time
import traceback
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ray

from sweeps.gangs import account, local, train_run
from sweeps.gangs.account import Evict, GangState, Phase, Refuse, Request, Reuse, Start
from sweeps.gangs.messages import Ended, Job, News, Order, Progress
from sweeps.gangs.rank import remove
from sweeps.resources import Shape
from sweeps.trial import Checkpoint, Report, State, Trial

# A runner hears of its trial at least this often while there is news, in seconds.
PROGRESS_EVERY = 1.0
# When one rank raised, the others get this long to raise as well before the gang counts as broken.
RAISED_ALONE_AFTER = 2.0


class _Gang:
    def __init__(self, name: str, shape: Shape):
        self.id, self.shape = name, shape
        self.phase, self.used = Phase.BUSY, 0
        self.orders: list[Order | None] = []
        self.handles: dict[int, Any] = {}
        self.ended: list[Ended] = []
        self.died: str | None = None
        self.changed = asyncio.Condition()
        self.closed = asyncio.Event()

    def kill(self) -> None:
        for handle in self.handles.values():
            with contextlib.suppress(Exception):
                ray.kill(handle)


class _Run:
    """A trial on its way, over all its attempts."""

    def __init__(self, trial: Trial, folder: str, seen: int, checkpoint: Checkpoint | None, best: Checkpoint | None):
        self.trial, self.folder = trial, folder
        self.seen = seen  # reports up to this step were passed on
        self.decided = seen  # rungs up to this step were decided before the sweep was interrupted
        self.attempts, self.lost = 0, 0
        self.checkpoint, self.best = checkpoint, best
        self.values: dict[int, float] = {}
        self.reports: list[Report] = []
        self.fresh_checkpoint = False
        self.parts: dict[int, Checkpoint] = {}
        self.steps: dict[int, int] = defaultdict(int)
        self.rung: int | None = None  # where it waits
        self.rung_told: int | None = None  # the driver knows
        self.last = Progress()
        self.began: float | None = None
        self.forgotten = False  # the driver knows how it ends (stopped at a rung) before its ranks do
        self.verdicts: dict[int, asyncio.Future] = {}
        self.state: State | None = None
        self.error: str | None = None
        self.seconds = 0.0
        self.task: asyncio.Task | None = None
        self.changed = asyncio.Event()

    def finish(self, state: State, error: str | None = None) -> None:
        if self.state is None:
            self.state, self.error = state, error
            self.changed.set()


class _Pool:
    """See the module. An asyncio actor: every method runs on one event loop, and none blocks it."""

    def __init__(self, cluster: dict[str, float], storage: str, max_failures: int, environment: dict[str, str]):
        os.environ.update(environment)
        self.cluster, self.storage, self.max_failures = cluster, storage, max_failures
        self.job: Job | None = None
        self.keeper: Any = None
        self.goal_sign = 1.0
        self.gangs: dict[str, _Gang] = {}
        self.runs: dict[str, _Run] = {}
        self.line: list[tuple[Request, asyncio.Future]] = []
        self.granted: dict[int, dict[str, float]] = {}
        self.prepared: dict[tuple, asyncio.Future] = {}
        self.count = itertools.count()
        self.threads = ThreadPoolExecutor(max_workers=256, thread_name_prefix="gang")
        self.stopping: State | None = None
        self.started_gangs = 0
        self.tasks: set[asyncio.Task] = set()

    async def configure(self, job: Job, keeper: Any) -> None:
        """Tell the pool what the sweep runs, once the data is known."""
        self.job, self.keeper = job, keeper
        self.goal_sign = 1.0 if job.goal == "minimize" else -1.0

    # ---- what a runner calls

    async def start(self, trial: Trial, folder: str, seen: int, checkpoint: Checkpoint | None, best: Checkpoint | None) -> None:
        """Set a trial going.

        Args:
            trial: what to run.
            folder: where its checkpoints go.
            seen: reports of it that are on record already, from before an interruption.
            checkpoint: where to go on from; None from the start.
            best: the checkpoint of its best step so far.
        """
        run = _Run(trial, folder, seen, checkpoint, best)
        self.runs[trial.id] = run
        if self.stopping is not None:
            run.finish(self.stopping)
            return
        run.task = asyncio.create_task(self._drive(run))

    async def attach(self, trial_id: str) -> None:
        """A runner takes up the trial, perhaps after another one died: what that one was told last is told again."""
        run = self.runs[trial_id]
        run.reports = [*run.last.reports, *run.reports]
        run.fresh_checkpoint = run.fresh_checkpoint or run.last.checkpoint is not None
        run.rung_told = None
        run.changed.set()

    async def advance(self, trial_id: str) -> Progress:
        """Wait for the trial's next news: its end, a rung that waits for a verdict, a checkpoint, or reports that are due."""
        run = self.runs[trial_id]
        since = time.monotonic()
        while run.state is None and run.rung == run.rung_told and not run.fresh_checkpoint:
            left = PROGRESS_EVERY - (time.monotonic() - since)
            if run.reports and left <= 0:
                break
            run.changed.clear()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(run.changed.wait(), max(left, 0.05) if run.reports else None)
        run.last = Progress(
            reports=tuple(run.reports),
            checkpoint=run.checkpoint if run.fresh_checkpoint else None,
            best=run.best,
            rung=run.rung if run.rung != run.rung_told else None,
            state=run.state,
            error=run.error,
            attempts=run.attempts,
            seconds=run.seconds + (time.monotonic() - run.began if run.began else 0.0),
        )
        run.reports, run.fresh_checkpoint, run.rung_told = [], False, run.rung
        return run.last

    async def answer(self, trial_id: str, step: int, go_on: bool) -> None:
        """The driver's verdict on a rung, for all ranks that wait there."""
        run = self.runs.get(trial_id)
        if run is not None and run.rung == step:
            run.rung = run.rung_told = None
            if not run.verdicts[step].done():
                run.verdicts[step].set_result(go_on)

    async def forget(self, trial_id: str) -> None:
        """The trial's end is on record."""
        run = self.runs.get(trial_id)
        if run is not None and run.state is not None:
            del self.runs[trial_id]
        elif run is not None:
            run.forgotten = True

    async def interrupt(self, state: State) -> None:
        """End every trial now: RUNNING leaves it resumable, PRUNED counts it as stopped. No gang is leased any more."""
        self.stopping = state
        for run in list(self.runs.values()):
            if run.task is not None and run.state is None:
                run.task.cancel()
            run.finish(state)

    # ---- what a rank calls

    async def hello(self, gang_id: str, rank: int, handle: Any, pid: int) -> None:
        if gang := self.gangs.get(gang_id):
            gang.handles[rank] = handle
            if gang.died:
                gang.kill()

    async def next_order(self, gang_id: str, rank: int, index: int) -> Order | None:
        gang = self.gangs.get(gang_id)
        if gang is None:
            return None
        async with gang.changed:
            await gang.changed.wait_for(lambda: len(gang.orders) > index)
        order = gang.orders[index]
        if order is not None and rank == 0 and (run := self.runs.get(order.trial.id)):
            run.began = time.monotonic()  # not before: the gang may still have been starting
        return order

    async def tell(self, gang_id: str, trial_id: str, attempt: int, news: News) -> None:
        self._take(trial_id, attempt, news)

    async def at_rung(self, gang_id: str, trial_id: str, attempt: int, news: News) -> bool:
        """The verdict at a rung, the same for every rank: whether to go on. The driver is asked when rank 0 has come."""
        run = self._take(trial_id, attempt, news)
        if run is None:
            return False
        if news.step <= run.decided:
            return True
        if news.step not in run.verdicts:
            run.verdicts[news.step] = asyncio.get_running_loop().create_future()
        if news.rank == 0:
            run.rung = news.step
            run.changed.set()
        return await run.verdicts[news.step]

    async def ended(self, gang_id: str, index: int, trial_id: str, attempt: int, news: News, ended: Ended) -> None:
        self._take(trial_id, attempt, news, last=True)
        if gang := self.gangs.get(gang_id):
            async with gang.changed:
                if index == len(gang.orders) - 1:
                    gang.ended.append(ended)
                gang.changed.notify_all()

    def _take(self, trial_id: str, attempt: int, news: News, last: bool = False) -> _Run | None:
        """Book the news of a rank; None if the trial has ended or is on another attempt by now."""
        run = self.runs.get(trial_id)
        if run is None or run.state is not None or run.attempts != attempt or self.job is None:
            return None
        for report in news.reports:
            run.values[report.step] = report.metrics[self.job.metric]
            if report.step > run.seen:
                run.seen = report.step
                run.reports.append(report)
                run.changed.set()
        for part in news.checkpoints:
            if part.step not in run.parts or news.rank == 0:
                run.parts[part.step] = part
        # A rank that ended has persisted all it ever will, whatever step it came to.
        run.steps[news.rank] = 10**12 if last else news.step
        ranks = range(run.trial.shape.workers)
        for step in sorted(s for s in run.parts if all(run.steps[r] >= s for r in ranks)):
            self._keep(run, run.parts.pop(step))
        return run

    def _keep(self, run: _Run, new: Checkpoint) -> None:
        """Make `new` the trial's checkpoint; drop what neither a retry nor the export needs any more."""
        old = {c.path for c in (run.checkpoint, run.best) if c}
        if run.best is None or self._rank_of(run, new) <= self._rank_of(run, run.best):
            run.best = new
        run.checkpoint, run.fresh_checkpoint = new, True
        run.changed.set()
        for path in old - {new.path, run.best.path}:
            self.threads.submit(remove, path)

    def _rank_of(self, run: _Run, checkpoint: Checkpoint) -> float:
        """Smaller is better; a value that is not known, or NaN, is the worst."""
        value = run.values.get(checkpoint.best_step, float("nan"))
        return float("inf") if value != value else self.goal_sign * value

    # ---- one trial's way

    async def _drive(self, run: _Run) -> None:
        try:
            while run.state is None:
                prepared = await self._prepare(run.trial)
                gang = await self._lease(run.trial.shape)
                try:
                    ended = await self._attempt(gang, run, prepared)
                finally:
                    if run.began is not None:
                        run.seconds, run.began = run.seconds + time.monotonic() - run.began, None
                if ended is not None:
                    run.finish(ended.state, ended.error)
                    continue
                run.lost += 1
                if run.lost > self.max_failures:
                    limit = f"limits.max_failures: {self.max_failures}"
                    run.finish(State.FAIL, f"a worker process died in {run.lost} attempts ({limit}): {gang.died}")
        except asyncio.CancelledError:
            raise
        except ray.exceptions.RayTaskError as e:
            run.finish(State.FAIL, str(e.cause) if e.cause is not None else str(e))
        except Exception:
            run.finish(State.FAIL, traceback.format_exc())
        finally:
            if run.forgotten:
                self.runs.pop(run.trial.id, None)

    async def _attempt(self, gang: _Gang, run: _Run, prepared: dict[str, Any]) -> Ended | None:
        """Run a trial on a leased gang; None if the gang died under it. The gang is given back, or closed."""
        run.attempts += 1
        run.steps.clear()
        run.parts.clear()
        order = Order(run.trial, run.attempts, run.folder, prepared["key"], prepared["shards"], prepared["check"], run.checkpoint)
        workers = gang.shape.workers
        try:
            async with gang.changed:
                gang.ended = []
                gang.orders.append(order)
                gang.changed.notify_all()
                await gang.changed.wait_for(lambda: gang.died or any(e.error for e in gang.ended) or len(gang.ended) == workers)
                if not gang.died and len(gang.ended) < workers:  # a rank raised: do the others too, or is it alone?
                    with contextlib.suppress(asyncio.TimeoutError):
                        everyone = gang.changed.wait_for(lambda: gang.died or len(gang.ended) == workers)
                        await asyncio.wait_for(everyone, RAISED_ALONE_AFTER)
        except asyncio.CancelledError:
            await self._close(gang, kill=True)
            raise
        failed = [e for e in gang.ended if e.state is State.FAIL]
        if not failed and gang.died:
            return None
        if 0 < len(failed) < workers:
            await self._close(gang, kill=True)  # a rank raised alone: the others may wait for it in a collective
        elif any(e.broken for e in gang.ended):
            await self._close(gang)
        else:
            self._release(gang)
        if failed:
            return failed[0]
        return min(gang.ended, key=lambda e: e.rank)

    async def _prepare(self, trial: Trial) -> dict[str, Any]:
        """The trial's data, ready for its ranks; made once for all trials that share it, also when they start together."""
        key = (repr(trial.preprocessor), trial.shape.workers)
        if key not in self.prepared:
            self.prepared[key] = asyncio.ensure_future(self._make(trial))
        return await asyncio.shield(self.prepared[key])

    async def _make(self, trial: Trial) -> dict[str, Any]:
        """Ray Data runs tasks, which hang while gangs hold every CPU: so a fit stands in line for one like a gang."""
        need = {"CPU": min(1.0, self.cluster.get("CPU", 1.0))}
        ticket = await self._queue(Request(next(self.count), need))
        try:
            return await self.keeper.prepare.remote(trial.preprocessor, trial.shape.workers)
        finally:
            self.granted.pop(ticket, None)
            self._turn()

    # ---- the account's effects

    async def _lease(self, shape: Shape) -> _Gang:
        return await self._queue(Request(next(self.count), shape.total, shape))

    async def _queue(self, request: Request) -> Any:
        """Stand in line; a gang for a trial, a ticket for a fit."""
        got: asyncio.Future = asyncio.get_running_loop().create_future()
        self.line.append((request, got))
        self._turn()
        try:
            return await got
        except asyncio.CancelledError:
            self.line = [(r, f) for r, f in self.line if f is not got]
            if got.done() and not got.cancelled() and isinstance(got.result(), _Gang):
                self._release(got.result())
            self._turn()
            raise

    def _turn(self) -> None:
        """Do what the account says until it says wait."""
        while True:
            self.line = [(r, f) for r, f in self.line if not f.done()]
            states = [GangState(g.id, g.shape, g.phase, g.used) for g in self.gangs.values()]
            action = account.decide(self.cluster, states, list(self.granted.values()), [r for r, _ in self.line])
            match action:
                case Reuse(request, gang_id):
                    gang = self.gangs[gang_id]
                    gang.phase, gang.used = Phase.BUSY, next(self.count)
                    self._serve(request, gang)
                case Start(Request(shape=None) as request):
                    self.granted[request.id] = dict(request.need)
                    self._serve(request, request.id)
                case Start(request):
                    assert request.shape is not None
                    self._serve(request, self._begin(request.shape))
                case Evict(gang_id):
                    self._spawn(self._close(self.gangs[gang_id]))
                    self.gangs[gang_id].phase = Phase.CLOSING
                case Refuse(request):
                    self._refuse(request)
                case _:
                    return

    def _spawn(self, coroutine: Any) -> None:
        """Run in the background; the loop itself keeps only a weak reference of a task."""
        task = asyncio.ensure_future(coroutine)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def _serve(self, request: Request, what: Any) -> None:
        for waiting, got in self.line:
            if waiting is request and not got.done():
                got.set_result(what)

    def _refuse(self, request: Request) -> None:
        needs = ", ".join(f"{v:g} {k}" for k, v in request.need.items())
        has = ", ".join(f"{self.cluster.get(k, 0):g} {k}" for k in request.need)
        for waiting, got in self.line:
            if waiting is request and not got.done():
                got.set_exception(RuntimeError(f"{request.shape} needs {needs}; the cluster has {has}"))

    def _begin(self, shape: Shape) -> _Gang:
        """Start a gang; its death is noticed by `_watch`."""
        assert self.job is not None
        self.started_gangs += 1
        gang = _Gang(f"gang-{self.started_gangs:03d}", shape)
        gang.used = next(self.count)
        self.gangs[gang.id] = gang
        me = ray.get_runtime_context().current_actor
        if shape.workers == 1:
            handle, done = local.start(me, gang.id, self.job, shape)
            gang.handles[0] = handle
            running: Any = done
        else:
            loop = asyncio.get_running_loop()
            running = loop.run_in_executor(self.threads, train_run.run, me, gang.id, self.job, shape, self.storage)
        self._spawn(self._watch(gang, running))
        return gang

    async def _watch(self, gang: _Gang, running: Any) -> None:
        """Wait until a gang is gone, for good or ill, then give its resources back to the account."""
        why = "closed"
        try:
            await running
        except Exception as e:
            why = str(e).strip().splitlines()[0] if str(e).strip() else type(e).__name__
        self.gangs.pop(gang.id, None)
        async with gang.changed:
            gang.died = why
            gang.changed.notify_all()
        gang.closed.set()
        self._turn()

    def _release(self, gang: _Gang) -> None:
        if gang.died is None and gang.phase is Phase.BUSY:
            gang.phase = Phase.IDLE
        self._turn()

    async def _close(self, gang: _Gang, kill: bool = False) -> None:
        """Let a gang's loops return, or kill them where they may hang. Its resources are free once it is gone."""
        gang.phase = Phase.CLOSING
        if kill:
            gang.died = gang.died or "killed"
            gang.kill()
        async with gang.changed:
            gang.orders.append(None)
            gang.changed.notify_all()

    async def shutdown(self, timeout: float = 10.0) -> dict[str, int]:
        """Close every gang, waiting for them; kill those that take longer. Returns counts for the record."""
        await self.interrupt(self.stopping or State.RUNNING)
        gangs = list(self.gangs.values())
        for gang in gangs:
            await self._close(gang)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.gather(*(g.closed.wait() for g in gangs)), timeout)
        for gang in self.gangs.values():
            gang.kill()
        return {"gangs": self.started_gangs}

    async def checkpoint_step(self, trial_id: str) -> int:
        """The step of a running trial's newest complete checkpoint; 0 without one."""
        run = self.runs[trial_id]
        return run.checkpoint.step if run.checkpoint else 0


Pool: Any = ray.remote(_Pool).options(num_cpus=0, max_restarts=0, max_concurrency=10_000)
