"""Who holds what of the cluster: starts gangs, leases them, takes them back, closes them. The effects of `account.decide`."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import AsyncIterator, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ray
from ray.exceptions import ActorDiedError, GetTimeoutError, RayActorError, RayError, RayTaskError

from sweeps.core import exit_causes
from sweeps.core.resources import Shape, fits, minus
from sweeps.execution import allocation, data_affinity, ray_train_run, single_worker
from sweeps.execution.allocation import Evict, GangState, Phase, Refuse, Request, Reuse, Start
from sweeps.execution.messages import Ended, Job, Order

log = logging.getLogger(__name__)

# How long a rank's process may take to show that it lives, in seconds.
SIGN_OF_LIFE = 10.0
# A gang that is not up after so many seconds may have no node to be on, while idle ones hold what it wants; or the machine is busy, where
# two ranks have been seen to take thirty.
PLACED_WITHIN = 60.0


class Closed(Exception):
    """The gang was closed or killed by the pool."""


class Gang:
    """A gang as the pool knows it; its ranks ask for `orders`, one after the other."""

    def __init__(self, name: str, shape: Shape, used: int):
        self.id, self.shape, self.used = name, shape, used
        self.phase = Phase.BUSY
        self.kept: data_affinity.Kept = ()  # the data its ranks keep caches of
        self.orders: list[Order | None] = []  # None closes it
        self.handles: dict[int, Any] = {}
        self.up: set[int] = set()  # ranks that have said hello
        self.ended: list[Ended] = []  # how the ranks ended the latest order
        self.exchanged: dict[tuple[int, int], Any] = {}  # what ranks tell each other, by order and rank
        self.gone: BaseException | None = None  # why; `Closed` if it was meant to go
        self.changed = asyncio.Condition()
        self.closed = asyncio.Event()

    @property
    def lost(self) -> bool:
        """Whether it is gone because a process was lost, and not because it could never run."""
        return self.gone is not None and not isinstance(self.gone, (RayTaskError, ImportError))

    def greet(self, rank: int, handle: Any) -> None:
        """A rank is up."""
        self.handles[rank] = handle
        self.up.add(rank)
        if self.gone:
            self.kill()

    def kill(self) -> None:
        """End its processes."""
        for handle in self.handles.values():
            with contextlib.suppress(Exception):
                ray.kill(handle)

    async def order(self, order: Order | None) -> None:
        """Give its ranks the next order."""
        async with self.changed:
            self.ended = []
            self.exchanged = {key: value for key, value in self.exchanged.items() if key[0] >= len(self.orders)}
            self.orders.append(order)
            self.changed.notify_all()

    async def lost_a_rank(self) -> bool:
        """Whether the process of a rank that has not ended is dead."""
        silent = [handle for rank, handle in self.handles.items() if rank not in {e.rank for e in self.ended}]
        return any(await asyncio.gather(*map(_dead, silent)))


async def _dead(handle: Any) -> bool:
    try:
        await asyncio.wait_for(handle.__ray_call__.remote(_alive), SIGN_OF_LIFE)
    except (ActorDiedError, RayActorError):
        return True
    except (TimeoutError, GetTimeoutError, RayError):
        return False
    return False


def _alive(actor: Any) -> bool:
    """Run in a rank's process, to see whether there is one."""
    return True


class Leases:
    """All gangs of a sweep and everyone in line for one. Lives on the pool's event loop.

    Args:
        job: what the gangs run.
        cluster: all resources there are.
        storage: folder for what Ray Train writes.
        room: see `account.decide`.
        spawn: runs a coroutine in the background.
        threads: for what blocks.
    """

    def __init__(
        self, job: Job, cluster: dict[str, float], storage: str, room: dict[str, float] | None, spawn: Any, threads: ThreadPoolExecutor
    ):
        self.job, self.cluster, self.storage, self.room, self.spawn, self.threads = job, cluster, storage, room, spawn, threads
        self.gangs: dict[str, Gang] = {}
        self._line: list[tuple[Request, asyncio.Future]] = []
        self._granted: dict[int, dict[str, float]] = {}
        self._count = itertools.count()
        self._started = 0

    def warm(self, shapes: Sequence[Shape]) -> None:
        """Start gangs that will be wanted, as far as there is room beside those there are."""
        for shape in shapes:
            if fits(shape.total, minus(self.cluster, (g.shape.total for g in self.gangs.values()))):
                self._begin(shape).phase = Phase.IDLE

    async def gang(self, shape: Shape, key: str | None = None, again: bool = False) -> Gang:
        """Wait in line for a gang of a shape; of several, the one that keeps the data `key`.

        Args:
            shape, key: see `Request`.
            again: it is for a trial that is tried again, which comes before those that have not begun.

        Raises:
            RuntimeError: the cluster can never hold it.
        """
        return await self._queue(Request(next(self._count), shape.total, shape, key, again=again))

    @contextlib.asynccontextmanager
    async def resources(self, need: dict[str, float], tasks: bool = True) -> AsyncIterator[None]:
        """Wait in line for bare resources and hold them while this lasts; `tasks`: see `Request`."""
        ticket = await self._queue(Request(next(self._count), need, tasks=tasks))
        try:
            yield
        finally:
            self._granted.pop(ticket, None)
            self._serve_line()

    @property
    def in_line(self) -> bool:
        """Whether somebody waits."""
        return any(not got.done() for _, got in self._line)

    def release(self, gang: Gang) -> None:
        """The gang is free for the next trial."""
        if gang.gone is None and gang.phase is Phase.BUSY:
            gang.phase = Phase.IDLE
        self._serve_line()

    async def close(self, gang: Gang, kill: bool = False) -> None:
        """Let a gang's loops return, or kill them where they may hang. Its resources are free once it is gone."""
        gang.phase = Phase.CLOSING
        if kill or not gang.up:  # Ray may never find a place for it
            gang.gone = gang.gone or Closed("killed")
            gang.kill()
        async with gang.changed:
            gang.orders.append(None)
            gang.changed.notify_all()

    async def close_all(self, timeout: float) -> None:
        """Close every gang, waiting for them; kill those that take longer."""
        gangs = list(self.gangs.values())
        for gang in gangs:
            await self.close(gang)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*(g.closed.wait() for g in gangs)), timeout)
        for gang in self.gangs.values():
            gang.kill()

    def held(self) -> tuple[dict[str, float], dict[str, float]]:
        """The resources that are at work, in gangs and in fits; and those that gangs hold without work."""
        busy = [g.shape.total for g in self.gangs.values() if g.phase is Phase.BUSY]
        warm = [g.shape.total for g in self.gangs.values() if g.phase is not Phase.BUSY]
        return _sum([*busy, *self._granted.values()]), _sum(warm)

    async def _queue(self, request: Request) -> Any:
        got: asyncio.Future = asyncio.get_running_loop().create_future()
        self._line.insert(allocation.position([waits for waits, _ in self._line], request), (request, got))
        self._serve_line()
        try:
            return await got
        except asyncio.CancelledError:
            if got.done() and not got.cancelled():  # granted in the moment of the cancellation
                what = got.result()
                if isinstance(what, Gang):
                    self.release(what)
                else:
                    self._granted.pop(what, None)
            self._line = [(r, f) for r, f in self._line if f is not got]
            self._serve_line()
            raise

    def _serve_line(self) -> None:
        """Do what the account says until it says wait."""
        while True:
            self._line = [(r, f) for r, f in self._line if not f.done()]
            states = [GangState(g.id, g.shape, g.phase, g.used, frozenset(k for k, _ in g.kept)) for g in self.gangs.values()]
            match allocation.decide(self.cluster, states, list(self._granted.values()), [r for r, _ in self._line], self.room):
                case Reuse(_, gang_id):
                    gang = self.gangs[gang_id]
                    gang.phase, gang.used = Phase.BUSY, next(self._count)
                    self._line[0][1].set_result(gang)
                case Start(Request(shape=None) as request):
                    self._granted[request.id] = dict(request.need)
                    self._line[0][1].set_result(request.id)
                case Start(request):
                    assert request.shape is not None
                    self._line[0][1].set_result(self._begin(request.shape))
                case Evict(gang_id):
                    self.gangs[gang_id].phase = Phase.CLOSING
                    self.spawn(self.close(self.gangs[gang_id]))
                case Refuse(request):
                    needs = ", ".join(f"{v:g} {k} (there are {self.cluster.get(k, 0):g})" for k, v in request.need.items())
                    self._line[0][1].set_exception(RuntimeError(f"{request.shape} needs {needs}"))
                case _:
                    return

    def _begin(self, shape: Shape) -> Gang:
        """Start a gang; `_watch` notices its end."""
        self._started += 1
        gang = Gang(f"gang-{self._started:03d}", shape, next(self._count))
        self.gangs[gang.id] = gang
        me = ray.get_runtime_context().current_actor
        running: Any
        if shape.workers == 1:
            gang.handles[0], running = single_worker.start(me, gang.id, self.job, shape)
        else:
            loop = asyncio.get_running_loop()
            running = loop.run_in_executor(self.threads, ray_train_run.run, me, gang.id, self.job, shape, self.storage)
        self.spawn(self._watch(gang, running))
        self.spawn(self._make_room(gang))
        return gang

    async def _make_room(self, gang: Gang) -> None:
        """Close idle gangs, one after the other, while a gang that a trial waits for is not up.

        The account knows what the cluster has together, not what its nodes and single GPUs have: Ray may find no place for a gang that
        there is room for.
        """
        while not gang.closed.is_set() and len(gang.up) < gang.shape.workers:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(gang.closed.wait(), PLACED_WITHIN)
                return
            waits = gang.phase is Phase.BUSY and len(gang.up) < gang.shape.workers
            idle = [g for g in self.gangs.values() if g.phase is Phase.IDLE and g.shape.total.keys() & gang.shape.total.keys()]
            if waits and idle:
                log.warning("%s, %s, is not up after %g s; an idle one makes room", gang.id, gang.shape, PLACED_WITHIN)
                await self.close(min(idle, key=lambda g: g.used))

    async def _watch(self, gang: Gang, running: Any) -> None:
        """Wait until a gang is gone, for good or ill, then give its resources back to the account."""
        why: BaseException = Closed("closed")
        try:
            await running
        except Exception as e:
            why = e
            gang.kill()
        self.gangs.pop(gang.id, None)
        async with gang.changed:
            gang.gone = gang.gone or why
            gang.changed.notify_all()
        gang.closed.set()
        self._serve_line()


def _sum(amounts: list[dict[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for amount in amounts for name in amount)
    return {name: sum(amount.get(name, 0.0) for amount in amounts) for name in names}


def said(error: BaseException | None) -> str:
    """An error in one line: its cause where Ray wrapped one, without Ray's colours and addresses."""
    cause = getattr(error, "cause", None) or error
    if (died := exit_causes.exit_cause(error)) is not None:
        return died
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    return f"{type(cause).__name__}: {lines[-1] if lines else ''}".rstrip(": ")


class Background:
    """Coroutines that run on their own; the event loop itself keeps only a weak reference of a task."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task] = set()

    def __call__(self, coroutine: Coroutine) -> asyncio.Task:
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
