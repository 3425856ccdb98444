"""The data of the trials, each chain fitted once for all that share it; a fit computes, and stands in line for a CPU like a gang."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from sweeps.gangs.leases import Background, Leases
from sweeps.resources import Shape


class Fits:
    """What the keeper has prepared, and what it is still to prepare. Lives on the pool's event loop.

    Args:
        leases: where a fit stands in line.
        spawn: runs a coroutine in the background.
    """

    def __init__(self, leases: Leases, spawn: Background):
        self.leases, self.spawn = leases, spawn
        self.keeper: Any = None
        self._known = asyncio.Event()  # the keeper: calls to an asyncio actor may overtake each other
        self._made: dict[tuple[str, str], asyncio.Future] = {}  # by variant and chain
        self._fitting = asyncio.Lock()  # the keeper makes one at a time, and who waits for it holds no CPU

    def configure(self, keeper: Any) -> None:
        """Who prepares; until it is known everything waits."""
        self.keeper = keeper
        self._known.set()

    async def ahead(self, fits: Sequence[tuple[dict, tuple]], warm: Sequence[Shape]) -> None:
        """See `Pool.prefit`."""
        await self._known.wait()
        if warm and not any([await self.keeper.runs_tasks.remote(chain) for _, chain in fits]):
            self.leases.warm(warm)
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
            tasks = await self.keeper.runs_tasks.remote(chain)
            async with self.leases.resources({"CPU": min(1.0, self.leases.cluster.get("CPU", 1.0))}, tasks):
                return await self.keeper.prepare.remote(chain, data)
