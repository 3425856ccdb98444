"""Gangs over many trials: nothing of one reaches the next, what is kept is kept on all ranks, and a
worn gang goes.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sweeps.core.trial import State
from sweeps.space import TrainerSpec
from tests.execution.driving import Driving, job, trial

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]


@pytest.mark.parametrize("reuse, gangs", [("auto", ["001", "001"]), ("never", ["001", "002"])])
def test_a_worker_is_closed_after_each_trial_if_it_may_not_be_reused(
    clean_ray: Any, tmp_path: Path, reuse: str, gangs: Any
) -> None:
    settings = job("tests.execution.loops:three_steps", "none")
    trainers = {"": replace(settings.trainers[""], reuse=reuse)}
    with Driving(replace(settings, trainers=trainers), tmp_path) as driving:
        for number in range(2):
            driving.run(trial(number, {}, 1, "none"))
        titles = [
            (tmp_path / f"{number:04d}" / "logs" / "rank-0.log").read_text().split("\n", 1)[0]
            for number in range(2)
        ]
        assert [title.rsplit("worker-", 1)[1] for title in titles] == gangs


def test_the_same_workers_train_for_trainers_with_different_backends(
    clean_ray: Any, tmp_path: Path
) -> None:
    backends = {"net": "torch", "trees": "xgboost", "plain": "none"}
    loops = {"net": "torch_loop", "trees": "xgboost_loop", "plain": "three_steps"}
    trainers = {
        label: TrainerSpec(
            None, f"tests.execution.loops:{loops[label]}", backend, None, label=label
        )
        for label, backend in backends.items()
    }
    settings = replace(job("", "none"), trainers=trainers, metric=None)
    with Driving(settings, tmp_path) as driving:
        order = ["net", "trees", "net", "plain", "trees"]
        workers = []
        for number, (label, size) in enumerate((label, size) for size in (2, 1) for label in order):
            one = trial(number, {"lr": 0.1}, size, backends[label])
            state, reports = driving.reports_of(replace(one, labels={"trainer": label}))
            assert state is State.COMPLETE and reports, label
            logs = (tmp_path / one.id / "logs").glob("rank-*.log")
            titles = [log.read_text().split("\n", 1)[0] for log in logs]
            assert len(titles) == size
            workers += [title.rsplit("worker-", 1)[1] for title in titles]
        assert set(workers) == {"001", "002"}, workers
