"""An end waits for the runners that are on their way, and for no others."""

from __future__ import annotations

import asyncio
import time

import pytest
import ray

import sweeps
from sweeps.core.trial import State
from sweeps.execution import runner_slots
from sweeps.execution.runner_slots import RunnerSlots
from tests.commands import space_of
from tests.execution.driving import Driving, job, trial


async def waits(up: RunnerSlots, coming=lambda: True) -> asyncio.Task:
    """A wait that has begun."""
    task = asyncio.create_task(up.complete(coming))
    for _ in range(3):
        await asyncio.sleep(0)
    return task


def test_an_end_waits_for_the_other_slots_runner():
    async def act():
        up = RunnerSlots()
        up.add("a", 2, None)
        task = await waits(up)
        assert not task.done()
        up.add("b", 2, None)
        await asyncio.wait_for(task, 5)
        assert (await waits(up)).done()  # from here on nobody waits
        up.remove("b")
        assert not (await waits(up)).done()  # Tune will start another

    asyncio.run(act())


def test_no_runner_is_awaited_if_none_is_starting_or_there_is_one_slot():
    async def act():
        up = RunnerSlots()
        up.add("a", 2, None)
        assert (await waits(up, lambda: False)).done()
        coming = [True]
        task = await waits(up, lambda: coming[0])
        coming.clear(), coming.append(False), up.changed.set()
        await asyncio.wait_for(task, 5)
        alone = RunnerSlots()
        alone.add("a", 1, None)
        assert (await waits(alone)).done()
        assert (await waits(RunnerSlots())).done()

    asyncio.run(act())


def test_a_runner_that_takes_over_a_trial_stands_in_for_the_one_that_was_lost():
    async def act():
        up = RunnerSlots()
        up.add("a", 2, None)
        up.add("b", 2, None)
        up.add("c", 2, "b")
        assert up.up == {"a", "c"}
        up.add("c", 2, "c")  # the pool was lost, and the runner begins again
        assert up.up == {"a", "c"}

    asyncio.run(act())


def test_a_runner_that_does_not_come_is_waited_for_once(monkeypatch):
    monkeypatch.setattr(runner_slots, "UP_WITHIN", 0.05)

    async def act():
        up = RunnerSlots()
        up.add("a", 2, None)
        await asyncio.wait_for(up.complete(lambda: True), 5)
        assert (await waits(up)).done()

    asyncio.run(act())


@pytest.mark.integration
@pytest.mark.timeout(120)
def test_trials_shorter_than_a_runners_start_share_one_runner_a_slot(clean_ray, tmp_path):
    before = set(clean_ray.util.placement_group_table())
    result = sweeps.run(space_of(tmp_path, "no_checkpoint", limits="max_trials: 12, max_concurrent_trials: 2"), dir=tmp_path / "runs")
    assert result.trials["completed"] == 12
    # Tune gives each runner that it starts a placement group; workers have none
    assert len(set(clean_ray.util.placement_group_table()) - before) == 2


@pytest.mark.integration
@pytest.mark.timeout(120)
def test_the_wait_for_a_decision_does_not_count_as_trial_time(clean_ray, tmp_path):
    """At a sweep's beginning the driver hears of a rung when a runner is up."""
    driving = Driving(job("tests.execution.loops:three_steps", "none", rungs=(2,)), tmp_path)
    try:
        one = trial(0, {}, 1, "none")
        driving.start(one)
        runner = ray.get(driving.pool.attach.remote(one.id))
        assert ray.get(driving.pool.advance.remote(one.id, runner), timeout=60).rung == 2
        time.sleep(2)  # as long as a runner may take to start
        driving.pool.answer.remote(one.id, 2, True)
        while (progress := ray.get(driving.pool.advance.remote(one.id, runner), timeout=60)).state is None:
            pass
        assert progress.state is State.COMPLETE and progress.seconds < 1.5
    finally:
        driving.close()
