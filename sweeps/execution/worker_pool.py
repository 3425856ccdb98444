"""The workers of a sweep: start them, reserve them for trials, connect them to gangs, notice their deaths, close them.

`allocation.decide` decides. This module carries the decisions out, on the event loop of the pool's actor.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import time
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any

import ray
from ray.exceptions import RayError

from sweeps.core import exit_causes
from sweeps.core.processes import is_alive
from sweeps.core.resources import Shape
from sweeps.execution import allocation, data_affinity, gangs, worker
from sweeps.execution.allocation import Close, Cluster, Grant, Phase, Place, Request, WorkerState
from sweeps.execution.messages import Job, WorkerInfo

log = logging.getLogger(__name__)

# A worker that lives asks for calls at least this often, in seconds: its heartbeat.
HEARTBEAT_EVERY = 2.0
# Deaths are looked for this often, in seconds.
LOOK_EVERY = 0.5
# A gang that is connected or taken apart, and a worker whose peer has died, may take this long before the processes are killed, in seconds.
CONNECT_WITHIN = 60.0
DISBAND_WITHIN = 10.0
# Ray may find no place for a worker though its node has room, as the parts of a GPU may lie on two. After so many seconds idle workers
# make room.
PLACED_WITHIN = 60.0
# A trial that does not fit on the cluster fails after so many seconds without a node that could take it.
FITS_WITHIN = 600.0
# Rather than start a worker with a smaller part of a GPU, a larger one is used while trials take less than this on average, in seconds.
SHORT_TRIAL = 60.0


class WorkerLost(Exception):
    """A worker's process has died, or was killed.

    Attributes:
        blameless: Whether the trial has no part in it: its node or its heartbeat was lost.
    """

    def __init__(self, reason: str, blameless: bool = False):
        super().__init__(reason)
        self.blameless = blameless


class CannotStart(Exception):
    """A worker raised an exception before it could run anything."""


class Worker:
    """A worker as the pool knows it.

    Attributes:
        id: Its id.
        number: Its number in the order of starts.
        resources: Name and amount of each resource.
        node: Id of its node.
        phase: See `allocation.Phase`.
        used: Grows with each use.
        cached: Keys and sizes of the data that it caches.
        gang: The gang that it belongs to.
        actor: Its handle.
        info: What it told of itself; None before it is up.
        lost: Why its process is gone; None while it lives.
    """

    def __init__(self, number: int, resources: tuple[tuple[str, float], ...], node: str, used: int):
        self.id, self.number = f"worker-{number:03d}", number
        self.resources, self.node, self.used = resources, node, used
        self.phase = Phase.BUSY
        self.cached: data_affinity.Kept = ()
        self.gang: Gang | None = None
        self.actor: Any = None
        self.info: WorkerInfo | None = None
        self.lost: Exception | None = None
        self.up: asyncio.Future[WorkerInfo] = asyncio.get_running_loop().create_future()
        self.gone = asyncio.Event()
        self.heartbeat: float | None = None  # Time of the last one, by the monotonic clock.
        self.calls: asyncio.Queue[tuple[int, str, tuple[Any, ...]]] = asyncio.Queue()
        self.answers: dict[int, asyncio.Future[None]] = {}
        self._count = itertools.count()

    def state(self) -> WorkerState:
        """Return what the allocation needs to know."""
        keys = frozenset(key.partition("|")[0] for key, _ in self.cached)
        gang, rank = (self.gang.id, self.gang.workers.index(self)) if self.gang is not None else (None, 0)
        return WorkerState(self.id, self.node, self.resources, self.phase, self.used, keys, gang, rank)

    async def call(self, method: str, *arguments: Any) -> None:
        """Call a method of `WorkerRuntime` beside the worker's main thread.

        Raises:
            RuntimeError: The method raised; the text is its traceback.
            WorkerLost: The worker died.
        """
        number = next(self._count)
        self.answers[number] = answer = asyncio.get_running_loop().create_future()
        self.calls.put_nowait((number, method, arguments))
        try:
            await answer
        finally:
            del self.answers[number]

    def send(self, method: str, *arguments: Any) -> None:
        """Like `call`, without waiting."""
        self.calls.put_nowait((next(self._count), method, arguments))

    def kill(self) -> None:
        """End the process."""
        with contextlib.suppress(Exception):
            ray.kill(self.actor)


class Gang:
    """Workers that run one trial together.

    Attributes:
        id: Its id.
        workers: The workers in the order of their ranks.
        ranks: Place of each.
        connected: Whether the backend has connected them.
        broken: Whether the workers must be disconnected before another trial.
    """

    def __init__(self, number: int, workers: Sequence[Worker]):
        known = [(w, w.node, w.info.gpus if w.info else (), w.number) for w in workers]
        self.id = f"gang-{number:03d}"
        self.workers = gangs.in_rank_order(known)
        self.ranks = gangs.ranks_on([w.node for w in self.workers])
        self.connected = False
        self.broken = False
        self.disbanding: asyncio.Task[None] | None = None


class Background:
    """Coroutines that run on their own; the event loop itself keeps only a weak reference of a task."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def __call__(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start a coroutine."""
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


class WorkerPool:
    """All workers of a sweep, and the queue of those who wait for some.

    Args:
        job: What all trials of the sweep share.
        resources: All resources that the sweep may use, if the cluster has one node; None to use what the nodes have.
        parked: See `allocation.Cluster`.
        spawn: Runs a coroutine in the background.

    Attributes:
        workers: The workers by id.
        nodes: Resources of each node.
    """

    def __init__(self, job: Job, resources: Mapping[str, float] | None, parked: int | None, spawn: Background):
        self.job, self._fixed, self._parked, self.spawn = job, resources, parked, spawn
        self.workers: dict[str, Worker] = {}
        self.nodes: dict[str, Mapping[str, float]] = {}
        self._queue: list[tuple[Request, asyncio.Future[Any], float]] = []
        self._grants: dict[int, tuple[str, Mapping[str, float]]] = {}
        self._count = itertools.count(1)
        self._numbers = itertools.count(1)
        self._gang_numbers = itertools.count(1)
        self._here = ray.get_runtime_context().get_node_id()
        self._seconds = (0, 0.0)  # Number of gangs that were released, and how long they were leased.
        self.update_nodes()

    # ---- what trials need

    def warm(self, shapes: Sequence[Shape]) -> None:
        """Start the workers that trials of these shapes need at the same time, as far as there is room."""
        waiting = [Request(-i, shape.total, shape) for i, shape in enumerate(shapes, 1)]
        taken: set[str] = set()
        while waiting:
            cluster = self._cluster()
            states = [replace(state, phase=Phase.BUSY) if state.id in taken else state for state in cluster.workers]
            match allocation.decide(replace(cluster, workers=states), waiting):
                case Place(request, workers, start):
                    assert request.shape is not None
                    new = [self._start(request.shape.per_worker, node) for node in start]
                    for started in new:
                        started.phase = Phase.IDLE
                    taken |= {*workers, *(started.id for started in new)}
                    waiting.remove(request)
                case _:
                    return

    async def reserve(self, shape: Shape, key: str | None = None, again: bool = False) -> list[Worker]:
        """Wait for workers of a shape, which may have to start yet.

        Args:
            shape: The shape.
            key: See `Request`.
            again: See `Request`.

        Raises:
            RuntimeError: The cluster is too small.
        """
        workers: list[Worker] = await self._wait_for(Request(next(self._count), shape.total, shape, key, again=again))
        return workers

    async def form(self, workers: Sequence[Worker], shape: Shape) -> Gang:
        """Return the gang of workers that were reserved, ready to run a trial.

        Raises:
            CannotStart: A new worker raised an exception.
            RuntimeError: The backend could not connect the workers.
            WorkerLost: A worker died.
        """
        try:
            await asyncio.gather(*(asyncio.shield(worker.up) for worker in workers))
            gang = await self._gang_of(workers)
            if len(workers) > 1 and (not gang.connected or self.job.backend in gangs.RENEWED_FOR_EACH_TRIAL):
                await self._connect(gang, dict(shape.per_worker))
            return gang
        except BaseException:
            for gang in {one.gang for one in workers if one.gang is not None and not one.gang.connected}:
                gang.broken = True
            self._give_back(workers)
            raise

    @contextlib.asynccontextmanager
    async def resources(self, need: Mapping[str, float], tasks: bool = True) -> AsyncIterator[None]:
        """Wait for resources and hold them while this lasts; `tasks`: see `Request`."""
        ticket = await self._wait_for(Request(next(self._count), need, tasks=tasks))
        try:
            yield
        finally:
            self._grants.pop(ticket, None)
            self.serve()

    @property
    def has_queue(self) -> bool:
        """Whether anybody waits."""
        return any(not granted.done() for _, granted, _ in self._queue)

    def release(self, gang: Gang, seconds: float = 0.0) -> None:
        """Take a gang back. Its workers stay connected unless it is broken."""
        self._seconds = (self._seconds[0] + 1, self._seconds[1] + seconds)
        if gang.broken and len(gang.workers) > 1:
            self.spawn(self._disband_and_give_back(gang))
        else:
            self._give_back(gang.workers)

    def close(self, worker: Worker, kill: bool = False) -> None:
        """End a worker's process, which frees its resources. `kill` does not wait for a loop that may hang."""
        worker.phase = Phase.CLOSING
        if worker.gang is not None:
            worker.gang.broken = True
        self.spawn(self._close(worker, kill))

    async def close_all(self, timeout: float) -> None:
        """Close all workers; kill those that take longer than `timeout` seconds."""
        workers = list(self.workers.values())
        for one in workers:
            self.close(one)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*(one.gone.wait() for one in workers)), timeout)
        for one in workers:
            one.kill()

    def held(self) -> tuple[dict[str, float], dict[str, float]]:
        """Return the resources that trials and fits use, and those that idle workers hold."""
        busy = [dict(w.resources) for w in self.workers.values() if w.phase is Phase.BUSY]
        idle = [dict(w.resources) for w in self.workers.values() if w.phase is not Phase.BUSY]
        return _sum([*busy, *(dict(amount) for _, amount in self._grants.values())]), _sum(idle)

    @property
    def total(self) -> dict[str, float]:
        """All resources of the cluster."""
        return _sum([dict(node) for node in self.nodes.values()])

    # ---- the queue

    async def _wait_for(self, request: Request) -> Any:
        granted: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        position = allocation.queue_position([waiting for waiting, _, _ in self._queue], request)
        self._queue.insert(position, (request, granted, time.monotonic()))
        self.serve()
        try:
            return await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():  # Granted in the moment of the cancellation.
                self._undo(granted.result())
            self._queue = [entry for entry in self._queue if entry[1] is not granted]
            self.serve()
            raise

    def _undo(self, granted: Any) -> None:
        if isinstance(granted, list):
            self._give_back(granted)
        else:
            self._grants.pop(granted, None)

    def _cluster(self) -> Cluster:
        return Cluster(self.nodes, [w.state() for w in self.workers.values()], list(self._grants.values()), self._parked)

    def serve(self) -> None:
        """Do what the allocation decides until it has nothing to do."""
        while True:
            self._queue = [entry for entry in self._queue if not entry[1].done()]
            count, seconds = self._seconds
            short = count > 0 and seconds / count < SHORT_TRIAL
            action = allocation.decide(self._cluster(), [request for request, _, _ in self._queue], reuse_larger=short)
            match action:
                case Place(request, ids, start):
                    assert request.shape is not None
                    workers = [self.workers[name] for name in ids] + [self._start(request.shape.per_worker, node) for node in start]
                    for one in workers:
                        one.phase, one.used = Phase.BUSY, next(self._count)
                    self._future_of(request).set_result(workers)
                case Grant(request, node):
                    self._grants[request.id] = (node, request.need)
                    self._future_of(request).set_result(request.id)
                case Close(name):
                    self.close(self.workers[name])
                case allocation.Wait(too_large):
                    self._refuse(too_large)
                    return

    def _future_of(self, request: Request) -> asyncio.Future[Any]:
        return next(granted for waiting, granted, _ in self._queue if waiting.id == request.id)

    def _refuse(self, too_large: Sequence[Request]) -> None:
        """Refuse requests that do not fit: at once on a machine, which does not grow, and later on a cluster, which may."""
        for request, granted, since in self._queue:
            if request in too_large and (self._fixed is not None or time.monotonic() - since > FITS_WITHIN):
                total = self.total
                needs = ", ".join(f"{amount:g} {name} (there are {total.get(name, 0):g})" for name, amount in request.need.items())
                granted.set_exception(RuntimeError(f"{request.shape} needs {needs}"))

    def _give_back(self, workers: Sequence[Worker]) -> None:
        for one in workers:
            if one.lost is None and one.phase is Phase.BUSY:
                if self.job.reuse == "never":
                    self.close(one)
                else:
                    one.phase = Phase.IDLE
        self.serve()

    # ---- gangs

    async def _gang_of(self, workers: Sequence[Worker]) -> Gang:
        """Return the gang that exactly these workers form, connected or not; others that they belong to are disbanded."""
        old = list(dict.fromkeys(one.gang for one in workers if one.gang is not None))
        if len(old) == 1 and set(old[0].workers) == set(workers) and not old[0].broken:
            return old[0]
        await asyncio.gather(*(self._disband(gang) for gang in old))
        gang = Gang(next(self._gang_numbers), workers)
        for one in workers:
            if one.lost is not None:
                raise one.lost
            one.gang = gang
        return gang

    async def _connect(self, gang: Gang, resources: dict[str, float]) -> None:
        nodes, gpus = [w.node for w in gang.workers], [w.info.gpus if w.info else () for w in gang.workers]
        handles = tuple(w.actor for w in gang.workers)
        began = time.monotonic()
        try:
            if gang.connected:
                await asyncio.wait_for(gang.workers[0].call("disband"), DISBAND_WITHIN)
            form = gang.workers[0].call("form", handles, gang.ranks, resources, gangs.visible_gpus(nodes, gpus))
            await asyncio.wait_for(form, CONNECT_WITHIN)
        except Exception as e:
            gang.broken = True
            await self.find_lost(gang.workers)
            await self._disband(gang)
            if lost := next((one.lost for one in gang.workers if one.lost is not None), None):
                raise lost from e
            raise RuntimeError(f"the backend `{self.job.backend}` could not connect the workers: {e}") from e
        gang.connected = True
        log.info("%s connected %s in %.0f ms", gang.id, ", ".join(w.id for w in gang.workers), 1000 * (time.monotonic() - began))

    async def _disband(self, gang: Gang) -> None:
        """Take a gang apart, once. A worker that does not leave in time is killed."""
        if gang.disbanding is None:
            gang.disbanding = self.spawn(self._take_apart(gang))
        await asyncio.shield(gang.disbanding)

    async def _take_apart(self, gang: Gang) -> None:
        alive = [one for one in gang.workers if one.lost is None]
        clean = gang.connected and not gang.broken and len(alive) == len(gang.workers)
        if clean:
            try:
                await asyncio.wait_for(gang.workers[0].call("disband"), DISBAND_WITHIN)
            except Exception:
                log.exception("%s could not be disbanded", gang.id)
                clean = False
        if not clean and len(gang.workers) > 1:
            await asyncio.gather(*(self.have_leave(one) for one in alive))
        for one in gang.workers:
            if one.gang is gang:
                one.gang = None

    async def have_leave(self, worker: Worker) -> None:
        """Have a worker whose main thread is free leave its gang, which its peers notice in a collective. Kill it if it does not."""
        if worker.lost is not None:
            return
        try:
            await asyncio.wait_for(_result(worker.actor.leave.remote()), DISBAND_WITHIN)
        except Exception as e:
            self.lose(worker, WorkerLost(f"{worker.id} did not leave its gang: {describe(e)}"))

    async def _disband_and_give_back(self, gang: Gang) -> None:
        await self._disband(gang)
        self._give_back(gang.workers)

    # ---- the life of a worker

    def _start(self, resources: tuple[tuple[str, float], ...], node: str) -> Worker:
        started = Worker(next(self._numbers), resources, node, next(self._count))
        self.workers[started.id] = started
        me = ray.get_runtime_context().current_actor
        started.actor, info = worker.start(me, started.id, self.job, dict(resources), node if len(self.nodes) > 1 else None)
        self.spawn(self._await_start(started, info))
        self.spawn(self._make_room(started))
        return started

    async def _await_start(self, worker: Worker, info: Any) -> None:
        try:
            worker.info = await info
        except RayError as e:
            cause = getattr(e, "cause", None)
            self.lose(worker, CannotStart(describe(e)) if cause is not None else WorkerLost(describe(e)))
            return
        worker.node = worker.info.node
        if not worker.up.done():
            worker.up.set_result(worker.info)

    async def _make_room(self, starting: Worker) -> None:
        """Close idle workers of a node, one after another, while a worker that a trial waits for is not up."""
        while not starting.up.done():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(starting.up), PLACED_WITHIN)
                return
            names = {name for name, _ in starting.resources}
            idle = [
                w for w in self.workers.values() if w.phase is Phase.IDLE and w.node == starting.node and names & dict(w.resources).keys()
            ]
            if starting.phase is Phase.BUSY and idle:
                log.warning("%s is not up after %g s; an idle worker makes room", starting.id, PLACED_WITHIN)
                self.close(min(idle, key=lambda w: w.used))

    async def _close(self, worker: Worker, kill: bool) -> None:
        if worker.gang is not None and not kill:
            await self._disband(worker.gang)
        self.lose(worker, WorkerLost("closed"))

    def lose(self, worker: Worker, reason: Exception) -> None:
        """Remove a worker whose process has died, or kill it."""
        if worker.lost is not None:
            return
        worker.lost, worker.phase = reason, Phase.CLOSING
        worker.kill()
        self.workers.pop(worker.id, None)
        if worker.gang is not None:
            worker.gang.broken = True
        if not worker.up.done():
            worker.up.set_exception(reason)
            worker.up.exception()  # Nobody may wait for it.
        for answer in worker.answers.values():
            if not answer.done():
                answer.set_exception(reason)
        worker.gone.set()
        self.serve()

    async def until_lost(self, worker: Worker, reference: Any) -> Any:
        """Return the result of a call on a worker's main thread.

        Raises:
            WorkerLost: The worker was lost meanwhile.
            RayError: The call failed.
        """
        result, gone = asyncio.ensure_future(_result(reference)), asyncio.ensure_future(worker.gone.wait())
        try:
            await asyncio.wait([result, gone], return_when=asyncio.FIRST_COMPLETED)
            if not result.done() and worker.lost is not None:
                raise worker.lost
            return await result
        finally:
            gone.cancel()
            result.add_done_callback(lambda late: late.cancelled() or late.exception())

    async def find_lost(self, workers: Sequence[Worker]) -> None:
        """Notice which of these workers, whose main threads are free, have died."""

        async def look(one: Worker) -> None:
            try:
                await asyncio.wait_for(_result(one.actor.execute.remote(os.getpid)), DISBAND_WITHIN)
            except Exception as e:
                self.lose(one, WorkerLost(describe(e)))

        await asyncio.gather(*(look(one) for one in workers if one.lost is None))

    async def watch(self) -> None:
        """Look for workers that have died, for as long as the pool lives."""
        last = time.monotonic()
        while True:
            await asyncio.sleep(LOOK_EVERY)
            now = time.monotonic()
            if now - last > HEARTBEAT_EVERY:  # This process itself was stopped, and could not hear heartbeats.
                for one in self.workers.values():
                    one.heartbeat = one.heartbeat and now
            last = now
            if self._fixed is None:
                self.update_nodes()
                self.serve()
            for one in list(self.workers.values()):
                if (reason := self._reason_of_death(one, now)) is not None:
                    log.warning("%s is lost: %s", one.id, reason)
                    self.lose(one, reason)

    def _reason_of_death(self, one: Worker, now: float) -> WorkerLost | None:
        if one.info is not None and one.node not in self.nodes:
            return WorkerLost("its node was lost", blameless=True)
        if one.info is not None and one.node == self._here and not is_alive(one.info.pid):
            return WorkerLost("the process was killed (it left no trace, as by SIGKILL)")
        if one.heartbeat is not None and now - one.heartbeat > self.job.heartbeat_timeout:
            return WorkerLost(f"no heartbeat for {now - one.heartbeat:.0f} s (limits.heartbeat_timeout)", blameless=True)
        return None

    def update_nodes(self) -> None:
        """Read which nodes the cluster has now."""
        alive = {node["NodeID"]: node["Resources"] for node in ray.nodes() if node["Alive"]}
        if self._fixed is not None:
            self.nodes = {next(iter(alive)): self._fixed}
        else:
            self.nodes = {
                name: {resource: amount for resource, amount in have.items() if not resource.startswith("node:")}
                for name, have in alive.items()
            }

    # ---- what a worker calls

    async def listen(self, worker_id: str) -> tuple[int, str, tuple[Any, ...]] | None:
        """Wait for a call to a worker; None after a while without one. Each call of this method is a heartbeat."""
        if (one := self.workers.get(worker_id)) is None:
            await asyncio.sleep(HEARTBEAT_EVERY)
            return None
        one.heartbeat = time.monotonic()
        with contextlib.suppress(TimeoutError):
            return await asyncio.wait_for(one.calls.get(), HEARTBEAT_EVERY)
        return None

    def answered(self, worker_id: str, number: int, error: str | None) -> None:
        """A worker has carried out a call."""
        one = self.workers.get(worker_id)
        if one is not None and (answer := one.answers.get(number)) is not None and not answer.done():
            if error is None:
                answer.set_result(None)
            else:
                answer.set_exception(RuntimeError(error))


async def _result(reference: Any) -> Any:
    return await reference


def _sum(amounts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for amount in amounts for name in amount)
    return {name: sum(amount.get(name, 0.0) for amount in amounts) for name in names}


def describe(error: BaseException | None) -> str:
    """Return an error in one line: its cause where Ray wrapped one, without Ray's colors and addresses."""
    if isinstance(error, (WorkerLost, CannotStart)):
        return str(error)
    cause = getattr(error, "cause", None) or error
    if (died := exit_causes.exit_cause(error)) is not None:
        return died
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    return f"{type(cause).__name__}: {lines[-1] if lines else ''}".rstrip(": ")
