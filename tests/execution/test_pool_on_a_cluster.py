"""The pool of workers on a cluster whose nodes join and leave. No Ray is used."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray.exceptions import RayError

from sweeps.core.host import exit_causes
from sweeps.execution.background import Background
from sweeps.execution.gangs import worker_pool
from sweeps.execution.gangs.cluster_nodes import ClusterNodes
from sweeps.execution.gangs.pool_worker import CannotStart
from sweeps.execution.gangs.worker_pool import WorkerPool
from tests.execution.driving import job
from tests.execution.fake_ray import NODE, ONE, TWO, lease, until


def nodes_of(*cpus: float) -> list[dict[str, Any]]:
    """Nodes with these numbers of CPUs, as `ray.nodes` returns them.

    The first one is the pool's own.
    """
    return [
        {**NODE, "NodeID": f"node-{i}" if i else "here", "Resources": {"CPU": amount}}
        for i, amount in enumerate(cpus)
    ]


def play_on_a_cluster(
    scene: Callable[[WorkerPool], Coroutine[Any, Any, None]], *cpus: float
) -> None:
    """Run a scene with a pool on a cluster of these nodes, which may change."""

    async def run() -> None:
        nodes = ClusterNodes(None, limit={}, reserves=False)
        pool = WorkerPool(job("my:loop", "torch"), nodes, None, Background())
        nodes.update(nodes_of(*cpus))
        await scene(pool)

    asyncio.run(asyncio.wait_for(run(), 10))


def test_waiting_trial_names_missing_node_and_runs_when_it_joins(fake: Any) -> None:
    async def scene(pool: WorkerPool) -> None:
        assert pool.missing_nodes_text(TWO) is None
        waiting = asyncio.create_task(lease(pool, TWO))
        await asyncio.sleep(0)
        text = pool.missing_nodes_text(TWO)
        rest = r" for nodes: 2 workers × 1 CPU needs 2 CPU \(there is 1\)"
        assert text is not None and re.fullmatch(r"waiting since \d\d:\d\d:\d\d" + rest, text)
        other = asyncio.create_task(lease(pool, ONE))
        await until(lambda: fake.up)
        fake.come_up(0)
        assert len((await other).workers) == 1, (
            "a trial that fits does not wait for the one that does not"
        )
        pool.nodes.update(nodes_of(1.0, 2.0))
        pool.serve()
        await until(lambda: len(fake.up) == 3)
        fake.come_up(1, "node-1"), fake.come_up(2, "node-1")
        assert len((await waiting).workers) == 2 and pool.missing_nodes_text(TWO) is None

    play_on_a_cluster(scene, 1.0)


def test_misfit_trial_fails_after_ten_minutes_as_misfit(
    fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(pool: WorkerPool) -> None:
        clock = [1000.0]
        jumping = SimpleNamespace(monotonic=lambda: clock[0], time=lambda: -86400 * clock[0])
        monkeypatch.setattr(worker_pool, "clock", jumping)
        holds = asyncio.create_task(lease(pool, TWO))
        await until(lambda: len(fake.up) == 2)
        waiting = asyncio.create_task(lease(pool, TWO))
        await asyncio.sleep(0)
        clock[0] += 5000
        pool.nodes.update(
            nodes_of(1.0)
        )  # The other node leaves, and the trial has waited for long.
        pool.serve()
        clock[0] += worker_pool.FITS_WITHIN - 1
        pool.serve()
        await asyncio.sleep(0)
        assert not waiting.done()
        clock[0] += 2
        pool.serve()
        with pytest.raises(
            CannotStart,
            match=r"needs 2 CPU \(there is 1\), and no such node has joined within 10 minutes",
        ):
            await waiting
        holds.cancel()

    play_on_a_cluster(scene, 1.0, 1.0)


def test_a_node_that_is_lost_while_a_worker_starts_gets_no_other_worker(
    fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(pool: WorkerPool) -> None:
        workers = await pool.reserve(TWO)
        (lost,) = [worker for worker in workers if worker.node == "node-1"]
        waiting = asyncio.create_task(pool.reserve(ONE, is_retry=True))
        monkeypatch.setattr(ray, "nodes", lambda: nodes_of(1.0))
        fake.up[lost.number - 1].set_exception(RayError("the actor is not schedulable"))
        await until(lambda: lost.lost is not None)
        assert str(lost.lost) == exit_causes.NODE_LOST
        assert pool.processes.failed_start == -math.inf, "another worker may start at once"
        assert [*pool.nodes.resources] == ["here"]
        assert not waiting.done() and len(fake.up) == 2
        waiting.cancel()

    play_on_a_cluster(scene, 1.0, 1.0)
