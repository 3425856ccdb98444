"""The state of a trial in the pool."""

from __future__ import annotations

import asyncio

import pytest

from sweeps.core.trial import Checkpoint, Report, State
from sweeps.execution.messages import RankUpdate
from sweeps.execution.running_trial import RunningTrial
from sweeps.execution.trial_progress import TrialProgress
from tests.execution.driving import trial


def test_the_driver_gets_the_last_reports_and_the_checkpoint_of_a_trial_that_is_ended():
    async def scene() -> None:
        running = RunningTrial(trial(0, {}, 1, "none"), "", TrialProgress(1, "loss", True))
        attempt = running.begin_attempt(1)
        running.task = asyncio.create_task(asyncio.sleep(60))
        saved = Checkpoint("/t/checkpoint_000001", 1, 1)
        running.progress.record_update(attempt, RankUpdate(0, 1, (Report(1, {"loss": 1.0}, 0.0),), (saved,)))
        running.end(State.PRUNED)
        running.end(State.RUNNING)
        assert running.changed.is_set()
        progress = running.progress.next_progress(0.0)
        assert (progress.state, len(progress.reports), progress.checkpoint) == (State.PRUNED, 1, saved), "the first end counts"
        with pytest.raises(asyncio.CancelledError):
            await running.task

    asyncio.run(scene())
