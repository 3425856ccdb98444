"""Time limits: the end of a search, its best trial, and the time that is left for the export."""

from __future__ import annotations

import dataclasses
from collections import deque
from pathlib import Path
from typing import Any

import pytest

from sweeps.controller.controller import SweepController
from sweeps.controller.deadline import CLOSING_SECONDS, Deadline
from sweeps.core.trial import State
from tests.controller.controllers import (
    BODY,
    open_controller,
    recorded_trials,
    report_update,
    saved_checkpoint,
    start_trial,
)
from tests.simulation.simulated_pool import VirtualClock
from tests.trial_updates import trial_update

END = 100.0  # when `--minutes` ends the command, in seconds since the start of the sweep


@pytest.fixture
def space(make_space: Any) -> Any:
    return make_space(BODY, scheduler="{name: none}")


def with_folds(space: Any, folds: int) -> Any:
    valid = dataclasses.replace(space.data.valid, folds=folds)
    return dataclasses.replace(space, data=dataclasses.replace(space.data, valid=valid))


def leader_of(controller: SweepController) -> tuple[str, float] | None:
    """Return the trial that would win now, and its training seconds."""
    return controller.progress.leader(controller.policy.can_win)


def check_leader(controller: SweepController, trial: str, seconds: float) -> None:
    """Check which trial would win now, and its training seconds."""
    leader = leader_of(controller)
    assert leader is not None
    assert leader[0] == trial
    assert leader[1] == pytest.approx(seconds)


def check_end(controller: SweepController, clock: VirtualClock, end: float, reason: str) -> None:
    """Check when a time limit ends the search, and which one it is."""
    clock.now = end - 0.1
    controller.poll()
    assert controller.reason is None
    assert controller.progress.timeout == pytest.approx(end)
    clock.now = end + 0.1
    controller.poll()
    assert controller.reason == reason


def test_minutes_leave_time_for_export(space: Any, tmp_path: Path, clock: Any) -> None:
    deadline = Deadline(END, start=1.0, growth=2.0)
    controller = open_controller(space, tmp_path, deadline=deadline)
    check_end(controller, clock, END - deadline.closing, "--minutes")


def test_minutes_leave_time_for_training_of_best_trial(
    space: Any, tmp_path: Path, clock: Any
) -> None:
    deadline = Deadline(END, start=1.0, growth=2.0)
    controller = open_controller(space, tmp_path, deadline=deadline)
    name = start_trial(controller)
    controller.on_update(report_update(name, 1, 0.5, state=State.COMPLETE, seconds=10.0))
    needed = deadline.reserve(10.0, trains=True)
    assert needed > deadline.closing + 20.0
    check_end(controller, clock, END - needed, "--minutes")


def test_time_is_kept_for_a_running_trial_that_is_the_best(
    space: Any, tmp_path: Path, clock: Any
) -> None:
    deadline = Deadline(END, start=1.0, growth=3.0)
    controller = open_controller(space, tmp_path, deadline=deadline)
    first = start_trial(controller)
    second = start_trial(controller)
    controller.on_update(report_update(first, 1, 0.5, seconds=1.0))
    clock.now += 10.0
    best = saved_checkpoint(tmp_path, second, 1)
    controller.on_update(report_update(second, 1, 0.4, best=best))
    assert leader_of(controller) == (second, 10.0)
    controller.poll()
    assert controller.progress.timeout is not None
    reserved = END - controller.progress.timeout
    assert reserved == pytest.approx(deadline.reserve(10.0, trains=True))
    controller.on_update(report_update(second, 2, 0.6))
    assert leader_of(controller) == (second, 5.0), "the best step is half of the way"


@pytest.mark.parametrize(
    ("scheduler", "folds", "seconds"),
    [
        ("{name: none}", 3, 30.0),
        ("{name: asha, resource: data.rows, max_t: 9, grace_period: 1}", 0, 90.0),
    ],
)
def test_running_best_trial_needs_time_for_all_folds_or_parts_of_rows(
    make_space: Any, tmp_path: Path, clock: Any, scheduler: str, folds: int, seconds: float
) -> None:
    space = with_folds(make_space(BODY, scheduler=scheduler), folds)
    controller = open_controller(space, tmp_path)
    name = start_trial(controller)
    assert leader_of(controller) is None
    clock.now += 10.0
    controller.on_update(report_update(name, 1, 0.4))
    check_leader(controller, name, seconds)


def test_time_is_kept_for_all_folds_of_a_best_trial_that_was_stopped(
    space: Any, tmp_path: Path
) -> None:
    controller = open_controller(with_folds(space, 5), tmp_path)
    name = start_trial(controller)
    controller.on_update(report_update(name, 1, 0.5, seconds=2.0))
    controller.on_update(report_update(name, 2, 0.4, seconds=4.0))
    controller.on_update(trial_update(name, state=State.PRUNED, seconds=4.0))
    check_leader(controller, name, 10.0)


@pytest.mark.parametrize("has_checkpoint", [True, False])
@pytest.mark.parametrize("folds", [0, 3])
def test_a_trial_that_only_time_has_ended_may_win(
    space: Any, tmp_path: Path, clock: Any, folds: int, has_checkpoint: bool
) -> None:
    deadline = Deadline(END, start=1.0)
    controller = open_controller(with_folds(space, folds), tmp_path, deadline=deadline)
    first = start_trial(controller)
    second = start_trial(controller)
    best = saved_checkpoint(tmp_path, first, 1)
    controller.on_update(report_update(first, 1, 0.5, state=State.COMPLETE, best=best))
    controller.on_update(report_update(second, 1, 0.4))
    later = saved_checkpoint(tmp_path, second, 2) if has_checkpoint else None
    controller.on_update(report_update(second, 2, 0.3, best=later))
    clock.now = END
    controller.poll()
    assert controller.reason == "--minutes"
    controller.on_update(trial_update(second, (), state=State.PRUNED))
    controller.close()
    wins = has_checkpoint and not folds
    result = controller.study_store.results()[1]
    assert result.reason == ("--minutes" if wins else "--minutes, unfinished")
    assert controller.study_store.winner() == wins


@pytest.mark.parametrize(
    ("minutes", "end", "reason"),
    [(100.0, 50.0, "limits.timeout"), (20.0, 20.0 - CLOSING_SECONDS, "--minutes")],
)
def test_the_earlier_of_minutes_and_timeout_ends_the_search(
    space: Any, tmp_path: Path, clock: Any, minutes: float, end: Any, reason: str
) -> None:
    limits = dataclasses.replace(space.limits, timeout=50.0)
    limited = dataclasses.replace(space, limits=limits)
    controller = open_controller(limited, tmp_path, deadline=Deadline(minutes, start=1.0))
    check_end(controller, clock, end, reason)


def test_the_timeout_ends_the_search_without_minutes(
    space: Any, tmp_path: Path, clock: Any
) -> None:
    limits = dataclasses.replace(space.limits, timeout=50.0)
    controller = open_controller(dataclasses.replace(space, limits=limits), tmp_path)
    check_end(controller, clock, 50.0, "limits.timeout")


def test_the_winner_is_not_trained_after_an_interrupt_or_without_time(
    space: Any, tmp_path: Path, clock: Any
) -> None:
    controller = open_controller(space, tmp_path, deadline=Deadline(END, start=1.0))
    assert controller.why_no_training() is None
    clock.now = END - 1.0
    assert controller.why_no_training() == "--minutes leaves too little time"
    controller.stop("interrupted", State.RUNNING)
    assert controller.why_no_training() == "the sweep was interrupted"


def test_a_resumed_trial_leads_only_after_a_report_to_this_driver(
    space: Any, tmp_path: Path
) -> None:
    first = open_controller(space, tmp_path)
    name = start_trial(first)
    first.on_update(report_update(name, 1, 0.5))
    resumed = open_controller(space, tmp_path)
    assert resumed.start_trial() == name
    assert leader_of(resumed) is None
    resumed.on_update(report_update(name, 2, 0.4))
    leader = resumed.progress.leader(lambda state: True)
    assert leader is not None and leader[0] == name


def test_seconds_of_an_interrupted_trial_count_as_spent(make_space: Any, tmp_path: Path) -> None:
    body = BODY + "\nscaling: {num_workers: 1, resources_per_worker: {CPU: 1, GPU: 1}}"
    space = make_space(body, scheduler="{name: none}", extra="")
    first = open_controller(space, tmp_path)
    name = start_trial(first)
    first.on_update(report_update(name, 1, 0.5, seconds=7200.0, worker_seconds=7200.0))
    resumed = open_controller(space, tmp_path)
    assert resumed.search.interrupted == deque([0])
    assert resumed.reason is None
    limits = dataclasses.replace(space.limits, max_gpu_hours=1.5)
    limited = open_controller(dataclasses.replace(space, limits=limits), tmp_path)
    assert limited.reason is not None
    assert limited.reason.startswith("limits.max_gpu_hours")


def test_spent_time_stops_interrupted_trials_on_resume(
    space: Any, tmp_path: Path, clock: Any
) -> None:
    first = open_controller(space, tmp_path)
    for _ in range(2):
        first.on_update(report_update(start_trial(first), 1, 0.5))
    limits = dataclasses.replace(space.limits, timeout=60.0)
    limited = dataclasses.replace(space, limits=limits)
    resumed = open_controller(limited, tmp_path, began=clock.now - 61.0)
    resumed.close()
    assert resumed.reason == "limits.timeout"
    assert not resumed.search.interrupted
    ends = [(trial.result.state, trial.reason) for trial in recorded_trials(tmp_path)]
    assert ends == [(State.PRUNED, "limits.timeout, unfinished")] * 2


@pytest.mark.parametrize(("seconds", "left"), [(1.0, 6.0), (4.0, 8.0), (30.0, 0.0)])
def test_time_is_kept_to_train_the_best_trials_again(
    space: Any, tmp_path: Path, clock: Any, seconds: float, left: float
) -> None:
    objective = dataclasses.replace(space.objective, choose="confirmed")
    limits = dataclasses.replace(space.limits, timeout=50.0)
    confirmed = dataclasses.replace(space, objectives=(objective,), limits=limits)
    controller = open_controller(confirmed, tmp_path)
    assert controller.time_limits.confirmation_ends(clock.now) == 50.0
    for number in range(2):
        name = start_trial(controller)
        update = report_update(name, 1, 0.5 + number, state=State.COMPLETE, seconds=seconds)
        controller.on_update(update)
    # Three rounds of two trials, one after the other, in at most a fifth of the time.
    check_end(controller, clock, 50.0 - left, "limits.timeout")
    assert controller.time_limits.confirmation_ends(clock.now) == 50.0
