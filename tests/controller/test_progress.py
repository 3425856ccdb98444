"""How a sweep stands: what the conductor makes of what it hears."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from sweeps.controller.controller import SweepController
from sweeps.controller.status import ResourceUse, SweepStatus, shape_text, short_configuration, starting_status
from sweeps.core.resources import Shape
from sweeps.core.trial import Action, Report, State, Trial
from sweeps.execution.messages import Progress, Stage, Usage
from sweeps.search.search_loop import SearchLoop
from sweeps.space import load
from tests.search.deaths import Deaf

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
def conductor(tmp_path) -> SweepController:
    (tmp_path / "space.yaml").write_text(SPACE)
    space = load(tmp_path / "space.yaml")
    (tmp_path / "own-1").mkdir()
    loop = SearchLoop.open(tmp_path / "own-1", space)
    nothing: Callable[[SweepStatus], None] = lambda snapshot: None  # noqa: E731
    began = time.time() - 100
    deaf: Any = Deaf()
    return SweepController(loop, deaf, deaf, began, lambda: False, nothing, nothing)


def reports(*values: float, first: int = 1) -> tuple[Report, ...]:
    return tuple(Report(step, {"loss": value}, time.time() + step) for step, value in enumerate(values, first))


def test_before_the_first_trial(conductor):
    s = conductor.status()
    assert (s.name, s.metric, s.total, s.best, s.rows, s.use, s.ended) == ("own-1", "loss", 8, None, (), (), 0)
    assert s.left is not None and s.left.how == "limits.timeout" and 3490 < s.left.seconds <= 3500
    early = starting_status(conductor.space, 8, "own-1", conductor.began, "reading the data")
    assert (early.name, early.metric, early.total, early.stage) == ("own-1", "loss", 8, "reading the data") and early.seconds >= 100


def test_failures_that_ended_a_sweep_do_not_end_it_again(conductor):
    space = dataclasses.replace(conductor.space, limits=dataclasses.replace(conductor.space.limits, max_failures_in_a_row=2))

    def driven(failures: int) -> SweepController:
        loop = SearchLoop.open(conductor.search.store.folder, space)
        again = dataclasses.replace(conductor, search=loop, reason=None)
        again.settle()
        for _ in range(failures):
            assert again.reason is None
            again.hear(str(again.begin()), Progress(state=State.FAIL, error="boom"))
        return again

    assert driven(1).reason is None
    ended = "limits.max_failures_in_a_row: 2 consecutive trials failed"
    assert driven(1).reason == ended, "failures under a driver that died are counted on"
    assert driven(1).reason is None, "those that have ended the sweep are not"


def test_a_row_says_what_a_running_trial_is_at(conductor):
    a, b = conductor.begin(), conductor.begin()
    assert [row.stage for row in conductor.status().rows] == ["beginning", "beginning"]
    conductor.progress.usage = Usage({"CPU": 4.0}, stages={a: (Stage.STARTING, None), b: (Stage.WAITING, None)})
    assert [row.stage for row in conductor.status().rows] == ["starting workers", "waiting for workers"]
    assert conductor.hear(a, Progress(reports(3.0, 1.0, 2.0))) is Action.CONTINUE
    row = conductor.status().rows[0]
    assert (row.trial, row.stage, row.step, row.max_t, row.value, row.best) == (a, "training", 3, 9, 2.0, 1.0)
    assert shape_text(row.shape) == "2 × 1 CPU, 0.5 GPU" and 0 <= row.seconds < 10
    assert [name for name, _ in row.configuration] == ["preprocessor", "lr"]
    conductor.progress.usage = Usage({"CPU": 4.0}, stages={a: (Stage.TRAINING, 3)})
    assert conductor.status().rows[0].stage == "at rung 3"
    conductor.progress.usage = Usage({"CPU": 4.0}, stages={a: (Stage.WAITING, None)})
    conductor.hear(a, Progress(attempts=2))
    row = conductor.status().rows[0]
    assert row.stage == "waiting for workers" and row.attempt == 2, "its workers were lost, it stands in line again"


def test_the_best_is_that_of_all_reports_with_its_configuration(conductor):
    a, b = conductor.begin(), conductor.begin()
    conductor.hear(a, Progress(reports(3.0, math.nan, 1.0)))
    conductor.hear(b, Progress(reports(2.0)))
    best = conductor.status().best
    assert best is not None and (best.trial, best.value, best.step) == (a, 1.0, 3)
    assert best.configuration[0] == ("workers", "2 × 1 CPU, 0.5 GPU") and best.configuration[1][0] == "preprocessor"
    conductor.hear(a, Progress(state=State.COMPLETE))
    conductor.hear(b, Progress(state=State.FAIL, error="Traceback\n  ...\nValueError: too large\n"))
    s = conductor.status()
    assert s.best == best and s.failure == (b, "ValueError: too large") and s.ended == 2 and not s.rows


def test_a_trial_that_failed_does_not_lead_any_more(conductor):
    a, b, c = conductor.begin(), conductor.begin(), conductor.begin()
    conductor.hear(a, Progress(reports(3.0), state=State.COMPLETE))
    conductor.hear(b, Progress(reports(1.0)))
    conductor.hear(c, Progress(reports(4.0, 2.0)))
    assert conductor.status().best.trial == b
    conductor.hear(b, Progress(state=State.FAIL, error="boom"))
    best = conductor.status().best
    assert (best.trial, best.value, best.step) == (c, 2.0, 2), "which still runs"
    conductor.hear(c, Progress(state=State.FAIL, error="boom"))
    assert conductor.status().best.trial == a
    again = dataclasses.replace(conductor, search=SearchLoop.open(conductor.search.store.folder, conductor.space))
    assert again.status().best.trial == a, "nor for another driver"


def test_resources_are_those_that_are_asked_for_and_a_gpu_that_lies_idle(conductor):
    total = {"memory": 1e9, "CPU": 4.0, "GPU": 1.0, "licence": 3.0}
    conductor.progress.usage = Usage(total, busy={"CPU": 2.0}, warm={"CPU": 1.0, "GPU": 0.5}, fits=2)
    s = conductor.status()
    assert s.use == (ResourceUse("CPU", 4.0, 2.0, 1.0), ResourceUse("GPU", 1.0, 0.0, 0.5)) and s.fits == 2


def test_the_time_left_is_reckoned_from_what_ended(conductor):
    for _ in range(4):
        trial = conductor.begin()
        conductor.running[trial].began -= 10
        conductor.hear(trial, Progress(reports(1.0), state=State.COMPLETE))
    conductor.progress.spans = [(10.0 * i, 10.0 * i + 10) for i in range(1, 5)]
    left = conductor.status().left
    assert left is not None and left.seconds == pytest.approx(40.0) and left.how == "4 trials to go, one every 10 s (the last 3)"


def test_a_sweep_that_is_stopping_promises_nothing(conductor):
    conductor.begin()
    conductor.stop("interrupted", State.RUNNING)
    s = conductor.status()
    assert s.left is None and s.reason == "interrupted" and s.rows[0].stage == "stopping"


def test_the_pool_is_asked_without_waiting_for_it(conductor, monkeypatch):
    ready: list[Any] = []
    answers = iter([Usage({"CPU": 1.0}), Usage({"CPU": 2.0})])
    ray = SimpleNamespace(
        wait=lambda refs, timeout: (ready, refs), get=lambda ref: next(answers), exceptions=SimpleNamespace(RayError=OSError)
    )
    monkeypatch.setattr("sweeps.controller.controller.ray", ray)
    asked: list[str] = []
    conductor.pool = SimpleNamespace(usage=SimpleNamespace(remote=lambda: asked.append("usage") or "ref"))
    for expected, calls, there in ((None, 1, []), (None, 1, ["ref"]), (1.0, 2, ["ref"]), (2.0, 3, [])):
        conductor.shown = 0.0
        conductor._look_at_pool()
        assert (conductor.progress.usage and conductor.progress.usage.total["CPU"]) == expected and len(asked) == calls
        ready[:] = there


@pytest.mark.parametrize(
    "labels, steps, shown",
    [
        ({"params.lr": 0.0123456, "params.width": 32}, (), (("lr", "0.01235"), ("width", "32"))),
        ({"scaling.num_workers": 2, "params.net.act": "relu"}, (), (("net.act", "relu"),)),
        ({"preprocessor": "none"}, (), (("preprocessor", "none"),)),
        ({"params": "{a: 1}"}, (), (("params", "{a: 1}"),)),
    ],
)
def test_a_configuration_is_what_is_tuned_but_for_the_workers(labels, steps, shown):
    assert short_configuration(Trial(0, "0000", {}, steps, Shape(1, ()), 0, labels)) == shown
