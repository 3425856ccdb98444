"""Connect workers to gangs with the backend of the trainer, and disband gangs."""

import asyncio
import itertools
import logging
from collections.abc import Sequence

from sweeps.core import clock
from sweeps.core.resources import Shape
from sweeps.execution.background import Background
from sweeps.execution.worker import gang_ranks

from .pool_worker import CannotStart, Gang, PoolWorker, WorkerLost, describe
from .worker_processes import WorkerProcesses

log = logging.getLogger(__name__)

# Time limits for connecting a gang, and for disbanding a gang or leaving it, in seconds. Processes
# that take longer are killed.
CONNECT_WITHIN = 60.0
DISBAND_WITHIN = 10.0


class GangConnections:
    """The gangs of the workers.

    Args:
        processes: The workers.
        spawn: Function that runs a coroutine in the background; see `Background`.
    """

    def __init__(self, processes: WorkerProcesses, spawn: Background):
        self._processes = processes
        self._spawn = spawn
        self._numbers = itertools.count(1)

    async def form(self, workers: Sequence[PoolWorker], shape: Shape) -> Gang:
        """Form a gang: wait until all workers have started, and connect them if necessary.

        Raises:
            CannotStart: A new worker raised an exception, or the backend could not connect the
                workers.
            WorkerLost: A worker died.
        """
        await asyncio.gather(*(asyncio.shield(worker.started) for worker in workers))
        gang = await self._find_or_create(workers, shape.backend)
        reconnects = gang.backend in gang_ranks.RECONNECTED_FOR_EACH_TRIAL
        if len(workers) > 1 and (reconnects or not gang.connected):
            await self._connect(gang, dict(shape.per_worker))
        return gang

    async def _find_or_create(self, workers: Sequence[PoolWorker], backend: str) -> Gang:
        """Return the gang of exactly these workers with this backend.

        If there is none, disband the other gangs of the workers and create a gang.
        """
        old = list(dict.fromkeys(worker.gang for worker in workers if worker.gang is not None))
        same = [gang for gang in old if set(gang.workers) == set(workers)]
        if same and not same[0].broken and same[0].backend == backend:
            return same[0]
        await asyncio.gather(*(self.disband(gang) for gang in old))
        gang = Gang(next(self._numbers), workers, backend)
        for worker in workers:
            if worker.lost is not None:
                raise worker.lost
            worker.gang = gang
        return gang

    async def _connect(self, gang: Gang, resources: dict[str, float]) -> None:
        """Connect the workers of a gang. If they are connected already, disconnect them first."""
        first = gang.workers[0]
        visible = gang_ranks.visible_gpus(gang.workers)
        handles = tuple(worker.actor for worker in gang.workers)
        began = clock.monotonic()
        try:
            if gang.connected:
                await asyncio.wait_for(first.call("disband"), DISBAND_WITHIN)
            form = first.call("form", handles, gang.ranks, resources, visible, gang.backend)
            await asyncio.wait_for(form, CONNECT_WITHIN)
        except Exception as e:
            gang.broken = True
            await self.disband(gang)  # This also finds the workers that have died.
            for worker in gang.workers:
                if worker.lost is not None:
                    raise worker.lost from e
            raise CannotStart(
                f"trainer.backend: `{gang.backend}` could not connect the trial's "
                f"workers: {describe(e)}"
            ) from e
        gang.connected = True
        log.info(
            "%s connected %s in %.0f ms",
            gang.id,
            ", ".join(worker.id for worker in gang.workers),
            1000 * (clock.monotonic() - began),
        )

    async def disband(self, gang: Gang) -> None:
        """Disband a gang and wait until this is done.

        If an earlier call is disbanding the gang, only wait.

        Workers that do not leave the gang within `DISBAND_WITHIN` seconds are killed.
        """
        if gang.disbanding is None:
            gang.disbanding = self._spawn(self._disband(gang))
        await asyncio.shield(gang.disbanding)

    async def _disband(self, gang: Gang) -> None:
        """Disconnect the workers, or make each of them leave the gang if that is not possible."""
        alive = [worker for worker in gang.workers if worker.lost is None]
        disconnected = False
        if gang.connected and not gang.broken and len(alive) == len(gang.workers):
            try:
                await asyncio.wait_for(gang.workers[0].call("disband"), DISBAND_WITHIN)
                disconnected = True
            except Exception:
                log.exception("%s could not be disbanded", gang.id)
        # A gang that is not connected may have workers that joined before the connection failed.
        if not disconnected and len(gang.workers) > 1:
            await asyncio.gather(*(self.ask_to_leave(worker) for worker in alive))
        for worker in gang.workers:
            if worker.gang is gang:
                worker.gang = None

    async def ask_to_leave(self, worker: PoolWorker) -> None:
        """Make a worker leave its gang.

        Kill the worker if it does not leave within `DISBAND_WITHIN` seconds.

        If a peer waits for this worker in a collective operation, such as an all-reduce, the
        operation raises an exception in the peer. The worker must not be running a loop, because
        the call needs the main thread of its process.
        """
        if worker.lost is not None:
            return
        try:
            # `worker.call` would run `leave` in a separate thread.
            await asyncio.wait_for(worker.actor.call.remote("leave"), DISBAND_WITHIN)
        except Exception as e:
            why = f"{worker.id} did not leave its gang: {describe(e)}"
            self._processes.lose(worker, WorkerLost(why))
