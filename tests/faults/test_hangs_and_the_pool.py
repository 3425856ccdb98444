"""Hanging loops and a killed pool: other trials continue, and nothing is left behind."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from sweeps.core.trial import State
from tests.commands import command, space_of
from tests.execution.driving import Driving, job, trial
from tests.processes import actor_of
from tests.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]


def test_a_loop_that_hangs_fails_at_its_limit_and_its_log_has_the_stack(
    clean_ray: Any, tmp_path: Path
) -> None:
    with Driving(job("tests.faults.loops:hangs", "torch", trial_timeout=3.0), tmp_path) as driving:
        for number, how in enumerate(("everywhere", "on rank 1", "not at all")):
            t = trial(number, {"how": how}, 2, "torch")
            driving.start(t)
            outcome, _ = driving.finish(t)
            if how == "not at all":
                assert outcome.state is State.COMPLETE, outcome.error
                continue
            assert (outcome.state, outcome.attempt) == (State.FAIL, 1)
            assert outcome.error is not None
            assert "longer than `limits.trial_timeout` (3 s)" in outcome.error
            log = (tmp_path / t.id / "logs" / "rank-1.log").read_text()
            assert "tests/faults/loops.py" in log and "wait_for_ever" in log, log


def test_the_time_of_a_lost_attempt_counts(clean_ray: Any, tmp_path: Path) -> None:
    with Driving(
        job("tests.faults.loops:dies_late_and_hangs", "none", trial_timeout=3.0), tmp_path
    ) as driving:
        t = trial(0, {"latch": str(tmp_path)}, 1, "none")
        driving.start(t)
        outcome, _ = driving.finish(t)
        assert (outcome.state, outcome.attempt) == (State.FAIL, 2)
        assert outcome.error is not None
        assert "the log of each rank has the stack of every thread" in outcome.error
        assert "wait_for_ever" in (tmp_path / t.id / "logs" / "rank-0.log").read_text()


def test_a_killed_pool_costs_only_the_running_trials_an_attempt(tmp_path: Path) -> None:
    file = space_of(tmp_path, "held", limits="max_trials: 3")
    process = command("run", file, "--dir", tmp_path / "runs", "--json")
    wait_until(lambda: list(tmp_path.glob("own-0000.two")), 120, "the first trial to hold")
    journal = next((tmp_path / "runs").glob("own-*/study.journal"))
    wait_until(
        lambda: '"name":"checkpoint_000002"' in journal.read_text(),
        60,
        "its checkpoint to be on record",
    )
    pool = actor_of(psutil.Process(process.pid), "pool")
    assert pool is not None
    os.kill(pool.pid, signal.SIGKILL)
    (tmp_path / "go").touch()
    out, err = process.communicate(timeout=180)
    assert process.returncode == 0, err
    result = json.loads(out)
    assert result["trials"] == {"completed": 3, "pruned": 0, "failed": 0}
    starts = {
        f.name.split("started-at-")[1].split(".")[0] for f in tmp_path.glob("own-0000.started-at-*")
    }
    assert starts == {"0", "2"}, "it went on from its checkpoint"
    shown = command("show", result["dir"], "--trial", "0", "--json")
    trial_json = json.loads(shown.communicate(timeout=60)[0])
    assert trial_json["attempts"] == 2 and [step for step, _ in trial_json["curve"]] == [
        1,
        2,
        3,
        4,
        5,
    ]
