"""A Ray without processes, for tests of the pool of workers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from sweeps.core.resources import Shape
from sweeps.execution.gangs.pool_worker import Gang
from sweeps.execution.gangs.worker_pool import WorkerPool
from sweeps.execution.messages import Job, WorkerInfo
from sweeps.study.events import RankPlace

ONE, TWO = Shape(1, (("CPU", 1.0),)), Shape(2, (("CPU", 1.0),))
NODE = {"Alive": True, "NodeManagerHostname": "box", "NodeManagerAddress": "10.0.0.1"}


class FakeRay:
    """Workers that are up when their future says so, and carry out every call at once.

    Attributes:
        up: Future of each worker's information, in the order of starts.
        killed: Actors that were killed.
        calls: Calls beside a worker's main thread, and of `leave`: the name of the method and the
            worker's number.
    """

    def __init__(self) -> None:
        self.up: list[asyncio.Future[WorkerInfo]] = []
        self.killed: list[Any] = []
        self.calls: list[tuple[str, int]] = []

    def start(
        self, pool: Any, worker: str, job: Job, resources: dict[str, float], node: str | None
    ) -> tuple[Any, Any]:
        number = len(self.up)
        self.up.append(asyncio.get_running_loop().create_future())
        actor = SimpleNamespace(call=SimpleNamespace(remote=lambda name: self._call(name, number)))
        return actor, self.up[-1]

    def _call(self, name: str, number: int) -> asyncio.Future[None]:
        self.calls.append((name, number))
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    def come_up(self, number: int, node: str = "here") -> None:
        self.up[number].set_result(WorkerInfo(node, RankPlace(node), 0))


async def lease(pool: WorkerPool, shape: Shape, is_retry: bool = False) -> Gang:
    return await pool.form(await pool.reserve(shape, is_retry=is_retry), shape)


async def until(condition: Callable[[], Any]) -> None:
    while not condition():
        await asyncio.sleep(0.005)
