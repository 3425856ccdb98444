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
        await asyncio.gather(*(asyncio.shield(worker.up) for worker in workers))
        gang = await self._gang_of(workers)
        renewed = self._processes.job.backend in gang_ranks.RENEWED_FOR_EACH_TRIAL
        if len(workers) > 1 and (renewed or not gang.connected):
            await self._connect(gang, dict(shape.per_worker))
        return gang

    async def _gang_of(self, workers: Sequence[PoolWorker]) -> Gang:
        """Return the gang of exactly these workers.

        If there is none, disband the other gangs of the workers and create a gang.
        """
        old = list(dict.fromkeys(one.gang for one in workers if one.gang is not None))
        if len(old) == 1 and set(old[0].workers) == set(workers) and not old[0].broken:
            return old[0]
        await asyncio.gather(*(self.disband(gang) for gang in old))
        gang = Gang(next(self._numbers), workers)
        for one in workers:
            if one.lost is not None:
                raise one.lost
            one.gang = gang
        return gang

    async def _connect(self, gang: Gang, resources: dict[str, float]) -> None:
        first = gang.workers[0]
        visible = gang_ranks.visible_gpus(gang.workers)
        handles = tuple(one.actor for one in gang.workers)
        began = clock.monotonic()
        try:
            if gang.connected:
                await asyncio.wait_for(first.call("disband"), DISBAND_WITHIN)
            form = first.call("form", handles, gang.ranks, resources, visible)
            await asyncio.wait_for(form, CONNECT_WITHIN)
        except Exception as e:
            gang.broken = True
            await self.disband(gang)  # This also finds the workers that have died.
            if lost := next((one.lost for one in gang.workers if one.lost is not None), None):
                raise lost from e
            raise CannotStart(
                f"trainer.backend: `{self._processes.job.backend}` could not connect the trial's "
                f"workers: {describe(e)}"
            ) from e
        gang.connected = True
        log.info(
            "%s connected %s in %.0f ms",
            gang.id,
            ", ".join(one.id for one in gang.workers),
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
            await asyncio.wait_for(worker.actor.call.remote("leave"), DISBAND_WITHIN)
        except Exception as e:
            why = f"{worker.id} did not leave its gang: {describe(e)}"
            self._processes.lose(worker, WorkerLost(why))
