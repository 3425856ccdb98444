"""The state of a trial in the pool."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sweeps.core.files import checkpoint_files
from sweeps.core.trial import Checkpoint, Report, State
from sweeps.execution.background import Background
from sweeps.execution.messages import RankUpdate
from sweeps.execution.pool import _Pool
from sweeps.execution.trials import trial_services
from sweeps.execution.trials.running_trial import RunningTrial
from sweeps.execution.trials.trial_services import TrialServices
from sweeps.study.events import FailureCounts
from sweeps.study.transitions import apply_all
from tests.execution.driving import job, trial
from tests.study.trial_states import new_trial, resumed_trial
from tests.trial_updates import rank_places


def test_driver_gets_last_reports_of_ended_trial() -> None:
    async def scene() -> None:
        running = RunningTrial(new_trial(trial(0, {}, 1, "none")), "")
        attempt = running.begin_attempt(rank_places(1))
        running.task = asyncio.create_task(asyncio.sleep(60))
        saved = Checkpoint("checkpoint_000001", 1, 1)
        running.record(attempt, RankUpdate(0, 1, (Report(1, {"loss": 1.0}, 0.0),), (saved,)))
        running.end(State.PRUNED)
        running.end(State.RUNNING)
        assert running.changed.is_set()
        update = running.next_update()
        driven = apply_all(new_trial(running.trial), update.events)
        assert update.end is not None and update.end.state is State.PRUNED, "the first end counts"
        assert (len(driven.reports), driven.checkpoint) == (1, saved)
        with pytest.raises(asyncio.CancelledError):
            await running.task

    asyncio.run(scene())


def test_failed_attempts_are_counted_across_drivers() -> None:
    running = RunningTrial(new_trial(trial(0, {}, 1, "none")), "")
    running.begin_attempt(rank_places(1))
    running.retry("the node was lost", FailureCounts(1, 3), after_exception=False)
    recorded = apply_all(new_trial(running.trial), running.next_update().events)
    resumed = RunningTrial(recorded, "")
    assert resumed.state.failures == FailureCounts(1, 3)
    assert [attempt.error for attempt in recorded.failed_attempts] == ["the node was lost"]
    attempt = resumed.begin_attempt(rank_places(1))
    resumed.record(attempt, RankUpdate(0, 1, (Report(1, {"loss": 1.0}, 0.0),), ()))
    assert resumed.state.failures == FailureCounts(1, 0)


def test_pool_awaits_ranks_before_trial_has_ended() -> None:
    async def scene() -> None:
        pool = object.__new__(_Pool)
        running = RunningTrial(new_trial(trial(0, {}, 2, "none")), "")

        drivings = []

        async def drive() -> None:
            assert not await running.decisions[1]
            drivings.append("stopped")

        running.task = asyncio.create_task(drive())
        pool.trials = {running.trial.id: running}
        await pool.await_stopped()
        assert running.task.done() and drivings == ["stopped"]

    asyncio.run(scene())


def test_a_paused_trial_that_continues_at_once_waits_for_its_ranks_to_stop() -> None:
    async def scene() -> None:
        pool, stopped = object.__new__(_Pool), asyncio.Event()
        order: list[str] = []
        pool.job, pool.trials, pool.stopping, pool.spawn = job("l", "none"), {}, None, Background()

        async def drive(running: RunningTrial) -> None:
            order.append(f"start {len(order)}")
            if len(order) == 1:
                await stopped.wait()
                running.stopped = True
            order.append("end")

        driver: Any = SimpleNamespace(drive=drive)
        pool.driver = driver
        await pool.start(new_trial(trial(0, {}, 1, "none")), "/t")
        await asyncio.sleep(0)
        earlier = pool.trials["0000"]
        await pool.start(resumed_trial(), "/t")
        stopped.set()
        task = pool.trials["0000"].task
        assert task is not None
        await task
        assert order == ["start 0", "end", "start 2", "end"]
        assert pool.trials["0000"] is not earlier, (
            "the end of the earlier attempt does not remove the new one"
        )

    asyncio.run(scene())


def test_an_attempt_starts_only_after_started_deletions_have_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleting, go = threading.Event(), threading.Event()
    names = [tmp_path / "0000" / f"checkpoint_{step:06d}" for step in (1, 2)]
    delete = checkpoint_files.delete_checkpoint

    def slow(path: str) -> bool:
        if Path(path) == names[0]:
            deleting.set()
            assert go.wait(10)
        return delete(path)

    monkeypatch.setattr(trial_services, "delete_checkpoint", slow)

    async def scene() -> None:
        workers: Any = SimpleNamespace(job=job("l", "none"))
        services = TrialServices(workers, Background(), lambda: 0)
        running = RunningTrial(new_trial(trial(0, {}, 1, "none")), str(names[0].parent))
        running.begin_attempt(rank_places(1))
        for name in names:
            name.mkdir(parents=True)
        services._delete(str(names[0]))
        assert await asyncio.to_thread(deleting.wait, 10)
        ready = asyncio.create_task(services.delete_incomplete(running))
        while names[1].exists():
            await asyncio.sleep(0.001)
        assert not ready.done(), "the slow deletion goes on"
        go.set()
        await ready
        assert not any(name.exists() for name in names) and not services._deletions

    asyncio.run(asyncio.wait_for(scene(), 20))
