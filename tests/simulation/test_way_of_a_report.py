"""The functions that a report passes from a training loop to the study."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import sweeps
from sweeps.controller.controller import SweepController
from sweeps.core.trial import Report
from sweeps.execution.background import Background
from sweeps.execution.messages import Assignment, Labels, Ranks, RankUpdate, TrialUpdate
from sweeps.execution.pool import _Pool
from sweeps.execution.ray_apis import tune_adapter
from sweeps.execution.trials.trial_driver import TrialDriver
from sweeps.execution.trials.trial_services import TrialServices
from sweeps.execution.worker.trial_session import TrialSession
from sweeps.search.search_loop import SearchLoop
from sweeps.study.events import TrialReported
from tests.execution.driving import job
from tests.search.deaths import Deaf
from tests.trial_updates import rank_places

HOME = str(Path(sweeps.__path__[0]))
# These modules compute something of a report, and do not pass it on.
PURE = (
    "study/events",
    "study/states",
    "study/transitions",
    "study/log",
    "core/",
    "execution/trials/checkpoint_parts",
)
WAY = [
    "TrialSession.unacknowledged",  # in the worker
    "RankCalls.record_update",  # in the pool
    "RunningTrial.record",
    "RunningTrial.next_update",
    "_Pool.step",
    "_Scheduler.on_trial_result",  # in the driver
    "SweepController.on_update",
    "StudyStore.append",
]


def has_report(value: Any) -> bool:
    """Return whether a value is or has a report."""
    match value:
        case Report():
            return True
        case RankUpdate(reports=parts) | TrialReported(reports=parts) | TrialUpdate(events=parts):
            return any(map(has_report, parts))
        case dict():
            return any(map(has_report, value.values()))
        case tuple() | list():
            return any(map(has_report, value))
    return False


class Trace:
    """Notes the functions of sweeps that get or return a report."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def __call__(self, frame: FrameType, event: str, value: Any) -> None:
        code = frame.f_code
        place = code.co_filename.removeprefix(f"{HOME}/")
        if place == code.co_filename or place.startswith(PURE) or self.seen[-1:] == WAY[-1:]:
            return
        given = event == "call" and any(map(has_report, frame.f_locals.values()))
        passes = given or (event == "return" and has_report(value))
        if passes and code.co_name[0] != "<" and code.co_qualname not in self.seen:
            self.seen.append(code.co_qualname)


class Direct:
    """A handle of a pool in this process: `handle.METHOD.remote(...)` returns a future."""

    def __init__(self, pool: _Pool, loop: asyncio.AbstractEventLoop) -> None:
        self._pool, self._loop = pool, loop

    def __getattr__(self, name: str) -> Any:
        def remote(*args: Any) -> Any:
            call = getattr(self._pool, name)(*args)
            done = asyncio.run_coroutine_threadsafe(call, self._loop)
            return SimpleNamespace(future=lambda: done)

        return SimpleNamespace(remote=remote)


def pool_of() -> _Pool:
    """Return a pool without workers, whose trials only wait."""
    pool = object.__new__(_Pool)
    pool.job, pool.trials, pool.stopping, pool.spawn = job("l", "none"), {}, None, Background()
    anything: Any = SimpleNamespace(job=pool.job)
    pool.services = TrialServices(anything, pool.spawn, lambda: 0)
    pool.driver = TrialDriver(0, anything, pool.services)

    async def drive(running: Any) -> None:
        running.begin_attempt(rank_places(1))
        await asyncio.sleep(60)

    pool.driver.drive = drive  # type: ignore[method-assign]
    return pool


async def until(holds: Any) -> None:
    for _ in range(1000):
        if holds():
            return
        await asyncio.sleep(0.01)
    raise TimeoutError


def test_a_report_passes_seven_functions_between_the_loop_and_the_study(
    make_space: Any, tmp_path: Path
) -> None:
    space = make_space("params: {eta: {uniform: [0, 1]}}", scheduler="{name: none}")
    search, trace = SearchLoop.open(tmp_path, space), Trace()

    async def scene() -> None:
        pool = pool_of()
        handle: Any = Direct(pool, asyncio.get_running_loop())
        deaf: Any = Deaf()
        driver = SweepController(
            search, handle, deaf, time.monotonic(), lambda: False, deaf, lambda: None
        )
        name = driver.start_trial()
        assert name is not None
        await until(lambda: name in pool.trials and pool.trials[name].state.attempt == 1)
        state = pool.trials[name].state
        assignment = Assignment(
            state.trial, 1, Ranks(), str(tmp_path), "key", (), Labels(), None, None
        )
        nothing: Any = None
        session = TrialSession(handle, pool.job, assignment, nothing)
        for where in (threading.setprofile, sys.setprofile):
            where(trace)
        try:
            await asyncio.to_thread(session.report, {"loss": 0.5}, None)
            await asyncio.to_thread(session.send_if_new)
            update = await pool.step(name)
            scheduler: Any = tune_adapter._Scheduler(tune_adapter.SourceCalls(driver))
            assert scheduler.on_trial_result(None, None, update) == "CONTINUE"
        finally:
            for where in (threading.setprofile, sys.setprofile):
                where(None)
        task = pool.trials[name].task
        assert task is not None
        task.cancel()

    asyncio.run(asyncio.wait_for(scene(), 60))
    assert [report.metrics for report in search.store.states[0].reports] == [{"loss": 0.5}]
    assert trace.seen == WAY
    assert len(WAY) - 1 <= 7, "seven between `TrialSession.report` and the study"
