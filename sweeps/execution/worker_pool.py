"""Manage the workers of a sweep: start, reserve and close them, form gangs, and notice deaths.

Workers are reserved for trials. `allocation.decide` decides which workers to reserve, start and
close. This module carries the decisions out, on the event loop of the pool's actor.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import math
import os
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, RayError

from sweeps.core import clock, exit_causes
from sweeps.core.processes import is_alive
from sweeps.core.resources import Shape, missing_resources, subtract
from sweeps.execution import allocation, gangs, worker
from sweeps.execution.allocation import Close, Cluster, Grant, Phase, Place, Request
from sweeps.execution.autoscaling import NodeRequests, select_within_limit
from sweeps.execution.background import Background
from sweeps.execution.messages import Job
from sweeps.execution.pool_worker import CannotStart, Gang, Worker, WorkerLost, describe

log = logging.getLogger(__name__)

# A worker's request for calls is its heartbeat. A request is answered after this many seconds at
# the latest.
HEARTBEAT_EVERY = 2.0
# Interval between two searches for dead workers, in seconds.
LOOK_EVERY = 0.5
# Time limits for connecting a gang, and for disbanding a gang or leaving it, in seconds. Processes
# that take longer are killed.
CONNECT_WITHIN = 60.0
DISBAND_WITHIN = 10.0
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
        resources: Resources that the sweep may use on the single machine on which it has started
            Ray. None on a running cluster: the sweep then uses the resources of the cluster's
            nodes.
        parked: Number of CPUs that idle workers may hold in addition to the machine's CPUs. None if
            Ray was not started for the sweep; see `allocation.Cluster`.
        spawn: Function that runs a coroutine in the background; see `Background`.
        limit: Amounts of some resources that the sweep may hold on all nodes together; None for no
            limit.
        reserves: Whether workers leave CPUs to Ray Data, on a running cluster; see `stream_cpus`.

    Attributes:
        workers: The workers that have not ended, by id.
        nodes: Resources of each living node, by node id.
        node_names: Host and address of each living node, by node id.
        misfits: Shapes of waiting trials that would not fit even on the empty cluster. Maps each
            shape to the time at which this was first noticed, by the monotonic clock.
    """

    def __init__(
        self,
        job: Job,
        resources: Mapping[str, float] | None,
        parked: int | None,
        spawn: Background,
        limit: Mapping[str, float] | None = None,
        reserves: bool = False,
    ):
        self._reserves = reserves
        self.job, self._fixed, self._parked, self.spawn, self._limit = (
            job,
            resources,
            parked,
            spawn,
            limit,
        )
        self.workers: dict[str, Worker] = {}
        self.nodes: dict[str, Mapping[str, float]] = {}
        self.node_names: dict[str, str] = {}
        self.misfits: dict[Shape, float] = {}
        self._queue: list[
            tuple[Request, asyncio.Future[Any], float]
        ] = []  # With the time since when each request waits.
        self._grants: dict[int, tuple[str, Mapping[str, float]]] = {}
        self._count = itertools.count(1)
        self._numbers = itertools.count(1)
        self._gang_numbers = itertools.count(1)
        self._node_requests = NodeRequests()
        self._here = ray.get_runtime_context().get_node_id()
        self._failed_start = (
            -math.inf
        )  # Time of the latest failure of a worker to start, by the monotonic clock.
        self.update_nodes(ray.nodes())

    # ---- methods for trials

    def warm(self, shapes: Sequence[Shape]) -> None:
        """Start as many workers as the pool needs to run one trial of each shape at the same time.

        Stop at the first shape for which the free resources are not enough.
        """
        taken: set[str] = set()
        for number, shape in enumerate(shapes, 1):
            cluster = self._cluster()
            states = [
                replace(state, phase=Phase.BUSY) if state.id in taken else state
                for state in cluster.workers
            ]
            request = Request(-number, shape.total, shape)
            action = allocation.decide(replace(cluster, workers=states), [request])
            if not isinstance(action, Place):
                return
            new = [self._start(shape.per_worker, node) for node in action.start]
            for started in new:
                started.phase = Phase.IDLE
            taken |= {*action.workers, *(started.id for started in new)}

    async def reserve(
        self, shape: Shape, key: str | None = None, is_retry: bool = False
    ) -> list[Worker]:
        """Reserve the workers of a trial, and return them.

        Some of the workers may still be starting.

        If the cluster lacks resources now, the trial waits in the queue.

        Args:
            shape: Shape of the trial.
            key: Key of the trial's prepared data; workers that cache this data are preferred. With
                None, no worker is preferred.
            is_retry: Whether an earlier attempt of the trial has failed. Such trials are served
                first.

        Raises:
            CannotStart: The shape does not fit even on the empty cluster. On a cluster that may get
                new nodes, the error is raised only after `FITS_WITHIN` seconds.
        """
        workers: list[Worker] = await self._wait_for(
            Request(next(self._count), shape.total, shape, key, is_retry=is_retry)
        )
        return workers

    async def form(self, workers: Sequence[Worker], shape: Shape) -> Gang:
        """Form a gang of reserved workers: wait until all have started, and connect them.

        They are connected with the backend, if necessary. If this fails, the workers are released.

        Raises:
            CannotStart: A new worker raised an exception, or the backend could not connect the
                workers.
            WorkerLost: A worker died.
        """
        try:
            await asyncio.gather(*(asyncio.shield(worker.up) for worker in workers))
            gang = await self._gang_of(workers)
            if len(workers) > 1 and (
                not gang.connected or self.job.backend in gangs.RENEWED_FOR_EACH_TRIAL
            ):
                await self._connect(gang, dict(shape.per_worker))
            return gang
        except BaseException:
            for gang in {
                one.gang for one in workers if one.gang is not None and not one.gang.connected
            }:
                gang.broken = True
            self._give_back(workers)
            raise

    def largest(self, shape: Shape) -> int:
        """Return the largest number of workers that the gang of an elastic trial can ever have.

        On a single machine, the machine's resources limit this number. On a cluster, which may get
        new nodes, only the shape limits it.
        """
        return (
            shape.sizes[-1]
            if self._fixed is None
            else allocation.largest_gang(shape, self._cluster())
        )

    def grow(
        self, shape: Shape, members: Sequence[Worker], trials_pending: bool, reserve: bool
    ) -> list[Worker]:
        """Reserve additional workers for an elastic gang, if resources are free.

        If not enough workers are idle, start workers and reserve none. The gang can then grow at a
        later step, when all have started.

        Args:
            shape: Shape of the trial.
            members: Workers of the gang.
            trials_pending: True if the sweep will start more trials, or if a started trial has not
                asked for workers yet. The gang then does not grow.
            reserve: Whether to reserve workers. If False, workers are only started, for a later
                call.

        Returns:
            The reserved workers. [] if the gang cannot grow now, because a trial may need the
            resources, none are free, or additional workers are still starting.
        """
        nodes = {worker.node for worker in members}
        wanted = allocation.growth(
            self._cluster(),
            [request for request, _, _ in self._queue],
            shape,
            len(members),
            nodes,
            trials_pending,
        )
        if wanted is None:
            return []
        joining = [self.workers[name] for name in wanted.workers]
        if clock.monotonic() - self._failed_start > START_AGAIN_AFTER:
            started = [self._start(shape.per_worker, node) for node in wanted.start]
            for one in started:
                one.phase = Phase.IDLE
            joining += started
        if not reserve or not all(one.up.done() for one in joining):
            return []
        for one in joining:
            one.phase, one.used = Phase.BUSY, next(self._count)
        return joining

    def give_back(self, workers: Sequence[Worker]) -> None:
        """Release reserved workers that have run no trial, or whose gang has ended."""
        for gang in {one.gang for one in workers if one.gang is not None and one.gang.broken}:
            self.spawn(self._disband(gang))
        self._give_back(workers)

    @contextlib.asynccontextmanager
    async def resources(self, need: Mapping[str, float], tasks: bool = True) -> AsyncIterator[None]:
        """Wait for resources, and hold them during the block.

        Args:
            need: Name and amount of each resource.
            tasks: Whether the block runs Ray tasks. Such a task cannot use a CPU that an idle
                worker holds; see `Request`.
        """
        ticket = await self._wait_for(Request(next(self._count), need, tasks=tasks))
        try:
            yield
        finally:
            self._grants.pop(ticket, None)
            self.serve()

    @property
    def has_queue(self) -> bool:
        """True if a trial or a fit is waiting in the queue."""
        return any(not granted.done() for _, granted, _ in self._queue)

    def release(self, gang: Gang) -> None:
        """Release the workers of a gang after an attempt.

        If the gang is broken (see `Gang`), disband it; otherwise the workers stay connected.

        Args:
            gang: Gang whose workers ran the attempt.
        """
        if gang.broken and len(gang.workers) > 1:
            self.spawn(self._disband_and_give_back(gang))
        else:
            self._give_back(gang.workers)

    def close(self, worker: Worker) -> None:
        """Close a worker in the background: disband its gang, then kill its process.

        This frees its resources.
        """
        worker.phase = Phase.CLOSING
        if worker.gang is not None:
            worker.gang.broken = True
        self.spawn(self._close(worker))

    async def close_all(self, timeout: float) -> None:
        """Close all workers. A worker that takes longer than `timeout` seconds is killed."""
        workers = list(self.workers.values())
        for one in workers:
            self.close(one)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*(one.gone.wait() for one in workers)), timeout)
        for one in workers:
            one.kill()
        await self._request_nodes(clock.monotonic())

    def held(self) -> tuple[dict[str, float], dict[str, float]]:
        """Return the resources that are held, in two dicts.

        The first has those that trials and fits hold, and the second has those that idle and
        closing workers hold.
        """
        busy = [dict(w.resources) for w in self.workers.values() if w.phase is Phase.BUSY]
        idle = [dict(w.resources) for w in self.workers.values() if w.phase is not Phase.BUSY]
        return _sum([*busy, *(dict(amount) for _, amount in self._grants.values())]), _sum(idle)

    @property
    def total(self) -> dict[str, float]:
        """Amounts of all resources of the cluster, but at most those that the sweep may hold."""
        there = _sum([dict(node) for node in self.nodes.values()])
        return there | {
            name: min(amount, there.get(name, 0.0))
            for name, amount in (self._limit_now() or {}).items()
        }

    def _limit_now(self) -> Mapping[str, float] | None:
        """Return the amounts that workers and fits may hold together.

        The CPUs that they leave to Ray Data are not included. None means no limit.
        """
        if not self._reserves:
            return self._limit
        cpus = sum(node.get("CPU", 0.0) for node in self.nodes.values())
        return allocation.without_reserve(self._limit, cpus)

    # ---- the queue

    async def _wait_for(self, request: Request) -> Any:
        granted: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        position = allocation.queue_position([waiting for waiting, _, _ in self._queue], request)
        self._queue.insert(position, (request, granted, clock.monotonic()))
        self.serve()
        try:
            return await granted
        except asyncio.CancelledError:
            if (
                granted.done() and not granted.cancelled()
            ):  # The request was granted just before the cancellation.
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
        return Cluster(
            self.nodes,
            [w.state() for w in self.workers.values()],
            list(self._grants.values()),
            self._parked,
            self._limit_now(),
        )

    def serve(self) -> None:
        """Serve the queue: carry out the actions of `allocation.decide` until one is to wait."""
        while True:
            self._queue = [entry for entry in self._queue if not entry[1].done()]
            action = allocation.decide(self._cluster(), [request for request, _, _ in self._queue])
            match action:
                case Place(request, ids, start):
                    assert request.shape is not None
                    workers = [self.workers[name] for name in ids] + [
                        self._start(request.shape.per_worker, node) for node in start
                    ]
                    for one in workers:
                        one.phase, one.used = Phase.BUSY, next(self._count)
                    self._answer(request, workers)
                case Grant(request, node):
                    self._grants[request.id] = (node, request.need)
                    self._answer(request, request.id)
                case Close(name):
                    self.close(self.workers[name])
                case allocation.Wait(too_large):
                    self._refuse(too_large)
                    return

    def _answer(self, request: Request, result: Any) -> None:
        rest = {
            other.id: other
            for other in allocation.served([waiting for waiting, _, _ in self._queue], request)
        }
        next(granted for waiting, granted, _ in self._queue if waiting.id == request.id).set_result(
            result
        )
        self._queue = [
            (rest[waiting.id], granted, since)
            for waiting, granted, since in self._queue
            if waiting.id in rest
        ]

    def _refuse(self, too_large: Sequence[Request]) -> None:
        """Raise `CannotStart` in waiting callers with requests too large for the empty cluster.

        On a single machine, do this immediately. A cluster may get new nodes, so there the requests
        first wait `FITS_WITHIN` seconds.
        """
        now = clock.monotonic()
        self.misfits = {
            shape: self.misfits.get(shape, now)
            for request in too_large
            if (shape := request.shape) is not None
        }
        for request, granted, since in self._queue:
            shape = request.shape
            if shape in self.misfits and (
                self._fixed is not None or now - max(since, self.misfits[shape]) > FITS_WITHIN
            ):
                needs = missing_resources(shape, self.total, list(self.nodes.values()))
                waited = (
                    ""
                    if self._fixed is not None
                    else f", and no such node has joined within {FITS_WITHIN / 60:g} minutes"
                )
                granted.set_exception(CannotStart(f"scaling: {shape} needs {needs}{waited}"))

    def what_is_missing(self, shape: Shape) -> str | None:
        """Return None if trials of this shape fit on the empty cluster.

        Else a text that says for which nodes they wait, and since when.
        """
        if (since := self.misfits.get(shape)) is None:
            return None
        when = time.strftime("%H:%M:%S", time.localtime(clock.time() - clock.monotonic() + since))
        return (
            f"waiting since {when} for nodes: {shape} needs "
            f"{missing_resources(shape, self.total, list(self.nodes.values()))}"
        )

    def _give_back(self, workers: Sequence[Worker]) -> None:
        for one in workers:
            if one.lost is None and one.phase is Phase.BUSY:
                if self.job.reuse == "never":
                    self.close(one)
                else:
                    one.phase, one.idle_since = Phase.IDLE, clock.monotonic()
        self.serve()

    # ---- gangs

    async def _gang_of(self, workers: Sequence[Worker]) -> Gang:
        """Return the gang of exactly these workers.

        If there is none, disband the other gangs of the workers and create a gang.
        """
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
        nodes, gpus = (
            [w.node for w in gang.workers],
            [w.place.gpus for w in gang.workers],
        )
        handles = tuple(w.actor for w in gang.workers)
        began = clock.monotonic()
        try:
            if gang.connected:
                await asyncio.wait_for(gang.workers[0].call("disband"), DISBAND_WITHIN)
            form = gang.workers[0].call(
                "form", handles, gang.ranks, resources, gangs.visible_gpus(nodes, gpus)
            )
            await asyncio.wait_for(form, CONNECT_WITHIN)
        except Exception as e:
            gang.broken = True
            await self.find_lost(gang.workers)
            await self._disband(gang)
            if lost := next((one.lost for one in gang.workers if one.lost is not None), None):
                raise lost from e
            raise CannotStart(
                f"trainer.backend: `{self.job.backend}` could not connect the trial's workers: "
                f"{describe(e)}"
            ) from e
        gang.connected = True
        log.info(
            "%s connected %s in %.0f ms",
            gang.id,
            ", ".join(w.id for w in gang.workers),
            1000 * (clock.monotonic() - began),
        )

    async def _disband(self, gang: Gang) -> None:
        """Disband a gang and wait until this is done.

        If an earlier call is disbanding the gang, only wait.

        Workers that do not leave the gang within `DISBAND_WITHIN` seconds are killed.
        """
        if gang.disbanding is None:
            gang.disbanding = self.spawn(self._leave_gang(gang))
        await asyncio.shield(gang.disbanding)

    async def _leave_gang(self, gang: Gang) -> None:
        alive = [one for one in gang.workers if one.lost is None]
        clean = gang.connected and not gang.broken and len(alive) == len(gang.workers)
        if clean:
            try:
                await asyncio.wait_for(gang.workers[0].call("disband"), DISBAND_WITHIN)
            except Exception:
                log.exception("%s could not be disbanded", gang.id)
                clean = False
        if not clean and len(gang.workers) > 1:
            await asyncio.gather(*(self.ask_to_leave(one) for one in alive))
        for one in gang.workers:
            if one.gang is gang:
                one.gang = None

    async def ask_to_leave(self, worker: Worker) -> None:
        """Make a worker leave its gang.

        Kill the worker if it does not leave within `DISBAND_WITHIN` seconds.

        If a peer waits for this worker in a collective operation, such as an all-reduce, the
        operation raises an exception in the peer. The worker must not be running a loop, because
        the call needs the main thread of its process.
        """
        if worker.lost is not None:
            return
        try:
            await asyncio.wait_for(_result(worker.actor.leave.remote()), DISBAND_WITHIN)
        except Exception as e:
            self.lose(worker, WorkerLost(f"{worker.id} did not leave its gang: {describe(e)}"))

    async def _disband_and_give_back(self, gang: Gang) -> None:
        await self._disband(gang)
        self._give_back(gang.workers)

    # ---- start and end of a worker

    def _start(self, resources: tuple[tuple[str, float], ...], node: str) -> Worker:
        started = Worker(next(self._numbers), resources, node, next(self._count))
        self.workers[started.id] = started
        me = ray.get_runtime_context().current_actor
        started.actor, info = worker.start(
            me, started.id, self.job, dict(resources), node if len(self.nodes) > 1 else None
        )
        self.spawn(self._await_start(started, info))
        self.spawn(self._make_room(started))
        return started

    async def _await_start(self, worker: Worker, info: Any) -> None:
        try:
            worker.info = await info
        except RayError as e:
            cause = getattr(e, "cause", None)
            self._failed_start = clock.monotonic()
            self.lose(
                worker, CannotStart(describe(e)) if cause is not None else WorkerLost(describe(e))
            )
            return
        worker.node = worker.info.node
        if not worker.up.done():
            worker.up.set_result(worker.info)

    async def _make_room(self, starting: Worker) -> None:
        """While a trial waits for a worker that has not started, close idle workers on its node.

        One worker is closed every `PLACED_WITHIN` seconds.
        """
        while not starting.up.done():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(starting.up), PLACED_WITHIN)
                return
            names = {name for name, _ in starting.resources}
            idle = [
                w
                for w in self.workers.values()
                if w.phase is Phase.IDLE
                and w.node == starting.node
                and names & dict(w.resources).keys()
            ]
            if starting.phase is Phase.BUSY and idle:
                log.warning(
                    "%s did not start within %g s, so an idle worker is closed to free its "
                    "resources",
                    starting.id,
                    PLACED_WITHIN,
                )
                self.close(min(idle, key=lambda w: w.used))

    async def _close(self, worker: Worker) -> None:
        if worker.gang is not None:
            await self._disband(worker.gang)
        self.lose(worker, WorkerLost("closed"))

    async def reason_of(self, worker: Worker, error: RayError) -> WorkerLost:
        """Return a `WorkerLost` that says why a call to this worker failed with an error of Ray.

        If the connection to a worker on another node has ended, Ray does not know at first whether
        the process or its node was lost. The trial is then not to blame.
        """
        self.update_nodes(await asyncio.get_running_loop().run_in_executor(None, ray.nodes))
        why = describe(error)
        lost_node = worker.info is not None and worker.info.node not in self.nodes
        unknown = worker.node != self._here and isinstance(error, ActorUnavailableError)
        blameless = lost_node or unknown or why == exit_causes.NODE_LOST
        return WorkerLost(why, blameless)

    def lose(self, worker: Worker, reason: Exception) -> None:
        """Remove a worker from the pool, and kill its process if it is alive.

        Args:
            worker: Worker to remove.
            reason: Exception that is raised in all coroutines that wait for this worker.
        """
        if worker.lost is not None:
            return
        worker.lost, worker.phase = reason, Phase.CLOSING
        worker.kill()
        self.workers.pop(worker.id, None)
        if worker.gang is not None:
            worker.gang.broken = True
        if not worker.up.done():
            worker.up.set_exception(reason)
            # Marks the exception as retrieved. Otherwise asyncio would log it if no trial waits.
            worker.up.exception()
        for answer in worker.answers.values():
            if not answer.done():
                answer.set_exception(reason)
        worker.gone.set()
        self.serve()

    async def until_lost(self, worker: Worker, reference: Any) -> Any:
        """Wait until a call to a worker's actor has returned, and return the result of the call.

        Args:
            worker: Worker whose actor carries out the call.
            reference: Ray's object reference to the result.

        Raises:
            WorkerLost: The worker was lost before the call returned.
            RayError: The call raised an exception, or Ray could not reach the process.
        """
        result, gone = (
            asyncio.ensure_future(_result(reference)),
            asyncio.ensure_future(worker.gone.wait()),
        )
        try:
            await asyncio.wait([result, gone], return_when=asyncio.FIRST_COMPLETED)
            if not result.done() and worker.lost is not None:
                raise worker.lost
            return await result
        finally:
            gone.cancel()
            result.add_done_callback(lambda late: late.cancelled() or late.exception())

    async def find_lost(self, workers: Sequence[Worker]) -> None:
        """Remove each worker that has died, or does not answer within `DISBAND_WITHIN` seconds.

        The workers must not be running a loop, because the answer comes from the main thread of
        each process.
        """

        async def look(one: Worker) -> None:
            try:
                await asyncio.wait_for(_result(one.actor.execute.remote(os.getpid)), DISBAND_WITHIN)
            except TimeoutError:
                self.lose(
                    one,
                    WorkerLost(
                        f"{one.id} did not answer for {DISBAND_WITHIN:.0f} s while its gang was "
                        "being connected"
                    ),
                )
            except Exception as e:
                self.lose(one, WorkerLost(describe(e)))

        await asyncio.gather(*(look(one) for one in workers if one.lost is None))

    async def watch(self) -> None:
        """Check every `LOOK_EVERY` seconds which workers died and which nodes joined or left.

        This method never returns.
        """
        last = clock.monotonic()
        while True:
            await asyncio.sleep(LOOK_EVERY)
            now = clock.monotonic()
            if now - last > HEARTBEAT_EVERY:  # This process was suspended and missed heartbeats.
                for one in self.workers.values():
                    one.heartbeat = one.heartbeat and now
            last = now
            if self._fixed is None:
                self.update_nodes(await asyncio.get_running_loop().run_in_executor(None, ray.nodes))
                self.serve()
                await self._request_nodes(now)
                self._close_idle(now)
            for one in list(self.workers.values()):
                if (reason := self._reason_of_death(one, now)) is not None:
                    log.warning("%s is lost: %s", one.id, reason)
                    self.lose(one, reason)

    async def _request_nodes(self, now: float) -> None:
        """Ask the cluster's autoscaler, if any, for nodes that can serve the waiting requests."""
        waiting = [request for request, granted, _ in self._queue if not granted.done()]
        unused = None if self._limit is None else subtract(self._limit, [self.held()[0]])
        try:
            await asyncio.get_running_loop().run_in_executor(
                None, self._node_requests.update, select_within_limit(waiting, unused), now
            )
        except Exception:  # Ray raises exceptions of many classes here.
            log.exception("the autoscaler could not be asked for nodes")

    def _close_idle(self, now: float) -> None:
        """If the cluster has an autoscaler, close workers after `IDLE_WITHIN` idle seconds.

        The autoscaler can then remove nodes.
        """
        for one in list(self.workers.values()) if self._node_requests.may_grow else ():
            if one.phase is Phase.IDLE and now - one.idle_since > IDLE_WITHIN:
                self.close(one)

    def _reason_of_death(self, one: Worker, now: float) -> WorkerLost | None:
        if one.info is not None and one.node not in self.nodes:
            return WorkerLost(exit_causes.NODE_LOST, blameless=True)
        if one.info is not None and one.node == self._here and not is_alive(one.info.pid):
            return WorkerLost(exit_causes.KILLED)
        if one.heartbeat is not None and now - one.heartbeat > self.job.heartbeat_timeout:
            return WorkerLost(
                f"the worker sent no heartbeat for {now - one.heartbeat:.0f} s "
                "(limits.heartbeat_timeout)",
                blameless=True,
            )
        return None

    def update_nodes(self, found: Sequence[Mapping[str, Any]]) -> None:
        """Set `nodes` to the nodes that are alive.

        Args:
            found: The cluster's nodes as `ray.nodes` returns them, including the nodes that have
                died.
        """
        alive = {node["NodeID"]: node["Resources"] for node in found if node["Alive"]}
        self.node_names = {
            node["NodeID"]: f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})"
            for node in found
            if node["Alive"]
        }
        if self._fixed is not None:
            self.nodes = {next(iter(alive)): self._fixed}
        else:
            self.nodes = {
                name: {
                    resource: amount
                    for resource, amount in have.items()
                    if not resource.startswith("node:")
                }
                for name, have in alive.items()
            }

    # ---- methods for workers

    async def listen(self, worker_id: str) -> tuple[int, str, tuple[Any, ...]] | None:
        """Return the next call that a worker must carry out.

        A worker calls `listen` again and again, so each call is also a heartbeat.

        Args:
            worker_id: Id of the worker.

        Returns:
            Number, method and arguments of the call; None if there was no call for
            `HEARTBEAT_EVERY` seconds.
        """
        if (one := self.workers.get(worker_id)) is None:
            await asyncio.sleep(HEARTBEAT_EVERY)
            return None
        one.heartbeat = clock.monotonic()
        with contextlib.suppress(TimeoutError):
            return await asyncio.wait_for(one.calls.get(), HEARTBEAT_EVERY)
        return None

    def answered(self, worker_id: str, number: int, error: str | None) -> None:
        """Record that a worker has carried out a call.

        Args:
            worker_id: Id of the worker.
            number: Number of the call.
            error: Traceback of the exception that the method raised; None if the method returned.
        """
        one = self.workers.get(worker_id)
        if (
            one is not None
            and (answer := one.answers.get(number)) is not None
            and not answer.done()
        ):
            if error is None:
                answer.set_result(None)
            else:
                answer.set_exception(RuntimeError(error))


async def _result(reference: Any) -> Any:
    return await reference


def _sum(amounts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for amount in amounts for name in amount)
    return {name: sum(amount.get(name, 0.0) for amount in amounts) for name in names}
