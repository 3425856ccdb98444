"""Reserve workers for trials, and start and close workers.

`allocation.decide` decides which workers to reserve, start and close. This module carries the
decisions out, on the event loop of the pool's actor.
"""

import asyncio
import contextlib
import itertools
import logging
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace

from sweeps.core import clock
from sweeps.core.resources import Shape
from sweeps.execution.background import Background
from sweeps.execution.messages import Job

from . import allocation
from .allocation import CloseWorker, KeepWaiting
from .autoscaling import NodeRequests, select_within_limit
from .cluster_nodes import ClusterNodes, sum_of
from .cluster_state import Cluster, Phase
from .gang_connections import GangConnections
from .placement import Grant, Place, Request
from .pool_worker import CannotStart, Gang, PoolWorker, WorkerLost
from .worker_processes import WorkerProcesses

log = logging.getLogger(__name__)

# Interval between two searches for dead workers, in seconds.
WATCH_INTERVAL = 0.5
# If a worker has not started after this many seconds, an idle worker of its node is closed to free
# resources. Ray may be unable to place a worker although its node has enough resources, for example
# if the free fractions of a GPU are on two GPUs.
PLACED_WITHIN = 60.0
# A trial that does not fit on the cluster waits this many seconds for new nodes, then fails.
FITS_WITHIN = 600.0
# After a worker could not start, no worker starts for the growth of an elastic gang for this many
# seconds.
START_AGAIN_AFTER = 60.0
# On a cluster that may grow, a worker is closed after this many idle seconds.
IDLE_WITHIN = 60.0


class WorkerPool:
    """All workers of a sweep, and the queue of trials and fits that wait for workers or resources.

    Args:
        job: Settings that all trials of the sweep share.
        nodes: The nodes of the cluster.
        parked: Number of CPUs that idle workers may hold in addition to the machine's CPUs. None if
            Ray was not started for the sweep; see `cluster_state.Cluster`.
        spawn: Function that runs a coroutine in the background; see `Background`.

    Attributes:
        nodes: The nodes of the cluster.
        processes: The workers that have not ended.
        gangs: The gangs of the workers.
    """

    def __init__(self, job: Job, nodes: ClusterNodes, parked: int | None, spawn: Background):
        self.nodes = nodes
        self.processes = WorkerProcesses(job, nodes, spawn, self.serve)
        self.gangs = GangConnections(self.processes, spawn)
        self._parked = parked
        self._spawn = spawn
        self._queue: list[Request] = []
        # The following three have the ids of requests as keys.
        # The workers that a request gets; [] for a fit.
        self._answers: dict[int, asyncio.Future[list[PoolWorker]]] = {}
        # The node and the resources of each running fit
        self._grants: dict[int, tuple[str, Mapping[str, float]]] = {}
        # Since when a trial would not fit even on the empty cluster, by the monotonic clock
        self._too_large_since: dict[int, float] = {}
        self._count = itertools.count(1)
        self._node_requests = NodeRequests()

    @property
    def job(self) -> Job:
        """Settings that all trials of the sweep share."""
        return self.processes.job

    # ---- methods for trials

    def warm(self, shapes: Sequence[Shape]) -> None:
        """Start as many workers as the pool needs to run one trial of each shape at the same time.

        Stop at the first shape for which the free resources are not enough.
        """
        workers: list[PoolWorker] = []
        for shape in shapes:
            request = Request(next(self._count), shape.total, shape)
            action = allocation.decide(self.cluster(), [request])
            if not isinstance(action, Place):
                break
            workers += self._take(action)  # They are busy, so the next shape gets other workers.
        for worker in workers:
            worker.phase = Phase.IDLE

    async def reserve(
        self, shape: Shape, key: str | None = None, is_retry: bool = False
    ) -> list[PoolWorker]:
        """Reserve the workers of a trial, and return them. Some may still be starting.

        If the cluster lacks resources now, the trial waits in the queue.

        Args:
            shape: Shape of the trial.
            key: Key of the trial's prepared data; workers that cache this data are preferred. With
                None, no worker is preferred.
            is_retry: True if an earlier attempt of the trial has failed. Such trials are served
                first.

        Raises:
            CannotStart: The shape does not fit even on the empty cluster. On a cluster that may get
                new nodes, the error is raised only after `FITS_WITHIN` seconds.
        """
        return await self._wait_for(
            Request(next(self._count), shape.total, shape, key=key, is_retry=is_retry)
        )

    async def form(self, workers: Sequence[PoolWorker], shape: Shape) -> Gang:
        """Form a gang of reserved workers; see `GangConnections.form`.

        If this fails, the workers are released.
        """
        try:
            return await self.gangs.form(workers, shape)
        except BaseException:
            for worker in workers:
                if worker.gang is not None and not worker.gang.connected:
                    worker.gang.broken = True
            self.give_back(workers)
            raise

    def grow(
        self, shape: Shape, members: Sequence[PoolWorker], trials_pending: bool, reserve: bool
    ) -> list[PoolWorker]:
        """Reserve additional workers for an elastic gang, if resources are free.

        If not enough workers are idle, start workers and reserve none. The gang can then grow at a
        later step, when all have started.

        Args:
            shape: Shape of the trial.
            members: Workers of the gang.
            trials_pending: True if the sweep will start more trials, or if a started trial has not
                asked for workers yet. The gang then does not grow.
            reserve: True to reserve workers, rather than only start them for a later call.

        Returns:
            The reserved workers; [] if the gang cannot grow now.
        """
        nodes = {worker.node for worker in members}
        growth = allocation.growth(
            self.cluster(),
            self._queue,
            shape,
            size=len(members),
            nodes=nodes,
            trials_pending=trials_pending,
        )
        if growth is None:
            return []
        if clock.monotonic() - self.processes.failed_start <= START_AGAIN_AFTER:
            growth = replace(growth, start_on=())
        joining = self._take(growth)
        if reserve and all(worker.started.done() for worker in joining):
            return joining
        for worker in joining:
            worker.phase = Phase.IDLE
        return []

    @contextlib.asynccontextmanager
    async def resources(self, need: Mapping[str, float], tasks: bool) -> AsyncIterator[None]:
        """Wait for resources, and hold them during the block.

        Args:
            need: Name and amount of each resource.
            tasks: True if the block runs Ray tasks. Such a task cannot use a CPU that an idle
                worker holds; see `Request`.
        """
        request = Request(next(self._count), need, tasks=tasks)
        await self._wait_for(request)
        try:
            yield
        finally:
            self._grants.pop(request.id, None)
            self.serve()

    def give_back(self, workers: Sequence[PoolWorker], closes: bool = False) -> None:
        """Release reserved workers, or close them if `closes` is True.

        Workers of a broken gang (see `Gang`) leave the gang first. Others stay connected.
        """
        broken = {worker.gang for worker in workers if worker.gang and worker.gang.broken}
        if broken:
            self._spawn(self._leave(broken, workers, closes))
        else:
            self._free(workers, closes)

    async def _leave(self, broken: set[Gang], workers: Sequence[PoolWorker], closes: bool) -> None:
        """Disband broken gangs, and then free workers."""
        await asyncio.gather(*(self.gangs.disband(gang) for gang in broken))
        self._free(workers, closes)

    def _free(self, workers: Sequence[PoolWorker], closes: bool) -> None:
        """Make busy workers idle, or close them."""
        for worker in workers:
            if worker.lost is not None or worker.phase is not Phase.BUSY:
                continue
            if closes:
                self.close(worker)
            else:
                worker.phase = Phase.IDLE
                worker.idle_since = clock.monotonic()
        self.serve()

    def close(self, worker: PoolWorker) -> None:
        """Close a worker in the background: disband its gang, then kill its process."""
        worker.phase = Phase.CLOSING
        if worker.gang is not None:
            worker.gang.broken = True
        self._spawn(self._close(worker))

    async def _close(self, worker: PoolWorker) -> None:
        if worker.gang is not None:
            await self.gangs.disband(worker.gang)
        self.processes.lose(worker, WorkerLost("closed"))

    async def close_all(self, timeout: float) -> None:
        """Close all workers. A worker that takes longer than `timeout` seconds is killed."""
        workers = list(self.processes.workers.values())
        for worker in workers:
            self.close(worker)
        if workers:
            await asyncio.wait([worker.gone for worker in workers], timeout=timeout)
        for worker in workers:
            worker.kill()
        await self._request_nodes(clock.monotonic())  # No request waits, so none is made.

    def held_resources(self) -> tuple[dict[str, float], dict[str, float]]:
        """Return the resources that trials and fits hold, and those of idle and closing workers."""
        busy = [need for _, need in self._grants.values()]
        idle: list[Mapping[str, float]] = []
        for worker in self.processes.workers.values():
            amounts = busy if worker.phase is Phase.BUSY else idle
            amounts.append(dict(worker.resources))
        return sum_of(busy), sum_of(idle)

    # ---- the queue

    async def _wait_for(self, request: Request) -> list[PoolWorker]:
        """Wait in the queue until a request is granted, and return the reserved workers."""
        answer: asyncio.Future[list[PoolWorker]] = asyncio.get_running_loop().create_future()
        self._answers[request.id] = answer
        self._queue.insert(allocation.queue_position(self._queue, request), request)
        self.serve()
        try:
            return await answer
        except asyncio.CancelledError:
            # The request may have been granted just before the cancellation.
            self._grants.pop(request.id, None)
            self._free([] if answer.cancelled() else answer.result(), closes=False)
            raise
        finally:
            del self._answers[request.id]

    def cluster(self) -> Cluster:
        """Return the state of the cluster."""
        return Cluster(
            self.nodes.resources,
            [worker.state() for worker in self.processes.workers.values()],
            list(self._grants.values()),
            parked=self._parked,
            limit=self.nodes.worker_limit,
        )

    def serve(self) -> None:
        """Serve the queue: carry out the actions of `allocation.decide` until one is to wait."""
        while True:
            self._queue = self.waiting()
            match allocation.decide(self.cluster(), self._queue):
                case Place(request) as place:
                    self._answer(request, self._take(place))
                case Grant(request, node):
                    self._grants[request.id] = (node, request.need)
                    self._answer(request, [])
                case CloseWorker(name):
                    self.close(self.processes.workers[name])
                case KeepWaiting(too_large):
                    self._refuse(too_large)
                    return

    def waiting(self) -> list[Request]:
        """Return the requests in the queue whose callers have not been cancelled."""
        return [request for request in self._queue if not self._answers[request.id].done()]

    def _take(self, place: Place) -> list[PoolWorker]:
        """Return the workers of a gang, which are busy from now on. Start those that are new."""
        assert place.request.shape is not None
        workers = [self.processes.workers[name] for name in place.workers]
        for node in place.start_on:
            started = self.processes.start(place.request.shape.per_worker, node)
            self._spawn(self._make_room(started))
            workers.append(started)
        for worker in workers:
            worker.phase = Phase.BUSY
            worker.used = next(self._count)
        return workers

    def _answer(self, request: Request, workers: list[PoolWorker]) -> None:
        """Remove a served request from the queue, and let its caller continue."""
        self._queue = allocation.queue_after(self._queue, request)
        self._answers[request.id].set_result(workers)

    def _refuse(self, too_large: Sequence[Request]) -> None:
        """Raise `CannotStart` in waiting callers with requests too large for the empty cluster.

        On a single machine, do this immediately. A cluster may get new nodes, so there the requests
        first wait `FITS_WITHIN` seconds.
        """
        now = clock.monotonic()
        trials = [(request, request.shape) for request in too_large if request.shape is not None]
        since = self._too_large_since
        self._too_large_since = {request.id: since.get(request.id, now) for request, _ in trials}
        for request, shape in trials:
            text = f"scaling: {self.nodes.missing_text(shape)}"
            if not self.nodes.are_fixed:
                if now - self._too_large_since[request.id] <= FITS_WITHIN:
                    continue
                text += f", and no such node has joined within {FITS_WITHIN / 60:g} minutes"
            self._queue.remove(request)
            self._answers[request.id].set_exception(CannotStart(text))

    def missing_nodes_text(self, shape: Shape) -> str | None:
        """Return a text that says for which nodes trials of this shape wait, and since when.

        Return None if no trial of this shape is too large for the empty cluster.
        """
        for request in self._queue:
            if request.shape == shape and request.id in self._too_large_since:
                ago = clock.monotonic() - self._too_large_since[request.id]
                when = time.strftime("%H:%M:%S", time.localtime(clock.time() - ago))
                return f"waiting since {when} for nodes: {self.nodes.missing_text(shape)}"
        return None

    # ---- background tasks

    async def _make_room(self, starting: PoolWorker) -> None:
        """While a trial waits for a worker that has not started, close idle workers on its node.

        One worker is closed every `PLACED_WITHIN` seconds.
        """
        while True:
            await asyncio.wait([starting.started], timeout=PLACED_WITHIN)
            if starting.started.done():
                return
            unused = self.processes.least_used_beside(starting)
            if starting.phase is Phase.BUSY and unused is not None:
                why = "%s did not start within %g s, so an idle worker is closed to free resources"
                log.warning(why, starting.id, PLACED_WITHIN)
                self.close(unused)

    async def watch(self) -> None:
        """Check every `WATCH_INTERVAL` seconds which workers died and which nodes joined or left.

        This method never returns.
        """
        while True:
            await asyncio.sleep(WATCH_INTERVAL)
            now = clock.monotonic()
            if not self.nodes.are_fixed:
                await self.nodes.refresh()
                self.serve()
                await self._request_nodes(now)
                self._close_idle(now)
            self.processes.remove_dead(now)

    async def _request_nodes(self, now: float) -> None:
        """Ask the cluster's autoscaler, if any, for nodes that can serve the waiting requests."""
        busy, _ = self.held_resources()
        unused = {name: amount - busy.get(name, 0.0) for name, amount in self.nodes.limit.items()}
        wanted = select_within_limit(self.waiting(), unused)
        try:
            await asyncio.to_thread(self._node_requests.update, wanted, now)
        except Exception:  # Ray raises exceptions of many classes here.
            log.exception("the autoscaler could not be asked for nodes")

    def _close_idle(self, now: float) -> None:
        """If the cluster has an autoscaler, close workers after `IDLE_WITHIN` idle seconds.

        The autoscaler can then remove nodes.
        """
        if self._node_requests.may_grow:
            for worker in list(self.processes.workers.values()):
                if worker.phase is Phase.IDLE and now - worker.idle_since > IDLE_WITHIN:
                    self.close(worker)
