"""Gangs over many trials: nothing of one reaches the next, what is kept is kept on all ranks, and a
worn gang goes.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from sweeps.core.trial import State
from tests.execution.driving import Driving, job, trial

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_trial_is_the_same_as_the_first_and_as_the_fiftieth(clean_ray, tmp_path, workers):
    driving = Driving(job("tests.execution.loops:careless", "torch"), tmp_path)
    params = {"folder": str(tmp_path)}
    try:
        seen = []
        for number in range(50):
            t = trial(number, params, workers, "torch", seed=7 if number in (0, 49) else number)
            driving.start(t)
            progress, reports = driving.finish(t)
            assert progress.state is State.COMPLETE, progress.error
            seen.append(reports[-1].metrics)
        assert seen[49] == seen[0] and seen[1] != seen[0]
        logs = (tmp_path / "0049" / "logs" / "rank-0.log").read_text()
        assert "on worker-00" in logs and "worker-003" not in logs, (
            "fifty trials ran on the same workers"
        )
    finally:
        driving.close()


@pytest.mark.parametrize("reuse, gangs", [("auto", ["001", "001"]), ("never", ["001", "002"])])
def test_a_worker_is_closed_after_each_trial_if_it_may_not_be_reused(
    clean_ray, tmp_path, reuse, gangs
):
    with Driving(
        replace(job("tests.execution.loops:three_steps", "none"), reuse=reuse), tmp_path
    ) as driving:
        for number in range(2):
            driving.run(trial(number, {}, 1, "none"))
        titles = [
            (tmp_path / f"{number:04d}" / "logs" / "rank-0.log").read_text().split("\n", 1)[0]
            for number in range(2)
        ]
        assert [title.rsplit("worker-", 1)[1] for title in titles] == gangs
