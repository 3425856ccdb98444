"""The pool of workers carries out the decisions of the allocation. No Ray is used."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray.exceptions import RayError

from sweeps.core.host import exit_causes
from sweeps.core.resources import Shape
from sweeps.core.trial import State
from sweeps.execution.background import Background
from sweeps.execution.gangs import worker_pool, worker_processes
from sweeps.execution.gangs.cluster_nodes import ClusterNodes
from sweeps.execution.gangs.cluster_state import Phase
from sweeps.execution.gangs.pool_worker import CannotStart, Gang, PoolWorker, WorkerLost
from sweeps.execution.gangs.worker_pool import WorkerPool
from sweeps.execution.messages import Ended, Job, WorkerInfo
from sweeps.execution.trials.elastic import ElasticGangs
from sweeps.execution.trials.running_trial import RunningTrial
from sweeps.execution.worker import worker
from sweeps.study.events import RankPlace
from tests.execution.driving import job, trial
from tests.study.trial_states import new_trial

ONE, TWO = Shape(1, (("CPU", 1.0),)), Shape(2, (("CPU", 1.0),))
NODE = {"Alive": True, "NodeManagerHostname": "box", "NodeManagerAddress": "10.0.0.1"}
LARGE, SMALL = Shape(1, (("CPU", 1.0), ("GPU", 0.7))), Shape(1, (("CPU", 1.0), ("GPU", 0.4)))


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


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRay]:
    fake_ray = FakeRay()
    monkeypatch.setattr(worker, "start", fake_ray.start)
    monkeypatch.setattr(worker_processes, "is_alive", lambda pid: True)
    context = SimpleNamespace(current_actor=None, get_node_id=lambda: "here")
    monkeypatch.setattr(ray, "get_runtime_context", lambda: context)
    monkeypatch.setattr(ray, "nodes", lambda: [{**NODE, "NodeID": "here", "Resources": {}}])
    monkeypatch.setattr(ray, "kill", fake_ray.killed.append)

    async def call(self: PoolWorker, method: str, *arguments: Any) -> None:
        fake_ray.calls.append((method, self.number - 1))

    monkeypatch.setattr(PoolWorker, "call", call)
    yield fake_ray


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


async def lease(pool: WorkerPool, shape: Shape, is_retry: bool = False) -> Gang:
    return await pool.form(await pool.reserve(shape, is_retry=is_retry), shape)


async def until(condition: Callable[[], Any]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


def test_a_node_that_is_lost_while_a_worker_starts_gets_no_other_worker(
    fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["here", "there"]
    monkeypatch.setattr(
        ray,
        "nodes",
        lambda: [{**NODE, "NodeID": name, "Resources": {"CPU": 1.0}} for name in names],
    )

    async def run() -> None:
        nodes = ClusterNodes(None, limit={}, reserves=False)
        pool = WorkerPool(job("my:loop", "torch"), nodes, None, Background())
        workers = await pool.reserve(TWO)
        (lost,) = [worker for worker in workers if worker.node == "there"]
        waiting = asyncio.create_task(pool.reserve(ONE, is_retry=True))
        names.remove("there")
        fake.up[lost.number - 1].set_exception(RayError("the actor is not schedulable"))
        await until(lambda: lost.lost is not None)
        assert str(lost.lost) == exit_causes.NODE_LOST
        assert pool.processes.failed_start == -math.inf, "another worker may start at once"
        assert [*nodes.resources] == ["here"] and not waiting.done() and len(fake.up) == 2
        waiting.cancel()

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
