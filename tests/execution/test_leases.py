"""A gang that Ray finds no place for, though the cluster as a whole has room."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

from sweeps.core.resources import Shape
from sweeps.execution import leases
from sweeps.execution.allocation import Phase
from sweeps.execution.leases import Background, Leases

ONE, OTHER = Shape(1, (("CPU", 1.0), ("GPU", 0.7))), Shape(1, (("CPU", 1.0), ("GPU", 0.4)))


def pool(monkeypatch, ends: dict[str, asyncio.Future]) -> Leases:
    """Leases whose gangs of one end when their future is told to."""

    def start(me, name, job, shape):
        ends[name] = asyncio.get_running_loop().create_future()
        return object(), ends[name]

    monkeypatch.setattr(leases.single_worker, "start", start)
    monkeypatch.setattr(leases.ray, "get_runtime_context", lambda: SimpleNamespace(current_actor=None))
    monkeypatch.setattr(leases.ray, "kill", lambda handle: None)
    return Leases(None, {"CPU": 4.0, "GPU": 2.0}, "", None, Background(), ThreadPoolExecutor(1))  # type: ignore[arg-type]


def test_an_idle_gang_makes_room_for_one_that_is_not_up(monkeypatch):
    """Two gangs of 0.7 GPUs lie on one GPU each: 0.6 are left, and no GPU has 0.4."""
    monkeypatch.setattr(leases, "PLACED_WITHIN", 0.01)

    async def play() -> None:
        ends: dict[str, asyncio.Future] = {}
        own = pool(monkeypatch, ends)
        first, second = [await own.gang(ONE) for _ in range(2)]
        for gang in (first, second):
            gang.greet(0, None)
            own.release(gang)
        third = await own.gang(OTHER)
        await asyncio.wait_for(_until(lambda: first.orders == [None]), 5)
        assert (first.phase, second.phase, third.phase) == (Phase.CLOSING, Phase.IDLE, Phase.BUSY), "the one that was used last stays"
        third.greet(0, None)  # Ray found a place
        await asyncio.sleep(0.1)
        assert second.orders == [], "there is no more to make room for"
        for end in ends.values():
            end.set_result(None)

    asyncio.run(play())


def test_a_gang_that_never_came_up_is_killed_when_it_is_closed(monkeypatch):
    """It could not hear that it is to end, and its resources would be held for ever."""
    killed = []

    async def play() -> None:
        ends: dict[str, asyncio.Future] = {}
        own = pool(monkeypatch, ends)
        monkeypatch.setattr(leases.ray, "kill", killed.append)
        gang = await own.gang(ONE)
        await own.close(gang)
        assert killed == [gang.handles[0]]
        ends[gang.id].set_result(None)
        await asyncio.wait_for(gang.closed.wait(), 5)

    asyncio.run(play())


async def _until(condition) -> None:
    while not condition():
        await asyncio.sleep(0.005)


def test_r17_a_trial_that_is_tried_again_gets_the_next_gang(monkeypatch):
    async def play() -> None:
        ends: dict[str, asyncio.Future] = {}
        own = pool(monkeypatch, ends)
        gangs = [await own.gang(ONE) for _ in range(2)]
        served: list[str] = []

        async def wait(name: str, again: bool) -> None:
            await own.gang(ONE, again=again)
            served.append(name)

        waiting = [asyncio.create_task(wait(name, again)) for name, again in (("new", False), ("newer", False), ("again", True))]
        await asyncio.sleep(0)
        for gang in gangs:
            gang.greet(0, None)
            own.release(gang)
        await _until(lambda: len(served) == 2)
        assert served == ["again", "new"]
        for task in waiting:
            task.cancel()
        for end in ends.values():
            end.set_result(None)

    asyncio.run(asyncio.wait_for(play(), 10))
