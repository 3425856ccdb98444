"""A loop may report by `ray.train`, by Ray Tune, by what it returns or by what it yields; a checkpoint is known at once."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from sweeps.core.trial import Report, State
from sweeps.execution.rank import flattened, numeric
from tests.execution.driving import Driving, job, trial
from tests.waiting import wait_until


def test_nested_metrics_are_flattened():
    assert flattened({"a": {"b": 1, "c": {0: 2.0}}, "d": {}, "e": 3}) == {"a.b": 1, "a.c.0": 2.0, "e": 3}
    assert numeric(flattened({"a": {"b": 1, "text": "x", "flag": True}})) == {"a.b": 1.0}


def reported(folder, loop: str, params: dict[str, Any], workers: int = 1, backend: str = "none", **more: Any) -> tuple[State, list[Report]]:
    """Run one trial of a loop; how it ended, and its reports."""
    driving = Driving(job(f"tests.execution.loops:{loop}", backend, **more), folder)
    try:
        t = trial(0, params, workers, backend)
        driving.start(t)
        progress, reports = driving.finish(t)
        assert progress.error is None, progress.error
        return progress.state, reports
    finally:
        driving.close()


def losses(reports: list[Report]) -> list[float]:
    return [r.metrics["loss"] for r in reports]


@pytest.mark.integration
@pytest.mark.timeout(120)
def test_the_objective_may_be_a_nested_metric(clean_ray, tmp_path):
    state, reports = reported(tmp_path, "nested_metrics", {}, metric="valid.loss")
    assert (state, reports[0].metrics) == (State.COMPLETE, {"valid.loss": 0.5, "valid.by_class.0": 0.25})


@pytest.mark.integration
@pytest.mark.timeout(120)
@pytest.mark.parametrize("workers", [1, 2])
def test_a_returned_dict_is_one_report(clean_ray, tmp_path, workers):
    state, reports = reported(tmp_path, "returns_metrics", {"x": 0.5}, workers)
    assert (state, [r.metrics for r in reports]) == (State.COMPLETE, [{"loss": 0.5, "ranks": 1.0}])


RETURNED = [
    pytest.param({"loss": 9.0}, [1.0, 2.0, 9.0], id="the metric"),
    pytest.param({"model": "a"}, [1.0, 2.0], id="something else"),
    pytest.param([1, 2], [1.0, 2.0], id="no dict"),
]


@pytest.mark.integration
@pytest.mark.timeout(120)
@pytest.mark.parametrize("returned, wanted", RETURNED)
def test_after_reports_a_returned_dict_with_the_metric_is_the_last_one(clean_ray, tmp_path, returned, wanted):
    state, reports = reported(tmp_path, "reports_and_returns", {"x": 0.0, "returned": returned})
    assert (state, losses(reports)) == (State.COMPLETE, wanted)


@pytest.mark.integration
@pytest.mark.timeout(120)
@pytest.mark.parametrize("workers", [1, 2])
def test_each_dict_that_is_yielded_is_a_report_and_a_stop_closes_the_generator(clean_ray, tmp_path, workers):
    params = {"x": 1.0, "folder": str(tmp_path)}
    driving = Driving(job("tests.execution.loops:yields_metrics", "none", rungs=(2,)), tmp_path)
    try:
        assert driving.run(trial(0, params, workers, "none")) == (State.COMPLETE, [1.0, 1 / 2, 1 / 3, 1 / 4])
        assert (tmp_path / "closed").read_text() == "4"
        assert driving.run(trial(1, params, workers, "none"), stop_at=2) == (State.PRUNED, [1.0, 1 / 2])
        assert (tmp_path / "closed").read_text() == "2"
    finally:
        driving.close()


@pytest.mark.integration
@pytest.mark.timeout(120)
@pytest.mark.parametrize("workers", [1, 2])
def test_a_ray_tune_function_reports_and_knows_its_trial(clean_ray, tmp_path, workers):
    state, reports = reported(tmp_path, "tune_function", {"x": 3.0}, workers)
    assert (state, losses(reports)) == (State.COMPLETE, [3.0, 1.5, 1.0])
    assert {(r.metrics["named"], r.metrics["world"], r.metrics["cpus"]) for r in reports} == {(1.0, workers, workers)}


@pytest.mark.faults
@pytest.mark.timeout(120)
def test_a_ray_tune_function_goes_on_from_its_checkpoint(clean_ray, tmp_path):
    driving = Driving(job("tests.execution.loops:tune_function", "none"), tmp_path)
    latch = tmp_path / "latch"
    try:
        t = trial(0, {"x": 3.0, "latch": str(latch)}, 1, "none")
        driving.start(t)
        wait_until(lambda: latch.exists() and latch.read_text() and driving.checkpoint_step(t) == 2, 60, "the checkpoint of step 2")
        os.kill(int(latch.read_text()), signal.SIGKILL)
        progress, reports = driving.finish(t)
        assert (progress.state, progress.attempts) == (State.COMPLETE, 2), progress.error
        assert [(r.step, r.metrics["start"]) for r in reports] == [(1, 0), (2, 0), (3, 2)]
    finally:
        driving.close()


@pytest.mark.integration
@pytest.mark.timeout(120)
@pytest.mark.parametrize("stop_at", [None, 2])
def test_tunes_callback_of_xgboost_reports_and_saves_each_round(clean_ray, tmp_path, stop_at):
    driving = Driving(job("tests.execution.loops:boosts_for_tune", "xgboost", rungs=(2,)), tmp_path)
    try:
        t = trial(0, {"lr": 0.3}, 1, "xgboost")
        driving.start(t)
        progress, reports = driving.finish(t, stop_at)
        assert progress.state is (State.PRUNED if stop_at else State.COMPLETE), progress.error
        assert losses(reports) == sorted(losses(reports), reverse=True) and len(reports) == (stop_at or 4)
        assert (tmp_path / t.id / f"checkpoint_{len(reports):06d}" / "model.ubj").is_file()
    finally:
        driving.close()


@pytest.mark.integration
@pytest.mark.timeout(120)
@pytest.mark.parametrize("workers", [1, 2])
def test_the_older_ray_air_session_works(clean_ray, tmp_path, workers):
    state, reports = reported(tmp_path, "air_session", {}, workers)
    wanted = {"loss": 1.0, "rows": 256 / workers, "start": 0.0, "rank": 0.0, "world": workers}
    assert (state, [r.metrics for r in reports]) == (State.COMPLETE, [wanted])
    assert (tmp_path / "0000" / "checkpoint_000001" / "model").is_file()


@pytest.mark.integration
@pytest.mark.timeout(300)
@pytest.mark.parametrize("workers, first", [(1, 0), (2, 0), (2, 1)])
def test_a_checkpoint_is_sent_to_the_pool_at_once(clean_ray, tmp_path, workers, first):
    """The loop keeps its worker from telling news every half second: what is known then was sent with the report."""
    driving = Driving(job("tests.execution.loops:saves_and_holds", "none"), tmp_path)
    try:
        t = trial(0, {"folder": str(tmp_path), "first": first}, workers, "none")
        driving.start(t)
        wait_until(lambda: driving.checkpoint_step(t) == 1, 180, "the checkpoint to be known")  # after the gang has started
        (tmp_path / "go").touch()
        assert driving.finish(t)[0].state is State.COMPLETE
    finally:
        driving.close()
