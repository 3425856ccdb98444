"""A rank that has not reported for long says so, and where it stands."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sweeps.execution.messages import Ranks, RankUpdate, Silence
from sweeps.execution.trials.running_trial import RunningTrial
from sweeps.execution.worker import trial_session
from sweeps.execution.worker.dataset_cache import DatasetCache
from sweeps.execution.worker.trial_session import SILENT_AFTER, TrialSession, stack_of
from tests.execution.driving import job, trial
from tests.study.trial_states import new_trial
from tests.trial_updates import rank_places


class Pool:
    """Keeps what it is told of silence, and answers nothing else."""

    def __init__(self) -> None:
        self.heard: list[Silence] = []
        self.record_silence = SimpleNamespace(
            remote=lambda attempt, silence: self.heard.append(silence)
        )


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The clock of the session, which a test sets."""
    clock = SimpleNamespace(now=100.0, time=time.time)
    clock.monotonic = lambda: clock.now
    monkeypatch.setattr(trial_session, "time", clock)
    return clock


@pytest.fixture
def session(tmp_path: Path, clock: Any) -> Any:
    assignment: Any = SimpleNamespace(
        trial=trial(0, {}, 1, "none"),
        ranks=Ranks(1, 2, 1, 2),
        folder=str(tmp_path),
        checkpoint=None,
        id=("0000", 1),
        may_change_size=False,
    )
    return TrialSession(
        Pool(),
        job("my:loop", "none"),
        assignment,
        cast(DatasetCache, SimpleNamespace(shards={})),
    )


def test_r13_a_silence_of_five_minutes_is_reported_once_with_the_stack(
    session: Any, clock: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    session.check_silence()
    assert not session.pool.heard
    clock.now += SILENT_AFTER
    session.check_silence()
    session.check_silence()
    (silence,) = session.pool.heard
    assert (
        silence.rank == 1
        and silence.seconds >= SILENT_AFTER
        and "test_r13_a_silence" in silence.stack
    )
    assert "rank 1" in capsys.readouterr().err
    session.report({"loss": 1.0}, None)
    session.check_silence()
    assert len(session.pool.heard) == 1
    clock.now += SILENT_AFTER
    session.check_silence()
    assert len(session.pool.heard) == 2


def test_r13_the_wait_for_a_decision_is_not_silence(
    session: Any, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    decided = []
    session.assignment.may_change_size = True

    def decide(*arguments: Any) -> bool:
        clock.now += 10 * SILENT_AFTER
        session.check_silence()
        decided.append(1)
        return True

    monkeypatch.setattr("sweeps.execution.worker.trial_session.ray.get", lambda answer: answer)
    session.pool.may_continue = SimpleNamespace(remote=decide)
    session.report({"loss": 1.0}, None)
    assert decided == [1]
    assert not session.pool.heard
    session.check_silence()
    assert not session.pool.heard


def test_a_stack_starts_in_the_users_code_and_an_ended_thread_has_none() -> None:
    stack = stack_of(threading.get_ident())
    assert "in test_a_stack_starts" in stack.splitlines()[0]
    ended = threading.Thread(target=lambda: None)
    ended.start()
    ended.join()
    assert stack_of(ended.ident or 0) == ""
    assert SILENT_AFTER == 300


def test_r13_late_ranks_are_overdue() -> None:
    async def look() -> None:
        run = RunningTrial(new_trial(trial(0, {}, 2, "none")), "")
        run.begin_attempt(rank_places(2))
        run.silent = {0: Silence(0, 11.0, "here"), 1: Silence(1, 9.0)}
        assert run.find_overdue(10) == [Silence(0, 11.0, "here")]
        _ = run.decisions[3]  # a rank waits for the driver
        assert run.find_overdue(10) == []

    asyncio.run(look())


def test_a_run_of_the_loop_whose_reports_stay_in_the_process_is_not_silent(session: Any) -> None:
    sent: list[RankUpdate] = []

    def record_update(attempt: Any, update: Any) -> Any:
        sent.append(update)
        return SimpleNamespace(
            future=lambda: SimpleNamespace(add_done_callback=lambda callback: None)
        )

    session.pool.record_update = SimpleNamespace(remote=record_update)
    session.send_if_new()
    session.admit({"loss": 1.0}, 1)
    session.send_if_new()
    session.send_if_new()
    assert sent == [RankUpdate(1, 0)]
