"""Prepare the data of trials. Each preprocessing chain is fitted once, and a fit waits for a CPU in the same queue as trials."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from sweeps.core.processes import is_alive
from sweeps.core.resources import Shape
from sweeps.execution.background import Background
from sweeps.execution.messages import Ended
from sweeps.execution.worker_pool import WorkerPool

# Exceptions that Ray raises in a loop that reads data whose owner process was lost.
DATA_LOST = ("OwnerDiedError", "ObjectLostError", "ObjectFetchTimedOutError", "ReferenceCountingAssertionError")
# Longest time, in seconds, that `Fits.lost` waits for the data actor to die. A failed attempt may have been caused by this death.
LOST_WITHIN = 2.0


async def _local_pid(data_actor: Any) -> int | None:
    """Return the process id of the data actor; None if the actor runs on another machine."""
    pid = await data_actor.pid.remote()
    return pid if is_alive(pid) else None


class Fits:
    """Data that the data actor has prepared or will prepare. All methods run on the pool's event loop.

    Args:
        workers: Worker pool from which a fit gets a CPU.
        spawn: Runs a coroutine in the background.
    """

    def __init__(self, workers: WorkerPool, spawn: Background):
        self.workers, self.spawn = workers, spawn
        self.data_actor: Any = None
        self._pid: Any = None
        self._known = asyncio.Event()  # Set by `configure`. Calls to the pool may arrive out of order, so other methods wait for it.
        self._made: dict[tuple[str, str], asyncio.Future] = {}  # By data variant and chain.
        self._fitting = asyncio.Lock()  # The data actor runs one fit at a time; a waiting fit must not hold a CPU.

    def configure(self, data_actor: Any) -> None:
        """Set the data actor. All other methods wait for this call."""
        self.data_actor, self._pid = data_actor, asyncio.ensure_future(_local_pid(data_actor))
        self._known.set()

    async def lost(self, within: float = LOST_WITHIN) -> bool:
        """Return whether the data actor's process has died. All data that the data actor had prepared is then lost.

        Args:
            within: Longest time to wait for the process to die, in seconds. If the process stays alive, the call takes this long.
        """
        await self._known.wait()
        pid, give_up = await self._pid, time.monotonic() + within
        while pid is not None and is_alive(pid) and time.monotonic() < give_up:
            await asyncio.sleep(0.05)
        return pid is not None and not is_alive(pid)

    async def caused_failure(self, failed: Sequence[Ended]) -> bool:
        """Return whether the loss of the data actor made an attempt fail.

        Args:
            failed: Results of the ranks that failed; empty if the workers could not start.
        """
        return (not failed or any(name in (e.error or "") for e in failed for name in DATA_LOST)) and await self.lost()

    async def fit_before_trials(self, fits: Sequence[tuple[dict, tuple]], warm: Sequence[Shape]) -> None:
        """Fit chains before the first trial; see `Pool.prefit`."""
        await self._known.wait()
        if warm and not any([await self.data_actor.runs_tasks.remote(chain) for _, chain in fits]):
            self.workers.warm(warm)
        for future in [self.of(data, chain) for data, chain in fits]:
            await asyncio.shield(future)

    def of(self, data: dict, chain: tuple) -> asyncio.Future:
        """Return a future of the prepared data for a data variant and a chain.

        Each pair of these is prepared only once, even if several trials that need it start at the same time.

        Args:
            data: The trial's values of the `data` section.
            chain: The trial's preprocessing steps.
        """
        key = repr(data), repr(chain)
        if key not in self._made:
            self._made[key] = self.spawn(self._prepare(data, chain))
        return self._made[key]

    @property
    def count(self) -> int:
        """Number of chains that were fitted, without empty chains."""
        return sum(f.done() and not f.cancelled() and f.exception() is None for (_, chain), f in self._made.items() if chain != repr(()))

    async def _prepare(self, data: dict, chain: tuple) -> dict[str, Any]:
        await self._known.wait()
        async with self._fitting:
            tasks = await self.data_actor.runs_tasks.remote(chain)
            async with self.workers.resources({"CPU": min(1.0, self.workers.total.get("CPU", 1.0))}, tasks):
                return await self.data_actor.prepare.remote(chain, data)
