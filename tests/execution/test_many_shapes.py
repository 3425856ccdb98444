"""Two hundred trials of mixed shapes on one set of workers: no process is added, memory stays flat,
and no metric differs by a bit.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from sweeps.core.resources import Shape
from sweeps.core.trial import State, Trial
from tests.execution.driving import Driving, job, trial

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

TRIALS = 200
# Three workers share the two CPUs of the tests' Ray, and a fourth can run a trial of its own.
EACH = 0.5


def mixed(number: int) -> Trial:
    """Return a trial with 1, 2 or 3 workers, and one of two seeds."""
    one = trial(
        number, {"loop": "torch_loop", "lr": 0.05}, 1 + number % 3, "torch", seed=number // 3 % 2
    )
    return replace(one, shape=Shape(one.shape.workers, (("CPU", EACH),), "torch"))


def workers() -> dict[int, psutil.Process]:
    """Return the workers' processes."""
    children = psutil.Process().children(recursive=True)
    return {
        p.pid: p for p in children if any(part.startswith("ray::Worker") for part in p.cmdline())
    }


def memory() -> float:
    """Return the memory that only the workers use, in MB."""
    return sum(process.memory_full_info().uss for process in workers().values()) / 2**20


def curve(driving: Driving, one: Trial) -> tuple[dict[str, float], ...]:
    progress, reports = driving.finish(one, timeout=300)
    assert progress.state is State.COMPLETE and progress.attempts == 1, progress.error
    return tuple(dict(report.metrics) for report in reports)


def test_trials_of_mixed_shapes_share_one_set_of_workers(clean_ray, tmp_path: Path):
    alone: dict[tuple[int, int], tuple[dict[str, float], ...]] = {}
    for number in range(6):
        one = mixed(number)
        folder = tmp_path / f"alone-{number}"
        folder.mkdir()
        driving = Driving(job("tests.execution.loops:named", "torch"), folder, {"CPU": 2.0})
        try:
            driving.start(one)
            alone[one.shape.workers, one.seed] = curve(driving, one)
        finally:
            driving.close()
    assert len(alone) == 6 and len(set(map(str, alone.values()))) == 6, "the trials differ"

    driving = Driving(job("tests.execution.loops:named", "torch"), tmp_path, {"CPU": 2.0})
    try:
        trials = [mixed(number) for number in range(TRIALS)]
        began = time.monotonic()
        for one in trials:
            driving.start(one)
        sizes: list[float] = []
        first: set[int] = set()
        for one in trials:
            assert curve(driving, one) == alone[one.shape.workers, one.seed], one.id
            if one.number == TRIALS // 4:
                first = set(workers())
            if one.number % (TRIALS // 4) == TRIALS // 4 - 1:
                sizes.append(memory())
        seconds = time.monotonic() - began
        assert set(workers()) == first and len(first) <= 4, (
            "no process was started after the first quarter"
        )
        print(
            f"{TRIALS} trials in {seconds:.0f} s on {len(first)} processes; MB after each "
            f"quarter: {[round(size) for size in sizes]}"
        )
        assert sizes[-1] < 1.05 * sizes[0], sizes
    finally:
        driving.close()
