"""A controller that starts, follows and resumes trials, and ends a sweep: without Ray."""

from __future__ import annotations

import errno
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sweeps.controller.controller import SweepController
from sweeps.controller.status import SweepStatus
from sweeps.controller.trial_commands import MAX_POOL_DEATHS
from sweeps.core.errors import InputError, Problem, SweepsError
from sweeps.core.trial import Checkpoint, GangSizePeriod, State
from sweeps.execution.pool_usage import Usage
from sweeps.study.events import TrialReported, TrialResized
from sweeps.study.journal import Journal
from sweeps.tracking.earlier_events import TrialHistory
from tests.controller.controllers import (
    BODY,
    FakeMonitor,
    events_of,
    open_controller,
    poll,
    pool_of,
    recorded_states,
    recorded_trials,
    report_update,
    start_trial,
)
from tests.simulation.simulated_pool import VirtualClock
from tests.trial_updates import trial_update

ELASTIC = (
    BODY + "\nscaling: {num_workers: {elastic: [1, 3]}, resources_per_worker: {CPU: 1, GPU: 0.5}}"
)


@pytest.fixture
def space(make_space: Any) -> Any:
    return make_space(BODY, scheduler="{name: none}")


@pytest.mark.parametrize("ended", [0, 1])
def test_prefit_error_ends_sweep_before_first_trial_has_ended(
    space: Any, tmp_path: Path, ended: int
) -> None:
    monitor = FakeMonitor()
    controller = open_controller(space, tmp_path, monitor)
    for _ in range(ended):
        name = start_trial(controller)
        controller.on_update(report_update(name, 1, 0.5, state=State.COMPLETE))
    monitor.error = InputError(Problem("space.preprocessor", "no column `x`"))
    controller.poll()
    assert (controller.refused is None) == bool(ended)
    assert (controller.reason is None) == bool(ended), "its own trials fail, others stay"


def test_trackers_get_no_report_without_metrics(space: Any, tmp_path: Path) -> None:
    controller = open_controller(space, tmp_path)
    events = events_of(controller)
    name = start_trial(controller)
    controller.on_update(report_update(name, 1, 0.5))
    controller.on_update(trial_update(name, state=State.COMPLETE, seconds=1.0))
    for history in (events, TrialHistory(tmp_path)()):
        reported = [event for event in history if isinstance(event, TrialReported)]
        assert [len(event.reports) for event in reported] == [1]


def attempt_and_curve(controller: SweepController) -> tuple[int, tuple[tuple[int, float], ...]]:
    """Return what the pool knows of the trial that it started last."""
    trial = pool_of(controller).started[-1]
    return trial.attempt, trial.curve


def test_a_trial_continues_after_the_death_of_a_driver_and_of_the_pool(
    space: Any, tmp_path: Path
) -> None:
    first = open_controller(space, tmp_path)
    name = start_trial(first)
    first.on_update(report_update(name, 1, 0.5, attempt=3))  # two gangs were lost before
    resumed = open_controller(space, tmp_path, FakeMonitor(restarted=True))
    assert resumed.start_trial() == name
    assert attempt_and_curve(resumed) == (3, ((1, 0.5),))
    resumed.on_update(report_update(name, 2, 0.4, attempt=4))
    resumed.poll()
    assert attempt_and_curve(resumed) == (4, ((1, 0.5), (2, 0.4)))


def test_pool_that_keeps_dying_ends_sweep_with_resumable_trials(
    space: Any, tmp_path: Path, clock: Any
) -> None:
    controller = open_controller(space, tmp_path, FakeMonitor(restarted=True))
    first = start_trial(controller)
    controller.start_trial()
    for _ in range(MAX_POOL_DEATHS - 1):
        poll(controller, clock)
    controller.on_update(report_update(first, 1, 0.5, state=State.COMPLETE))
    for _ in range(MAX_POOL_DEATHS - 1):  # The trial that ended has set the count back.
        poll(controller, clock)
    with pytest.raises(SweepsError, match=f"died {MAX_POOL_DEATHS} times.*sweeps resume"):
        poll(controller, clock)
    assert recorded_states(tmp_path) == [State.COMPLETE, State.RUNNING]


def test_a_pool_that_restarts_after_a_time_limit_ends_its_trials_for_good(
    space: Any, tmp_path: Path
) -> None:
    controller = open_controller(space, tmp_path, FakeMonitor(restarted=True))
    controller.start_trial()
    interrupts: list[State] = []
    controller.pool.interrupt = SimpleNamespace(remote=interrupts.append)
    controller.stop("limits.timeout", State.PRUNED)
    controller.poll()
    assert interrupts == [State.PRUNED, State.PRUNED]


def test_passed_rung_is_passed_again_after_later_trials(make_space: Any, tmp_path: Path) -> None:
    space = make_space(BODY)  # asha, one in three
    first = open_controller(space, tmp_path)
    early = start_trial(first)
    assert first.on_update(report_update(early, 1, 0.9, rung=1)), "the first to come there"
    for loss in (0.3, 0.2, 0.1, 0.05):
        first.on_update(report_update(start_trial(first), 1, loss, rung=1))
    assert first.on_update(trial_update(early, rung=1)), "its worker was lost beyond the rung"
    resumed = open_controller(space, tmp_path)
    assert 0 in resumed.search.interrupted
    assert resumed.start_trial() == early
    assert resumed.on_update(trial_update(early, rung=1))
    late = start_trial(resumed)
    while int(late) < 5:
        late = start_trial(resumed)
    assert not resumed.on_update(report_update(late, 1, 0.8, rung=1)), "others do not pass"


def test_trials_that_are_left_resumable_stay_so(space: Any, tmp_path: Path) -> None:
    first = open_controller(space, tmp_path)
    first.on_update(report_update(start_trial(first), 1, 0.5))
    resumed = open_controller(space, tmp_path)
    resumed.stop("interrupted", State.RUNNING)
    resumed.close()
    assert recorded_states(tmp_path) == [State.RUNNING]


@pytest.mark.parametrize("whole", [False, True])
def test_last_checkpoint_alone_ends_no_trial_of_several_ranks(
    make_space: Any, tmp_path: Path, whole: bool
) -> None:
    space = make_space(BODY + "\nscaling: {num_workers: 2}", scheduler="{name: none, max_t: 2}")
    first = open_controller(space, tmp_path)
    name = start_trial(first)
    path = tmp_path / "trials" / name / "checkpoint_000002"
    path.mkdir(parents=True)
    checkpoint = Checkpoint(path.name, 2, 2) if whole else None
    first.on_update(report_update(name, 1, 0.5))
    first.on_update(report_update(name, 2, 0.4, checkpoint=checkpoint))
    resumed = open_controller(space, tmp_path)
    assert (resumed.search.interrupted == deque()) == whole
    assert recorded_states(tmp_path) == [State.COMPLETE if whole else State.RUNNING]


def test_a_study_that_cannot_be_written_is_left_as_it_is(
    space: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = open_controller(space, tmp_path)
    name = start_trial(controller)

    def full(self: Any, logs: Any) -> None:
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "append_logs", full)
        with pytest.raises(OSError, match="no space"):
            controller.on_update(report_update(name, 1, 0.5))
        controller.close(failed=True)
    assert recorded_states(tmp_path) == [State.RUNNING]


def test_changed_data_ends_the_sweep_and_every_trial_stays_resumable(
    space: Any, tmp_path: Path, clock: Any
) -> None:
    monitor = FakeMonitor()
    controller = open_controller(space, tmp_path, monitor)
    controller.start_trial()
    poll(controller, clock)
    assert controller.reason is None
    changed = InputError(Problem("data.train", "the data has changed since the sweep began"))
    monitor.data_error = changed
    poll(controller, clock)
    controller.close()
    assert controller.data_error is changed
    assert controller.reason == "the data has changed"
    assert recorded_states(tmp_path) == [State.RUNNING]


def test_each_poll_that_is_due_publishes_the_status(
    space: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    virtual = VirtualClock()
    monkeypatch.setattr("sweeps.core.clock.monotonic", lambda: virtual.now)
    published: list[SweepStatus] = []
    controller = open_controller(space, tmp_path, publish_status=published.append)
    start_trial(controller)
    published.clear()
    poll(controller, virtual)
    poll(controller, virtual)
    controller.poll()
    assert [status.states for status in published] == [{"RUNNING": 1}] * 2


def test_a_failed_trial_whose_store_is_gone_ends_the_sweep(
    space: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check_store(folder: Path, error: str) -> None:
        raise SweepsError(f"{folder.name}: {error}")

    monkeypatch.setattr("sweeps.controller.controller.check_store", check_store)
    controller = open_controller(space, tmp_path)
    name = start_trial(controller)
    with pytest.raises(SweepsError, match=f"{tmp_path.name}: no answer"):
        controller.on_update(report_update(name, 1, 0.5, state=State.FAIL, error="no answer"))


def test_a_sweep_that_is_stopped_starts_no_population(make_space: Any, tmp_path: Path) -> None:
    scheduler = "{name: pbt, max_t: 8, perturbation_interval: 2}"
    controller = open_controller(make_space(BODY, 3, scheduler=scheduler), tmp_path)
    controller.stop("limits.timeout", State.PRUNED)
    with pytest.raises(StopIteration):
        controller.start_trial()
    assert pool_of(controller).started == []


def test_ctrl_c_before_the_first_trial_starts_none(space: Any, tmp_path: Path) -> None:
    controller = open_controller(space, tmp_path, interrupted=True)
    assert controller.reason == "interrupted"
    assert not controller.study_store.results()
    with pytest.raises(StopIteration):
        controller.start_trial()


def test_sizes_of_elastic_trial_are_recorded_and_published(make_space: Any, tmp_path: Path) -> None:
    space = make_space(ELASTIC, scheduler="{name: none}", extra="")
    first = open_controller(space, tmp_path)
    events = events_of(first)
    name = start_trial(first)
    three = GangSizePeriod(0, 3, 0, 1.0)
    two = GangSizePeriod(2, 2, 3, 2.0)
    for step, sizes, seconds, worker_seconds in (
        (1, (three,), 10.0, 30.0),
        (4, (two,), 20.0, 50.0),
        (5, (), 30.0, 70.0),
    ):
        first.on_update(
            report_update(
                name, step, 0.5, sizes=sizes, seconds=seconds, worker_seconds=worker_seconds
            )
        )
    resizes = [event for event in events if isinstance(event, TrialResized)]
    assert [(event.size, event.time) for event in resizes] == [(three, 1.0), (two, 2.0)]
    resumed = open_controller(space, tmp_path)
    assert resumed.start_trial() == name
    trial = pool_of(resumed).started[-1]
    assert (trial.sizes, trial.worker_seconds, trial.seconds) == ((three, two), 70.0, 30.0)
    end = trial_update(name, state=State.COMPLETE, seconds=40.0, worker_seconds=90.0)
    resumed.on_update(end)
    (trial,) = recorded_trials(tmp_path)
    assert trial.sizes == (three, two)
    assert trial.result.metrics["cpu_seconds"] == 90.0
    assert trial.result.metrics["gpu_seconds"] == 45.0


def test_the_pool_learns_when_no_trial_is_left_to_start(
    make_space: Any, tmp_path: Path, clock: Any
) -> None:
    space = make_space(ELASTIC, scheduler="{name: none}", extra="", max_trials=2)
    monitor = FakeMonitor()
    first = open_controller(space, tmp_path, monitor)
    for _ in range(2):
        poll(first, clock)
        assert not monitor.all_started
        first.start_trial()
    poll(first, clock)
    assert monitor.all_started
    resumed = open_controller(space, tmp_path, monitor)
    poll(resumed, clock)
    assert not monitor.all_started, "both trials were interrupted"


def test_the_number_of_running_trials_follows_the_cluster(
    make_space: Any, tmp_path: Path, clock: Any
) -> None:
    space = make_space(BODY, scheduler="{name: none}", extra="")
    monitor = FakeMonitor()
    controller = open_controller(
        space, tmp_path, monitor, slots=1, slots_of=lambda total: int(total["CPU"])
    )
    first = start_trial(controller)
    assert controller.start_trial() is None
    for cpus in (1.0, 2.0, 2.0):
        monitor.usage = Usage({"CPU": cpus})
        poll(controller, clock)
    assert controller.start_trial() is not None
    assert controller.start_trial() is None
    controller.on_update(report_update(first, 1, 0.5, state=State.COMPLETE))
    assert controller.start_trial() is not None
