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
        self._last_check = clock.monotonic()  # when `remove_dead` was called last

    def start(self, resources: tuple[tuple[str, float], ...], node: str) -> PoolWorker:
        """Start a worker on a node."""
        starting = PoolWorker(next(self._numbers), resources, node)
        self.workers[starting.id] = starting
        pool = ray.get_runtime_context().current_actor
        # On a single node, Ray needs no placement.
        pinned = node if len(self._nodes.resources) > 1 else None
        starting.actor, info = worker.start(
            pool, starting.id, self.job, resources=dict(resources), node=pinned
        )
        self._spawn(self._await_start(starting, info))
        return starting

    async def _await_start(self, starting: PoolWorker, info: Awaitable[WorkerInfo]) -> None:
        """Wait until a worker has started, and record its node and its GPUs."""
        try:
            starting.info = await info
        except RayError as e:
            await self._nodes.refresh()  # If the node is lost, nothing may be placed on it again.
            if starting.node not in self._nodes.resources:
                self.lose(starting, WorkerLost(exit_causes.NODE_LOST))
                return
            self.failed_start = clock.monotonic()
            # Ray's error has a cause if the worker itself has raised an exception.
            has_raised = getattr(e, "cause", None) is not None
            self.lose(starting, (CannotStart if has_raised else WorkerLost)(describe(e)))
            return
        starting.node = starting.info.node
        starting.place = starting.info.place
        if not starting.started.done():
            starting.started.set_result(starting.info)

    def least_used_beside(self, starting: PoolWorker) -> PoolWorker | None:
        """Return the idle worker on the same node that was not used for the longest time.

        The worker holds at least one of the resources that the starting worker needs. Return None
        if there is no such worker.
        """
        names = dict(starting.resources).keys()
        idle = [
            other
            for other in self.workers.values()
            if other.phase is Phase.IDLE and other.node == starting.node
        ]
        closable = [other for other in idle if names & dict(other.resources).keys()]
        return min(closable, key=lambda other: other.used, default=None)

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
        if not lost.started.done():
            lost.started.set_exception(reason)
            # Mark the exception as retrieved. Otherwise asyncio would log it if no trial waits.
            lost.started.exception()
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
        # Mark an exception as retrieved that comes after the worker was lost.
        result.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.wait([result, called.gone], return_when=asyncio.FIRST_COMPLETED)
        if not result.done() and called.lost is not None:
            raise called.lost
        return await result

    async def reason_of(self, called: PoolWorker, error: RayError) -> WorkerLost:
        """Return a `WorkerLost` that says why a call to this worker failed with an error of Ray.

        If the connection to a worker on another node has ended, Ray does not know at first whether
        the process or its node was lost. The trial is then not to blame.
        """
        await self._nodes.refresh()
        reason = describe(error)
        node_is_lost = called.info is not None and called.info.node not in self._nodes.resources
        is_unknown = called.node != self._nodes.here and isinstance(error, ActorUnavailableError)
        blameless = node_is_lost or is_unknown or reason == exit_causes.NODE_LOST
        return WorkerLost(reason, blameless)

    def remove_dead(self, now: float) -> None:
        """Remove the workers that have died.

        Args:
            now: Current time of the monotonic clock.
        """
        # If this process itself was suspended, it has missed heartbeats.
        was_suspended = now - self._last_check > HEARTBEAT_EVERY
        self._last_check = now
        for known in list(self.workers.values()):
            if was_suspended and known.heartbeat is not None:
                known.heartbeat = now
            if (reason := self.reason_of_death(known, now)) is not None:
                log.warning("%s is lost: %s", known.id, reason)
                self.lose(known, reason)

    def reason_of_death(self, known: PoolWorker, now: float) -> WorkerLost | None:
        """Return why a worker must be removed; None if the worker is alive."""
        if known.info is not None:
            if known.node not in self._nodes.resources:
                return WorkerLost(exit_causes.NODE_LOST, blameless=True)
            if known.node == self._nodes.here and not is_alive(known.info.pid):
                return WorkerLost(exit_causes.KILLED)
        if known.heartbeat is not None and now - known.heartbeat > self.job.heartbeat_timeout:
            return WorkerLost(
                f"the worker sent no heartbeat for {now - known.heartbeat:.0f} s "
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
        if (caller := self.workers.get(worker_id)) is None:
            await asyncio.sleep(HEARTBEAT_EVERY)
            return None
        caller.heartbeat = clock.monotonic()
        with contextlib.suppress(TimeoutError):
            return await asyncio.wait_for(caller.calls.get(), HEARTBEAT_EVERY)
        return None

    def record_answer(self, worker_id: str, number: int, error: str | None) -> None:
        """Record that a worker has carried out a call.

        Args:
            worker_id: Id of the worker.
            number: Number of the call.
            error: Traceback of the exception that the method raised; None if the method returned.
        """
        caller = self.workers.get(worker_id)
        answer = None if caller is None else caller.answers.get(number)
        if answer is None or answer.done():
            return
        if error is None:
            answer.set_result(None)
        else:
            answer.set_exception(RuntimeError(error))
