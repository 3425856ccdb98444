"""The processes of the workers: start them, wait for their calls, and notice their deaths."""

import asyncio
import contextlib
import itertools
import logging
import math
from collections.abc import Awaitable, Callable
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, RayError

from sweeps.core import clock
from sweeps.core.host import exit_causes
from sweeps.core.host.processes import is_alive
from sweeps.execution.background import Background
from sweeps.execution.messages import Job, WorkerInfo
from sweeps.execution.worker import worker

from .cluster_nodes import ClusterNodes
from .cluster_state import Phase
from .pool_worker import Call, CannotStart, PoolWorker, WorkerLost, describe

log = logging.getLogger(__name__)

# A worker's request for calls is its heartbeat. A request is answered after this many seconds at
# the latest.
HEARTBEAT_EVERY = 2.0


class WorkerProcesses:
    """The workers that have not ended.

    Args:
        job: Settings that all trials of the sweep share.
        nodes: The nodes of the cluster.
        spawn: Function that runs a coroutine in the background; see `Background`.
        on_loss: Function that is called when a worker has been removed.

    Attributes:
        job: Settings that all trials of the sweep share.
        workers: The workers, by id.
        failed_start: Time of the latest failure of a worker to start, by the monotonic clock.
    """

    def __init__(
        self, job: Job, nodes: ClusterNodes, spawn: Background, on_loss: Callable[[], None]
    ):
        self.job = job
        self.workers: dict[str, PoolWorker] = {}
        self.failed_start = -math.inf
        self._nodes = nodes
        self._spawn = spawn
        self._on_loss = on_loss
        self._numbers = itertools.count(1)
        self._looked = clock.monotonic()

    def start(self, resources: tuple[tuple[str, float], ...], node: str) -> PoolWorker:
        """Start a worker on a node."""
        started = PoolWorker(next(self._numbers), resources, node)
        self.workers[started.id] = started
        me = ray.get_runtime_context().current_actor
        pinned = node if len(self._nodes.resources) > 1 else None
        started.actor, info = worker.start(
            me, started.id, self.job, resources=dict(resources), node=pinned
        )
        self._spawn(self._await_start(started, info))
        return started

    async def _await_start(self, started: PoolWorker, info: Awaitable[WorkerInfo]) -> None:
        try:
            started.info = await info
        except RayError as e:
            self.failed_start = clock.monotonic()
            raised = getattr(e, "cause", None) is not None
            self.lose(started, (CannotStart if raised else WorkerLost)(describe(e)))
            return
        started.node = started.info.node
        started.place = started.info.place
        if not started.up.done():
            started.up.set_result(started.info)

    def least_used_beside(self, starting: PoolWorker) -> PoolWorker | None:
        """Return an idle worker on the same node with one of the same resources.

        Among several workers, return the least recently used one. Return None if there is none.
        """
        names = dict(starting.resources).keys()
        idle = [
            one
            for one in self.workers.values()
            if one.phase is Phase.IDLE
            and one.node == starting.node
            and names & dict(one.resources).keys()
        ]
        return min(idle, key=lambda one: one.used, default=None)

    def lose(self, lost: PoolWorker, reason: Exception) -> None:
        """Remove a worker, and kill its process if it is alive.

        Args:
            lost: Worker to remove.
            reason: Exception that is raised in all coroutines that wait for this worker.
        """
        if lost.lost is not None:
            return
        lost.lost = reason
        lost.phase = Phase.CLOSING
        lost.kill()
        self.workers.pop(lost.id, None)
        if lost.gang is not None:
            lost.gang.broken = True
        if not lost.up.done():
            lost.up.set_exception(reason)
            # Marks the exception as retrieved. Otherwise asyncio would log it if no trial waits.
            lost.up.exception()
        for answer in lost.answers.values():
            if not answer.done():
                answer.set_exception(reason)
        lost.gone.set_result(None)
        self._on_loss()

    async def until_lost(self, called: PoolWorker, reference: Any) -> Any:
        """Wait until a call to a worker's actor has returned, and return the result of the call.

        Args:
            called: Worker whose actor carries out the call.
            reference: Ray's object reference to the result.

        Raises:
            WorkerLost: The worker was lost before the call returned.
            RayError: The call raised an exception, or Ray could not reach the process.
        """
        result = asyncio.ensure_future(reference)
        # Marks an exception as retrieved that comes after the worker was lost.
        result.add_done_callback(lambda late: late.cancelled() or late.exception())
        await asyncio.wait([result, called.gone], return_when=asyncio.FIRST_COMPLETED)
        if not result.done() and called.lost is not None:
            raise called.lost
        return await result

    async def reason_of(self, called: PoolWorker, error: RayError) -> WorkerLost:
        """Return a `WorkerLost` that says why a call to this worker failed with an error of Ray.

        If the connection to a worker on another node has ended, Ray does not know at first whether
        the process or its node was lost. The trial is then not to blame.
        """
        await self._nodes.look()
        why = describe(error)
        lost_node = called.info is not None and called.info.node not in self._nodes.resources
        unknown = called.node != self._nodes.here and isinstance(error, ActorUnavailableError)
        return WorkerLost(why, lost_node or unknown or why == exit_causes.NODE_LOST)

    def remove_dead(self, now: float) -> None:
        """Remove the workers that have died.

        Args:
            now: Current time of the monotonic clock.
        """
        # Otherwise, this process was suspended and missed heartbeats.
        in_time = now - self._looked <= HEARTBEAT_EVERY
        self._looked = now
        for one in list(self.workers.values()):
            if not in_time and one.heartbeat is not None:
                one.heartbeat = now
            if (reason := self.reason_of_death(one, now)) is not None:
                log.warning("%s is lost: %s", one.id, reason)
                self.lose(one, reason)

    def reason_of_death(self, one: PoolWorker, now: float) -> WorkerLost | None:
        """Return why a worker must be removed; None if the worker is alive."""
        if one.info is not None and one.node not in self._nodes.resources:
            return WorkerLost(exit_causes.NODE_LOST, blameless=True)
        if one.info is not None and one.node == self._nodes.here and not is_alive(one.info.pid):
            return WorkerLost(exit_causes.KILLED)
        if one.heartbeat is not None and now - one.heartbeat > self.job.heartbeat_timeout:
            return WorkerLost(
                f"the worker sent no heartbeat for {now - one.heartbeat:.0f} s "
                "(limits.heartbeat_timeout)",
                blameless=True,
            )
        return None

    # ---- methods for workers

    async def listen(self, worker_id: str) -> Call | None:
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
        answer = None if one is None else one.answers.get(number)
        if answer is None or answer.done():
            return
        if error is None:
            answer.set_result(None)
        else:
            answer.set_exception(RuntimeError(error))
