"""A loop may report by `ray.train`, by Ray Tune, by what it returns or by what it yields; a
checkpoint is known at once.
"""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from sweeps.core.loop_context import Current, set_current
from sweeps.core.text.secrets import remember
from sweeps.core.trial import Report, State
from sweeps.data.splits.refit_rows import RefitRows
from sweeps.execution.worker.metric_values import MOST_QUOTED, flatten, numbers_in, quote
from sweeps.execution.worker.training_loop import _report_result
from sweeps.study.events import TrialReported
from tests.execution.driving import Driving, Gang, job, trial
from tests.processes import wait_until_clean
from tests.waiting import wait_until


def test_nested_metrics_are_flatten() -> None:
    assert flatten({"a": {"b": 1, "c": {0: 2.0}}, "d": {}, "e": 3}) == {
        "a.b": 1,
        "a.c.0": 2.0,
        "e": 3,
    }
    assert numbers_in(flatten({"a": {"b": 1, "text": "x", "flag": True}})) == {"a.b": 1.0}


def test_a_quoted_value_has_no_part_of_a_secret() -> None:
    remember("my-own-secret")
    assert quote(f"{'x' * (MOST_QUOTED - 5)}my-own-secret").endswith("***'")


def losses(reports: list[Report]) -> list[float]:
    return [r.metrics["loss"] for r in reports]


@pytest.mark.faults
@pytest.mark.timeout(120)
def test_a_ray_tune_function_continues_from_its_checkpoint(clean_ray: Any, tmp_path: Path) -> None:
    driving = Driving(job("tests.execution.loops:tune_function", "none"), tmp_path)
    latch = tmp_path / "latch"
    try:
        t = trial(0, {"x": 3.0, "latch": str(latch)}, 1, "none")
        driving.start(t)
        wait_until(
            lambda: latch.exists() and latch.read_text() and driving.checkpoint_step(t) == 2,
            60,
            "the checkpoint of step 2",
        )
        os.kill(int(latch.read_text()), signal.SIGKILL)
        outcome, reports = driving.finish(t)
        assert (outcome.state, outcome.attempt) == (State.COMPLETE, 2), outcome.error
        assert [(r.step, r.metrics["start"]) for r in reports] == [(1, 0), (2, 0), (3, 2)]
    finally:
        driving.close()


@pytest.mark.integration
@pytest.mark.extended
@pytest.mark.timeout(120)
def test_tunes_callback_of_xgboost_reports_and_saves_each_round(
    clean_ray: Any, tmp_path: Path
) -> None:
    with Driving(
        job("tests.execution.loops:boosts_for_tune", "xgboost", rungs=(2,)), tmp_path
    ) as driving:
        for number, (stop_at, steps, ended) in enumerate(
            [(None, 4, State.COMPLETE), (2, 2, State.PRUNED)]
        ):
            t = trial(number, {"lr": 0.3}, 1, "xgboost")
            state, reports = driving.reports_of(t, stop_at)
            assert (state, len(reports)) == (ended, steps)
            assert losses(reports) == sorted(losses(reports), reverse=True)
            assert (tmp_path / t.id / f"checkpoint_{steps:06d}" / "model.ubj").is_file()


@pytest.mark.integration
@pytest.mark.timeout(300)
def test_a_worker_stays_warm_if_a_stopped_trial_reports_soon(
    clean_ray: Any, tmp_path: Path
) -> None:
    one_cpu = {"CPU": 1.0}
    driving = Driving(job("tests.execution.loops:reports_at_each_latch", "none"), tmp_path, one_cpu)
    first, second = tmp_path / "first", tmp_path / "second"
    pids = []
    try:
        for number, folder in enumerate((first, second)):
            folder.mkdir()
            t = trial(number, {"folder": str(folder)}, 1, "none")
            driving.start(t)
            reports: list[Report] = []
            while not reports:
                events = driving.update(t, timeout=180).events
                reports += [r for e in events if isinstance(e, TrialReported) for r in e.reports]
            if folder is first:
                ray.get(driving.pool.stop.remote(t.id))
            (folder / "go").touch()
            outcome, more = driving.finish(t)
            assert outcome.state is (State.PRUNED if folder is first else State.COMPLETE)
            assert [r.metrics["loss"] for r in more] == [0.5] * number
            pids.append(reports[0].metrics["pid"])
    finally:
        driving.close()
    assert pids[0] == pids[1]


@pytest.mark.integration
@pytest.mark.timeout(120)
def test_a_trial_that_is_trained_again_has_no_old_update(clean_ray: Any, tmp_path: Path) -> None:
    with Driving(job("tests.execution.loops:three_steps", "none"), tmp_path) as driving:
        t = trial(0, {}, 1, "none")
        driving.start(t)
        while driving.update(t).end is None:
            pass
        rows = RefitRows(("train",), str(tmp_path))
        ray.get(driving.pool.prepare_refit.remote({}, rows), timeout=60)
        # Ray keeps no order among calls: the driver may ask before the trial has started again.
        early = driving.pool.step.remote(t.id)
        assert not ray.wait([early], timeout=0.5)[0]
        driving.start(t)
        assert ray.get(early, timeout=60)["update"].events


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(1, marks=pytest.mark.extended, id="1 worker"),
        pytest.param(2, id="2 workers"),
    ],
)
def gang(
    request: pytest.FixtureRequest, local_ray: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gang]:
    """One gang of each size for all tests that need no other kind of pool.

    It holds its CPUs: tests without it come first in this file.
    """
    gang = Gang(request.param, "none", tmp_path_factory.mktemp("gang"), rungs=(2,))
    yield gang
    gang.close()
    wait_until_clean(local_ray)


RETURNED = [
    pytest.param({"loss": 9.0}, {"loss": 9.0}, id="the metric"),
    pytest.param({"a": {"loss": 1}, "loss": 9}, {"a.loss": 1.0, "loss": 9.0}, id="nested"),
    pytest.param({"loss": math.nan}, {"loss": pytest.approx(math.nan, nan_ok=True)}, id="nan"),
    pytest.param({"model": "a"}, {}, id="something else"),
    pytest.param([1, 2], {}, id="no dict"),
    pytest.param(0.5, {}, id="a number"),
]


@pytest.mark.parametrize("returned, wanted", RETURNED)
def test_after_reports_a_returned_dict_with_the_metric_is_the_trials_value(
    returned: Any, wanted: Any
) -> None:
    session: Any = SimpleNamespace(reports=2, job=SimpleNamespace(metric="loss"))
    current = Current("0000", 1, None, None, None, "loss", "minimize", None, 1, None)
    set_current(current)
    try:
        _report_result(session, returned)
    finally:
        set_current(None)
    assert current.final == wanted


@pytest.mark.parametrize("returned, wanted", [(0.5, [{"loss": 0.5}]), (True, []), (None, [])])
def test_a_returned_number_is_the_only_report(returned: bool | float | None, wanted: Any) -> None:
    sent: list[dict[str, float]] = []
    session: Any = SimpleNamespace(
        reports=0,
        job=SimpleNamespace(metric="loss"),
        assignment=SimpleNamespace(checkpoint=None),
        report=lambda metrics, checkpoint: sent.append(metrics),
    )
    _report_result(session, returned)
    assert sent == wanted


@pytest.mark.integration
@pytest.mark.timeout(120)
def test_each_yielded_dict_is_a_report_and_stop_closes_generator(gang: Any, tmp_path: Path) -> None:
    state, reports = gang.run("yields_metrics", x=1.0, folder=str(tmp_path))
    assert (state, losses(reports)) == (State.COMPLETE, [1.0, 1 / 2, 1 / 3, 1 / 4])
    assert (tmp_path / "closed").read_text() == "4"
    state, reports = gang.run("yields_metrics", stop_at=2, x=1.0, folder=str(tmp_path))
    assert (state, losses(reports)) == (State.PRUNED, [1.0, 1 / 2])
    assert (tmp_path / "closed").read_text() == "2"


@pytest.mark.integration
@pytest.mark.timeout(120)
def test_a_ray_tune_function_reports_and_knows_its_trial(gang: Any) -> None:
    state, reports = gang.run("tune_function", x=3.0)
    assert (state, losses(reports)) == (State.COMPLETE, [3.0, 1.5, 1.0])
    assert {(r.metrics["named"], r.metrics["world"], r.metrics["cpus"]) for r in reports} == {
        (1.0, gang.workers, gang.workers)
    }
