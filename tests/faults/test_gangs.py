"""A worker of a gang is killed or stopped at every stage of a trial: it alone is replaced, and the
trial continues from its checkpoint.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from sweeps.core.resources import Shape
from sweeps.core.trial import State, Trial
from tests.execution.driving import Driving, job, trial
from tests.waiting import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]

BACKEND = "gang_stages:HoldingConfig"
# Seconds without a heartbeat until a worker is lost. A worker that imports torch on a busy machine
# has been seen to be silent for four.
HEARTBEATS = {signal.SIGKILL: 60.0, signal.SIGSTOP: 8.0}
# Three workers share the two CPUs of the tests' Ray.
EACH = 0.5
STAGES = ("connect", "train", "before_collective", "in_collective", "checkpoint", "end")


def gang_trial(number: int, workers: int) -> Trial:
    """Return a trial of the loop that holds at stages."""
    return replace(
        trial(number, {}, workers, BACKEND), shape=Shape(workers, (("CPU", EACH),), BACKEND)
    )


@contextlib.contextmanager
def pool(folder: Path, workers: int, how: signal.Signals) -> Iterator[Driving]:
    """A pool whose workers find the loop of `gang_stages` in the folder."""
    shutil.copy(Path(__file__).with_name("gang_stages.py"), folder)
    asked = replace(
        job("gang_stages:loop", BACKEND), roots=(str(folder),), heartbeat_timeout=HEARTBEATS[how]
    )
    driving = Driving(asked, folder, {"CPU": workers * EACH})
    try:
        yield driving
    finally:
        for held in folder.glob("hold-*"):
            held.unlink()
        driving.close()


def pids_at(folder: Path, stage: str) -> dict[str, int]:
    """Return the processes that came to a stage, by rank."""
    return {
        name.split("-")[1]: int(name.split("-")[2])
        for name in (file.name for file in folder.glob(f"{stage}-*-*"))
    }


def strike(
    driving: Driving, folder: Path, running: Trial, stage: str, rank: int, how: signal.Signals
) -> float:
    """Start a trial, hit one rank when all have come to a stage, and return the seconds until the
    trial trains again.
    """
    if stage == "connect":  # Take the gang apart, so that there is one to connect.
        assert driving.run(gang_trial(running.number + 900, 1))[0] is State.COMPLETE
    held = "before_collective" if stage == "in_collective" else stage
    for mark in folder.glob("*-*-*"):
        mark.unlink()
    (folder / f"hold-{held}").touch()
    driving.start(running)
    there = {"before_collective": 1, "in_collective": running.shape.workers - 1}.get(
        stage, running.shape.workers
    )
    wait_until(lambda: len(pids_at(folder, stage)) == there, 60, f"all ranks to come to {stage}")
    victim = pids_at(folder, stage)[str(rank)]
    for mark in folder.glob("end-*-*"):
        mark.unlink()
    os.kill(victim, how)
    began = time.monotonic()
    (folder / f"hold-{held}").unlink()
    outcome, reports = driving.finish(running, timeout=90)
    seconds = time.monotonic() - began
    assert outcome.state is State.COMPLETE, outcome.error
    assert [r.step for r in reports] == [1, 2, 3, 4, 5], "no report is lost or doubled"
    assert [r.metrics["loss"] for r in reports] == [1 / step for step in range(1, 6)], (
        "every rank took part in every step"
    )
    assert outcome.attempt == (1 if stage == "connect" else 2)
    wait_until(lambda: not psutil.pid_exists(victim), 10, "the process that was hit to be gone")
    return seconds


CASES = [
    pytest.param(2, signal.SIGKILL, ("train", "in_collective", "checkpoint"), id="two, SIGKILL"),
    pytest.param(
        2, signal.SIGKILL, STAGES, id="two, SIGKILL at all stages", marks=pytest.mark.long
    ),
    pytest.param(3, signal.SIGKILL, STAGES, id="three, SIGKILL", marks=pytest.mark.long),
    pytest.param(
        2, signal.SIGSTOP, STAGES, id="two, SIGSTOP at all stages", marks=pytest.mark.long
    ),
    pytest.param(
        3, signal.SIGSTOP, STAGES[:3], id="three, SIGSTOP, first stages", marks=pytest.mark.long
    ),
    pytest.param(
        3, signal.SIGSTOP, STAGES[3:], id="three, SIGSTOP, last stages", marks=pytest.mark.long
    ),
]


@pytest.mark.parametrize("workers, how, stages", CASES)
def test_a_rank_that_is_lost_at_any_stage_is_replaced_alone(
    clean_ray: Any, tmp_path: Path, workers: Any, how: Any, stages: Any
) -> None:
    processes: set[int] = set()
    seconds: list[float] = []
    with pool(tmp_path, workers, how) as driving:
        for stage in stages:
            for rank in {"before_collective": [0], "in_collective": range(1, workers)}.get(
                stage, range(workers)
            ):
                seconds.append(
                    strike(driving, tmp_path, gang_trial(len(seconds), workers), stage, rank, how)
                )
                now = set(pids_at(tmp_path, "end").values())
                assert len(now) == workers
                assert not processes or len(now - processes) == 1, (
                    "one new process, and the others are those of the trial before"
                )
                processes = now
    if how is signal.SIGKILL:
        assert sorted(seconds)[len(seconds) // 2] < 12, seconds


@pytest.mark.long
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=lambda how: how.name)
def test_a_worker_that_is_lost_while_it_imports_is_replaced(
    clean_ray: Any, tmp_path: Path, how: Any
) -> None:
    with pool(tmp_path, 2, how) as driving:
        (tmp_path / "hold-import").touch()
        one = gang_trial(0, 2)
        driving.start(one)
        wait_until(lambda: list(tmp_path.glob("import-any-*")), 60, "a worker to import the loop")
        victim = next(iter(pids_at(tmp_path, "import").values()))
        os.kill(victim, how)
        (tmp_path / "hold-import").unlink()
        outcome, reports = driving.finish(one, timeout=90)
        assert outcome.state is State.COMPLETE and [r.step for r in reports] == [1, 2, 3, 4, 5], (
            outcome.error
        )
        wait_until(lambda: not psutil.pid_exists(victim), 10, "the process that was hit to be gone")
