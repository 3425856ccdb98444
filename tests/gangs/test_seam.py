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


@pytest.mark.integration
def test_a_shard_is_read_where_it_lies_and_no_actor_of_ray_data_is_started_for_it(clean_ray, tmp_path, monkeypatch):
    import pandas as pd
    import ray.data
    from ray.data._internal import stats
    from ray.data._internal.execution.streaming_executor import StreamingExecutor

    from sweeps.gangs import seam

    class Session:
        name, folder = "0000", str(tmp_path)
        dataset = ray.get(ray.put(ray.data.from_blocks([pd.DataFrame({"x": [1.0, 2.0, 3.0]})]))).materialize()

        def shard(self, name):
            return seam.Shard(self.dataset)

    started = []
    monkeypatch.setattr(stats, "get_or_create_stats_actor", lambda: started.append("the actor that counts what is read"))
    monkeypatch.setattr(StreamingExecutor, "__init__", lambda self, *args, **kwargs: started.append("an executor"))
    with seam.in_place(Session(), distributed=False):
        shard = ray.train.get_dataset_shard("train")
        assert list(shard.materialize().to_pandas()["x"]) == [1.0, 2.0, 3.0]
        assert [len(batch["x"]) for batch in shard.iter_batches(batch_size=2)] == [2, 1]
        assert shard.materialize().count() == 3
    assert not started


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
