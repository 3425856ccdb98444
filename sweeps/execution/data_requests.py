"""The data of the trials, each chain fitted once for all that share it; a fit computes, and stands in line for a CPU like a gang."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from sweeps.core.processes import is_alive
from sweeps.core.resources import Shape
from sweeps.execution.messages import Ended
from sweeps.execution.worker_pool import Background, WorkerPool

# What Ray raises in a loop that reads what a lost process owned.
DATA_LOST = ("OwnerDiedError", "ObjectLostError", "ObjectFetchTimedOutError", "ReferenceCountingAssertionError")
# So long after what may have come of the data actor's death it is seen whether it is dead, in seconds.
LOST_WITHIN = 2.0


async def _seen(data_actor: Any) -> int | None:
    """The data actor's process; None if it is not to be seen from here."""
    pid = await data_actor.pid.remote()
    return pid if is_alive(pid) else None


class Fits:
    """What the data actor has prepared, and what it is still to prepare. Lives on the pool's event loop.

    Args:
        workers: where a fit waits for a CPU.
        spawn: runs a coroutine in the background.
    """

    def __init__(self, workers: WorkerPool, spawn: Background):
        self.workers, self.spawn = workers, spawn
        self.data_actor: Any = None
        self._pid: Any = None
        self._known = asyncio.Event()  # the data actor: calls to an asyncio actor may overtake each other
        self._made: dict[tuple[str, str], asyncio.Future] = {}  # by variant and chain
        self._fitting = asyncio.Lock()  # the data actor makes one at a time, and who waits for it holds no CPU

    def configure(self, data_actor: Any) -> None:
        """Who prepares; until it is known everything waits."""
        self.data_actor, self._pid = data_actor, asyncio.ensure_future(_seen(data_actor))
        self._known.set()

    async def lost(self, within: float = LOST_WITHIN) -> bool:
        """Whether the data actor's process is lost, and with it all that it had prepared; it may just be dying."""
        await self._known.wait()
        pid, give_up = await self._pid, time.monotonic() + within
        while pid is not None and is_alive(pid) and time.monotonic() < give_up:
            await asyncio.sleep(0.05)
        return pid is not None and not is_alive(pid)

    async def caused(self, failed: Sequence[Ended]) -> bool:
        """Whether a trial ended so for the loss of the data actor: ranks that could not start or read their shard are not at fault."""
        return (not failed or any(name in (e.error or "") for e in failed for name in DATA_LOST)) and await self.lost()

    async def ahead(self, fits: Sequence[tuple[dict, tuple]], warm: Sequence[Shape]) -> None:
        """See `Pool.prefit`."""
        await self._known.wait()
        if warm and not any([await self.data_actor.runs_tasks.remote(chain) for _, chain in fits]):
            self.workers.warm(warm)
        for future in [self.of(data, chain) for data, chain in fits]:
            await asyncio.shield(future)

    def of(self, data: dict, chain: tuple) -> asyncio.Future:
        """A variant of the data passed through a chain; made once for all trials that share it, also when they start together."""
        key = repr(data), repr(chain)
        if key not in self._made:
            self._made[key] = self.spawn(self._prepare(data, chain))
        return self._made[key]

    @property
    def count(self) -> int:
        """Chains with a step in them that were fitted."""
        return sum(f.done() and not f.cancelled() and f.exception() is None for (_, chain), f in self._made.items() if chain != repr(()))

    async def _prepare(self, data: dict, chain: tuple) -> dict[str, Any]:
        await self._known.wait()
        async with self._fitting:
            tasks = await self.data_actor.runs_tasks.remote(chain)
            async with self.workers.resources({"CPU": min(1.0, self.workers.total.get("CPU", 1.0))}, tasks):
                return await self.data_actor.prepare.remote(chain, data)
