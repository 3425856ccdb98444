"""The pool of workers carries out the decisions of the allocation. No Ray is used."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest
from ray.exceptions import RayError

from sweeps.core.resources import Shape
from sweeps.core.trial import State
from sweeps.execution.background import Background
from sweeps.execution.gangs import worker_pool, worker_processes
from sweeps.execution.gangs.cluster_nodes import ClusterNodes
from sweeps.execution.gangs.cluster_state import Phase
from sweeps.execution.gangs.pool_worker import CannotStart, WorkerLost
from sweeps.execution.gangs.worker_pool import WorkerPool
from sweeps.execution.messages import Ended
from sweeps.execution.trials.elastic import ElasticGangs
from sweeps.execution.trials.running_trial import RunningTrial
from tests.execution.driving import job, trial
from tests.execution.fake_ray import ONE, TWO, lease, until
from tests.study.trial_states import new_trial

LARGE, SMALL = Shape(1, (("CPU", 1.0), ("GPU", 0.7))), Shape(1, (("CPU", 1.0), ("GPU", 0.4)))


def play(
    scene: Callable[[WorkerPool], Coroutine[Any, Any, None]],
    backend: str = "torch",
    **resources: float,
) -> None:
    """Run a scene with a pool of these resources."""

    async def run() -> None:
        nodes = ClusterNodes(resources, limit={}, reserves=False)
        await scene(WorkerPool(job("my:loop", backend), nodes, None, Background()))

    asyncio.run(asyncio.wait_for(run(), 10))


def test_workers_connect_once_and_again_only_for_another_gang(fake: Any) -> None:
    async def scene(pool: WorkerPool) -> None:
        pool.warm([TWO])
        fake.come_up(0), fake.come_up(1)
        for _ in range(2):
            gang = await lease(pool, TWO)
            pool.give_back(gang.workers)
        assert fake.calls == [("form", 0)]
        alone = await lease(pool, ONE)
        assert fake.calls[1:] == [("disband", 0)] and len(alone.workers) == 1
        pool.give_back(alone.workers)
        pool.give_back((await lease(pool, TWO)).workers)
        assert fake.calls[2:] == [("form", 0)] and len(fake.up) == 2, "no worker was started"

    play(scene, CPU=2.0)


def test_a_broken_gang_is_taken_apart_before_its_workers_serve_again(fake: Any) -> None:
    async def scene(pool: WorkerPool) -> None:
        pool.warm([TWO])
        fake.come_up(0), fake.come_up(1)
        gang = await lease(pool, TWO)
        gang.broken = True
        pool.give_back(gang.workers)
        pool.give_back((await lease(pool, TWO)).workers)
        assert sorted(fake.calls[1:3]) == [("leave", 0), ("leave", 1)] and fake.calls[3] == (
            "form",
            0,
        )

    play(scene, CPU=2.0)


def test_a_trial_waits_until_its_workers_are_up_and_a_lost_one_is_not_used(fake: Any) -> None:
    async def scene(pool: WorkerPool) -> None:
        waiting = asyncio.create_task(lease(pool, TWO))
        await until(lambda: len(fake.up) == 2)
        fake.come_up(0)
        await asyncio.sleep(0.05)
        assert not waiting.done()
        pool.processes.lose(
            list(pool.processes.workers.values())[1],
            WorkerLost("the node of the process was lost", blameless=True),
        )
        with pytest.raises(WorkerLost, match="the node of the process was lost"):
            await waiting
        assert [w.phase for w in pool.processes.workers.values()] == [Phase.IDLE], (
            "the other worker is free"
        )

    play(scene, CPU=2.0)


def test_a_worker_that_raises_as_it_starts_fails_its_trial(fake: Any) -> None:
    async def scene(pool: WorkerPool) -> None:
        waiting = asyncio.create_task(lease(pool, ONE))
        await until(lambda: fake.up)
        error = RayError("wrapped")
        error.cause = ImportError("no module named x")  # type: ignore[attr-defined]
        fake.up[0].set_exception(error)
        with pytest.raises(CannotStart, match="ImportError: no module named x"):
            await waiting

    play(scene, CPU=2.0)


def test_an_idle_worker_makes_room_for_one_that_ray_cannot_place(
    fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two workers with 0.7 GPUs lie on one GPU each: 0.6 are left, but no GPU has 0.4."""
    monkeypatch.setattr(
        worker_pool, "PLACED_WITHIN", 0.3
    )  # long enough for a busy machine to notice the first closing

    async def scene(pool: WorkerPool) -> None:
        pool.warm([LARGE, LARGE])
        fake.come_up(0), fake.come_up(1)
        for gang in [await lease(pool, LARGE) for _ in range(2)]:
            pool.give_back(gang.workers)
        third = asyncio.create_task(lease(pool, SMALL))
        await until(lambda: len(fake.killed) == 1)
        assert [w.number for w in pool.processes.workers.values()] == [2, 3], (
            "the worker that was used last stays"
        )
        fake.come_up(2)
        await third
        await asyncio.sleep(0.05)
        assert len(fake.killed) == 1, "there is nothing more to make room for"

    play(scene, CPU=4.0, GPU=2.0)


def test_a_worker_is_lost_with_its_heartbeat_its_process_or_its_node(
    fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(pool: WorkerPool) -> None:
        pool.warm([ONE])
        fake.come_up(0)
        one = next(iter(pool.processes.workers.values()))
        await one.started
        assert pool.processes.reason_of_death(one, time.monotonic() + 1000) is None, (
            "it has not begun to listen"
        )
        listening = asyncio.create_task(pool.processes.listen(one.id))
        await asyncio.sleep(0)
        now = time.monotonic()
        assert pool.processes.reason_of_death(one, now + 59) is None
        silent = pool.processes.reason_of_death(one, now + 61)
        assert silent is not None and silent.blameless and "limits.heartbeat_timeout" in str(silent)
        monkeypatch.setattr(worker_processes, "is_alive", lambda pid: False)
        dead = pool.processes.reason_of_death(one, now)
        assert dead is not None and not dead.blameless
        pool.nodes.resources = {}
        gone = pool.processes.reason_of_death(one, now)
        assert gone is not None and gone.blameless
        listening.cancel()

    play(scene, CPU=1.0)


ELASTIC = Shape(1, (("CPU", 1.0),), most=3)


def test_elastic_gang_keeps_its_place_in_the_queue(fake: Any) -> None:
    async def scene(pool: WorkerPool) -> None:
        pool.warm([ELASTIC.of_size(3)])
        for number in range(3):
            fake.come_up(number)
        gang = await lease(pool, ELASTIC)
        assert len(gang.workers) == 3
        lost = gang.workers[1]
        pool.processes.lose(lost, WorkerLost("killed"))
        others = [one for one in gang.workers if one is not lost]
        smaller = await pool.form(others, ELASTIC)
        assert smaller.workers == others and [r.world_size for r in smaller.ranks] == [2, 2]
        assert [number for name, number in fake.calls if name == "leave"] == [0, 2], (
            "the first gang was taken apart"
        )

        assert (
            pool.grow(ELASTIC, smaller.workers, trials_pending=True, reserve=True) == []
            and len(fake.up) == 3
        ), "a trial is left"
        assert (
            pool.grow(ELASTIC, smaller.workers, trials_pending=False, reserve=True) == []
            and len(fake.up) == 4
        ), "a worker starts"
        assert (
            pool.grow(ELASTIC, smaller.workers, trials_pending=False, reserve=True) == []
            and len(fake.up) == 4
        ), "no second one"
        fake.come_up(3)
        await asyncio.sleep(0)
        assert pool.grow(ELASTIC, smaller.workers, trials_pending=False, reserve=False) == [], (
            "this step has no checkpoint"
        )
        joining = pool.grow(ELASTIC, smaller.workers, trials_pending=False, reserve=True)
        assert (
            joining is not None
            and [one.number for one in joining] == [4]
            and joining[0].phase is Phase.BUSY
        )
        larger = await pool.form([*smaller.workers, *joining], ELASTIC)
        assert [one.number for one in larger.workers] == [1, 3, 4]
        pool.give_back(larger.workers)
        assert {one.phase for one in pool.processes.workers.values()} == {Phase.IDLE}

    play(scene, CPU=3.0)


def test_growing_cluster_closes_workers_after_idle_minute(fake: Any) -> None:
    async def scene(pool: WorkerPool) -> None:
        pool.warm([TWO])
        fake.come_up(0), fake.come_up(1)
        pool.give_back((await lease(pool, ONE)).workers)
        first, second = pool.processes.workers.values()
        second.idle_since -= 100
        pool._close_idle(time.monotonic())
        assert second.phase is Phase.IDLE, "a cluster of a fixed size keeps its workers"
        pool._node_requests.may_grow = True
        pool._close_idle(time.monotonic())
        assert (first.phase, second.phase) == (Phase.IDLE, Phase.CLOSING)
        await second.gone

    play(scene, CPU=2.0)


def elastic_trial() -> RunningTrial:
    return RunningTrial(new_trial(replace(trial(0, {}, 1, "torch"), shape=ELASTIC)), "")


def test_an_elastic_trial_keeps_its_workers_only_if_enough_remain(fake: Any) -> None:
    async def scene(pool: WorkerPool) -> None:
        pool.warm([ELASTIC.of_size(3)])
        for number in range(3):
            fake.come_up(number)
        gangs, running = ElasticGangs(pool), elastic_trial()
        gang = await lease(pool, ELASTIC)
        assert (
            not gangs.keep_workers(gang, running, Ended(0, State.COMPLETE))
            and not running.next_workers
        )
        lost = WorkerLost("killed")
        pool.processes.lose(gang.workers[0], lost)
        assert gangs.keep_workers(gang, running, lost) and [
            one.number for one in running.next_workers
        ] == [
            2,
            3,
        ]
        running.next_workers = []
        pool.close(gang.workers[1])
        assert gangs.keep_workers(gang, running, lost) and [
            one.number for one in running.next_workers
        ] == [3], "a closing worker is of no use"
        running.next_workers = []
        pool.processes.lose(gang.workers[2], lost)
        assert not gangs.keep_workers(gang, running, lost) and not running.next_workers

    play(scene, CPU=3.0)
