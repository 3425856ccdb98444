"""The progress of a sweep, which the controller computes from updates."""

from __future__ import annotations

import dataclasses
import math
import time
from pathlib import Path
from typing import Any

import pytest

from sweeps.controller.controller import SweepController
from sweeps.controller.status import ResourceUse, shape_text, short_configuration
from sweeps.core.resources import Shape
from sweeps.core.trial import Report, State, Trial
from sweeps.execution.pool_usage import Stage, TrialUsage, Usage
from sweeps.search.search_loop import SearchLoop
from sweeps.space import load
from tests.controller.controllers import FakeMonitor
from tests.search.deaths import Deaf
from tests.trial_updates import trial_update

SPACE = """\
trainer: {loop: "tests.user_loops:plain"}
data: {train: "sklearn:iris", label: target, valid: 0.2}
objective: {metric: loss, goal: minimize}
scheduler: {name: asha, max_t: 9, grace_period: 3}
limits: {max_trials: 8, timeout: 1h}
space:
  preprocessor: {grid: [none, StandardScaler]}
  scaling: {num_workers: 2, resources_per_worker: {CPU: 1, GPU: 0.5}}
  params: {lr: {loguniform: [1e-3, 1e-1]}, width: 8}
"""


@pytest.fixture
def controller(tmp_path: Path) -> SweepController:
    (tmp_path / "space.yaml").write_text(SPACE)
    space = load(tmp_path / "space.yaml")
    (tmp_path / "own-1").mkdir()
    return controller_of(SearchLoop.open(tmp_path / "own-1", space))


def controller_of(search: SearchLoop) -> SweepController:
    """A controller of a sweep that started 100 s ago, without a pool."""
    deaf: Any = Deaf()
    watched: Any = FakeMonitor()
    return SweepController(
        search,
        deaf,
        deaf,
        time.monotonic() - 100,
        lambda: False,
        lambda status: None,
        lambda: None,
        watched,
    )


def reports(*values: float, first: int = 1) -> tuple[Report, ...]:
    return tuple(
        Report(step, {"loss": value}, time.time() + step)
        for step, value in enumerate(values, first)
    )


def test_before_the_first_trial(controller: Any) -> None:
    s = controller.status()
    assert (s.name, s.metric, s.total, s.best, s.rows, s.use, s.ended) == (
        "own-1",
        "loss",
        8,
        None,
        (),
        (),
        0,
    )
    assert s.left is not None and s.left.at_most and 3490 < s.left.seconds <= 3500


@pytest.mark.parametrize("days", [1, -1])
def test_a_jump_of_the_clock_ends_no_sweep_and_changes_no_duration(
    controller: Any, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    trial = controller.start_trial()
    controller.on_update(trial_update(trial, reports(3.0, 2.0)))
    before = controller.status()
    clock = time.time
    monkeypatch.setattr(time, "time", lambda: clock() + 86400 * days)
    controller.poll()
    after = controller.status()
    assert controller.reason is None
    assert after.seconds == pytest.approx(before.seconds, abs=20)
    assert after.rows[0].seconds == pytest.approx(before.rows[0].seconds, abs=20)
    assert after.left is not None and before.left is not None
    assert after.left.seconds == pytest.approx(before.left.seconds, abs=20)


def test_failures_that_ended_a_sweep_do_not_end_it_again(controller: Any) -> None:
    space = dataclasses.replace(
        controller.space,
        limits=dataclasses.replace(controller.space.limits, max_failures_in_a_row=2),
    )

    def driven(failures: int) -> SweepController:
        again = controller_of(SearchLoop.open(controller.study_store.folder, space))
        again.finish_leftover_trials()
        for _ in range(failures):
            assert again.reason is None
            again.on_update(trial_update(str(again.start_trial()), state=State.FAIL, error="boom"))
        return again

    assert driven(1).reason is None
    ended = "limits.max_failures_in_a_row: 2 consecutive trials failed"
    assert driven(1).reason == ended, "failures under a driver that died are counted on"
    assert driven(1).reason is None, "those that have ended the sweep are not"


def test_a_row_says_what_a_running_trial_is_at(controller: Any) -> None:
    a, b = controller.start_trial(), controller.start_trial()
    assert [row.stage for row in controller.status().rows] == ["beginning", "beginning"]
    controller.progress.usage = Usage(
        {"CPU": 4.0}, trials={a: TrialUsage(Stage.STARTING), b: TrialUsage(Stage.WAITING)}
    )
    assert [row.stage for row in controller.status().rows] == [
        "starting workers",
        "waiting for workers",
    ]
    assert controller.on_update(trial_update(a, reports(3.0, 1.0, 2.0)))
    row = controller.status().rows[0]
    assert (row.trial, row.stage, row.step, row.max_t, row.value, row.best) == (
        a,
        "training",
        3,
        9,
        2.0,
        1.0,
    )
    assert shape_text(row.shape) == "2 × 1 CPU, 0.5 GPU" and 0 <= row.seconds < 10
    assert [name for name, _ in row.configuration] == ["preprocessor", "lr"]
    controller.progress.usage = Usage({"CPU": 4.0}, trials={a: TrialUsage(Stage.TRAINING, 3)})
    assert controller.status().rows[0].stage == "at rung 3"
    controller.progress.usage = Usage({"CPU": 4.0}, trials={a: TrialUsage(Stage.WAITING)})
    controller.on_update(trial_update(a, attempt=2))
    row = controller.status().rows[0]
    assert row.stage == "waiting for workers" and row.attempt == 2, (
        "its workers were lost, it stands in line again"
    )


def test_waiting_trials_are_not_running(controller: Any) -> None:
    a, b = controller.start_trial(), controller.start_trial()
    controller.progress.usage = Usage(
        {"CPU": 4.0}, trials={a: TrialUsage(Stage.TRAINING), b: TrialUsage(Stage.WAITING)}
    )
    assert controller.status().counts == {
        "RUNNING": 1,
        "WAITING": 1,
        "COMPLETE": 0,
        "PRUNED": 0,
        "FAIL": 0,
    }


def test_lost_and_joined_nodes_are_named_once(controller: SweepController) -> None:
    def said(*nodes: str) -> tuple[str, ...]:
        names = {node: f"{node} (10.0.0.1)" for node in nodes}
        controller.progress.usage = Usage({"CPU": 4.0}, nodes=names)
        return controller.status().messages

    assert controller.status().messages == ()
    assert said("a", "b") == () == said("a", "b"), "the nodes of the start are no news"
    assert said("b", "c") == ("node a (10.0.0.1) was lost", "node c (10.0.0.1) has joined")
    assert said("b", "c") == ()


def test_the_best_is_that_of_all_reports_with_its_configuration(controller: Any) -> None:
    a, b = controller.start_trial(), controller.start_trial()
    controller.on_update(trial_update(a, reports(3.0, math.nan, 1.0)))
    controller.on_update(trial_update(b, reports(2.0)))
    best = controller.status().best
    assert best is not None and (best.trial, best.value, best.step) == (a, 1.0, 3)
    assert (
        best.configuration[0] == ("workers", "2 × 1 CPU, 0.5 GPU")
        and best.configuration[1][0] == "preprocessor"
    )
    controller.on_update(trial_update(a, state=State.COMPLETE))
    controller.on_update(
        trial_update(b, state=State.FAIL, error="Traceback\n  ...\nValueError: too large\n")
    )
    s = controller.status()
    assert (
        s.best == best and s.failure == (b, "ValueError: too large") and s.ended == 2 and not s.rows
    )


def test_reports_lead_until_a_trial_has_ended_with_a_value(controller: Any) -> None:
    a, b = controller.start_trial(), controller.start_trial()
    controller.on_update(trial_update(a, reports(3.0)))
    controller.on_update(trial_update(b, reports(1.0, math.inf)))
    assert controller.status().best.trial == b
    controller.on_update(trial_update(b, state=State.FAIL, error="boom"))
    assert controller.status().best.trial == a, "which still runs"
    controller.on_update(trial_update(a, state=State.PRUNED))
    assert controller.status().best.trial == a, "a stopped trial wins if no trial is complete"


def test_an_infinite_value_does_not_lead(controller: Any) -> None:
    a = controller.start_trial()
    controller.on_update(trial_update(a, reports(math.inf), state=State.COMPLETE))
    assert controller.status().best is None


def test_a_trial_that_was_stopped_or_failed_does_not_lead(controller: Any) -> None:
    a, b, c = controller.start_trial(), controller.start_trial(), controller.start_trial()
    controller.on_update(trial_update(a, reports(3.0), state=State.COMPLETE))
    controller.on_update(trial_update(b, reports(1.0)))
    controller.on_update(trial_update(c, reports(4.0, 2.0)))
    assert controller.status().best.trial == a, "a running trial may still be stopped"
    controller.on_update(trial_update(b, state=State.FAIL, error="boom"))
    controller.on_update(trial_update(c, state=State.PRUNED))
    assert controller.status().best.trial == a
    again = controller_of(SearchLoop.open(controller.study_store.folder, controller.space))
    best = again.status().best
    assert best is not None and best.trial == a, "nor for another driver"


def test_resources_are_those_that_are_asked_for_and_a_gpu_that_lies_idle(controller: Any) -> None:
    total = {"memory": 1e9, "CPU": 4.0, "GPU": 1.0, "licence": 3.0}
    controller.progress.usage = Usage(
        total, busy={"CPU": 2.0}, warm={"CPU": 1.0, "GPU": 0.5}, fits=2
    )
    s = controller.status()
    assert (
        s.use == (ResourceUse("CPU", 4.0, 2.0, 1.0), ResourceUse("GPU", 1.0, 0.0, 0.5))
        and s.fits == 2
    )


def test_the_time_left_is_reckoned_from_what_ended(controller: Any) -> None:
    for _ in range(4):
        trial = controller.start_trial()
        controller.running[int(trial)].began -= 10
        controller.on_update(trial_update(trial, reports(1.0), state=State.COMPLETE))
    controller.progress.ends = [controller.status().seconds - 10.0 * i for i in (3, 2, 1, 0)]
    left = controller.status().left
    assert left is not None and left.seconds == pytest.approx(40.0, abs=1.0)


def test_a_sweep_that_is_stopping_promises_nothing(controller: Any) -> None:
    controller.start_trial()
    controller.stop("interrupted", State.RUNNING)
    s = controller.status()
    assert s.left is None and s.reason == "interrupted" and s.rows[0].stage == "stopping"


@pytest.mark.parametrize(
    "labels, steps, shown",
    [
        ({"params.lr": 0.0123456, "params.width": 32}, (), (("lr", "0.01235"), ("width", "32"))),
        ({"scaling.num_workers": 2, "params.net.act": "relu"}, (), (("net.act", "relu"),)),
        ({"preprocessor": "none"}, (), (("preprocessor", "none"),)),
        ({"params": "{a: 1}"}, (), (("params", "{a: 1}"),)),
    ],
)
def test_a_configuration_is_what_is_tuned_but_for_the_workers(
    labels: Any, steps: Any, shown: Any
) -> None:
    assert short_configuration(Trial(0, {}, steps, Shape(1, ()), 0, labels)) == shown
