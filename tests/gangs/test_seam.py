"""The seam holds: Ray's documented loops, unchanged, stopped up to 200 times on one warm gang, and nothing hangs or leaks.

When Ray changes its insides this is what breaks first; `sweeps/gangs/seam.py` is the only file to mend.
"""

from __future__ import annotations

import inspect

import pytest

from sweeps.trial import State
from tests.gangs.driving import Driving, job, trial

RUNGS = (1, 2, 3, 4)


def test_ray_still_has_what_the_seam_replaces():
    from ray.train.v2._internal.execution.train_fn_utils import TrainFnUtils

    from sweeps.gangs import seam

    ours = {"report", "get_checkpoint", "get_dataset_shard", "get_context", "get_all_reported_checkpoints", "get_preemption_info"}
    collectives = {"is_distributed", "barrier", "broadcast_from_rank_zero"}
    assert TrainFnUtils.__abstractmethods__ == ours | collectives, "Ray's TrainFnUtils has other methods now: look at each"
    theirs = set(inspect.signature(TrainFnUtils.report).parameters)
    assert theirs == set(inspect.signature(seam._TrialUtils.report).parameters)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("loop, backend, metric", [("torch_loop", "torch", "loss"), ("xgboost_loop", "xgboost", "valid-rmse")])
@pytest.mark.parametrize("stops", [pytest.param(30, marks=pytest.mark.integration), pytest.param(200, marks=pytest.mark.long)])
def test_documented_loops_stop_anywhere_and_leave_nothing(clean_ray, tmp_path, stops, workers, loop, backend, metric):
    driving = Driving(job(f"tests.gangs.loops:{loop}", backend, metric, rungs=RUNGS), tmp_path)
    try:
        first = driving.run(trial(0, {"lr": 0.05}, workers, backend, seed=7))
        assert first[0] is State.COMPLETE
        for i in range(1, stops + 1):
            stop_at = RUNGS[i % len(RUNGS)]
            state, losses = driving.run(trial(i, {"lr": 0.01 + 0.0005 * i}, workers, backend), stop_at)
            assert (state, len(losses)) == (State.PRUNED, stop_at)
        last = driving.run(trial(stops + 1, {"lr": 0.05}, workers, backend, seed=7))
        assert last == first, "the same trial first and last on a warm gang gives other metrics"
    finally:
        driving.close()
