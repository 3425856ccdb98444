"""A worker of an elastic gang is killed: the others continue from the checkpoint, and the gang
grows again. Nothing is lost or doubled.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray

from sweeps.core.resources import Shape
from sweeps.core.trial import State, Trial
from tests.execution.driving import Driving, job, trial
from tests.waiting import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]

EACH = (("CPU", 0.5),)


def elastic_trial(number: int, folder: Path, least: int, most: int, **config: object) -> Trial:
    """Return a trial of the loop `elastic`."""
    params = {
        "loop": "elastic",
        "folder": str(folder),
        "every": 2,
        "steps": 2000,
        "hold": 4,
        "until": most,
        "seconds": 0.02,
        **config,
    }
    return replace(trial(number, params, 1, "torch"), shape=Shape(least, EACH, "torch", most))


@contextlib.contextmanager
def pool(folder: Path, workers: int, rungs: tuple[int, ...] = ()) -> Iterator[Driving]:
    """A pool with room for this many workers."""
    driving = Driving(
        job("tests.execution.loops:named", "torch", rungs=rungs), folder, {"CPU": workers * 0.5}
    )
    try:
        yield driving
    finally:
        (folder / "hold").unlink(missing_ok=True)
        driving.close()


def held(folder: Path) -> dict[int, int]:
    """Return the processes that hold, by rank."""
    return {
        int(rank): int(pid)
        for _, rank, pid in (file.name.split("-") for file in folder.glob("held-*"))
    }


@pytest.mark.parametrize(
    "victims, rungs",
    [
        pytest.param((1,), (), id="one", marks=pytest.mark.long),
        pytest.param((0,), (), id="rank 0", marks=pytest.mark.long),
        pytest.param(
            (1, 2), tuple(range(6, 2001, 2)), id="two, and each later checkpoint is at a rung"
        ),
    ],
)
def test_elastic_gang_of_three_shrinks_and_grows_again(
    clean_ray: Any, tmp_path: Path, victims: Any, rungs: Any
) -> None:
    with pool(tmp_path, 3, rungs) as driving:
        (tmp_path / "hold").touch()
        running = elastic_trial(0, tmp_path, 1, 3)
        driving.start(running)
        wait_until(lambda: len(held(tmp_path)) == 3, 60, "three ranks to hold")
        wait_until(lambda: driving.checkpoint_step(running) == 2, 20, "the checkpoint to be known")
        before = held(tmp_path)
        for rank in victims:
            os.kill(before[rank], signal.SIGKILL)
        others = 3 - len(victims)
        ray.get(driving.pool.set_all_started.remote(True))
        (tmp_path / "hold").unlink()
        outcome, reports = driving.finish(running, timeout=120)
        assert outcome.state is State.COMPLETE, outcome.error
        assert [r.step for r in reports] == list(range(1, len(reports) + 1)), (
            "no report is lost or doubled"
        )
        assert all(r.metrics["sum"] == r.metrics["world"] for r in reports), (
            "every rank took part in every step"
        )
        assert [r.metrics["rows"] for r in reports] == [
            256 // int(r.metrics["world"]) for r in reports
        ], "shards are split again"
        first, second, third = outcome.sizes
        assert (first.step, first.workers, first.reported) == (0, 3, 0)
        assert (second.step, second.workers) == (2, others)
        assert second.reported in ((2, 3) if 0 in victims else (3,)), (
            "rank 0 may die before it sends its report of step 3"
        )
        assert (
            third.workers == 3
            and third.step == third.reported == len(reports) - 4
            and third.step % 2 == 0
        ), "it grew at a checkpoint"
        assert [int(r.metrics["world"]) for r in reports] == [3] * second.reported + [others] * (
            third.step - second.reported
        ) + [3] * 4
        assert outcome.attempt == 3
        marks = {int(file.name.split("-")[2]) for file in tmp_path.glob("held-*")}
        assert marks == set(before.values()), "the other processes continued"
        assert others * outcome.seconds < outcome.worker_seconds < 3 * outcome.seconds, (
            "each worker's time counts"
        )
        hit = [before[rank] for rank in victims]
        wait_until(
            lambda: not any(map(psutil.pid_exists, hit)),
            10,
            "the processes that were hit to be gone",
        )
        usage = ray.get(driving.pool.usage.remote())
        assert not usage.busy.get("CPU") and usage.warm["CPU"] == 1.5, (
            "three idle workers, nothing else"
        )


@pytest.mark.long
def test_below_the_lower_bound_the_trial_waits_for_a_worker(clean_ray: Any, tmp_path: Path) -> None:
    with pool(tmp_path, 3) as driving:
        (tmp_path / "hold").touch()
        running = elastic_trial(0, tmp_path, 3, 4, steps=6, until=0)
        driving.start(running)
        wait_until(lambda: len(held(tmp_path)) == 3, 60, "three ranks to hold")
        os.kill(held(tmp_path)[2], signal.SIGKILL)
        (tmp_path / "hold").unlink()
        outcome, reports = driving.finish(running, timeout=120)
        assert outcome.state is State.COMPLETE, outcome.error
        assert [r.step for r in reports] == [1, 2, 3, 4, 5, 6] and {
            r.metrics["world"] for r in reports
        } == {3.0}
        assert [size.workers for size in outcome.sizes] == [3] and outcome.attempt == 2
