"""Gangs over many trials: nothing of one reaches the next, what is kept is kept on all ranks, and a
worn gang goes.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from sweeps.core.trial import State
from sweeps.space import Step
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
    driving = Driving(
        replace(job("tests.execution.loops:three_steps", "none"), reuse=reuse), tmp_path
    )
    try:
        for number in range(2):
            driving.run(trial(number, {}, 1, "none"))
        titles = [
            (tmp_path / f"{number:04d}" / "logs" / "rank-0.log").read_text().split("\n", 1)[0]
            for number in range(2)
        ]
        assert [title.rsplit("worker-", 1)[1] for title in titles] == gangs
    finally:
        driving.close()


def test_a_transformation_of_the_data_inside_a_loop_is_refused_in_one_line(clean_ray, tmp_path):
    driving = Driving(job("tests.execution.loops:transforms_lazily", "none"), tmp_path)
    try:
        t = trial(0, {}, 1, "none")
        driving.start(t)
        progress, _ = driving.finish(t, timeout=60)
        assert progress.state is State.FAIL
        last = progress.error.splitlines()[-1]
        assert "MapBatches" in last and "put the transformation into `space.preprocessor`" in last
    finally:
        driving.close()


def test_a_worker_that_leaks_is_closed_and_another_takes_over(clean_ray, tmp_path):
    driving = Driving(job("tests.execution.loops:leaks", "none"), tmp_path)
    try:
        losses = []
        for number, files in enumerate((0, 200, 200, 0)):
            t = trial(number, {"files": files}, 1, "none")
            losses.append(driving.run(t)[1][0])
        assert losses == [0.0, 200.0, 400.0, 0.0]
        assert "on worker-002" in (tmp_path / "0003" / "logs" / "rank-0.log").read_text()
    finally:
        driving.close()


def test_caches_of_several_data_keys_are_kept_and_the_warm_gang_is_chosen(clean_ray, tmp_path):
    driving = Driving(job("tests.execution.loops:keeps", "none"), tmp_path)
    try:
        built = []
        for number, steps in enumerate(((), (Step("a"),), (), (Step("a"),), ())):
            built.append(driving.run(trial(number, {}, 2, "none", steps=steps))[1][0])
        # Ray counts no spare CPU here: the second chain's fit took the place of the first gang, and
        # its caches with it
        assert built == [1.0, 1.0, 1.0, 0.0, 0.0]
    finally:
        driving.close()
