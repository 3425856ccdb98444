"""A controller that carries out commands: stop, pause, resume and enqueue."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sweeps.controller.commands import (
    Answer,
    Command,
    CommandQueue,
    Enqueue,
    Pause,
    Resume,
    Stop,
    read_answer,
    send,
)
from sweeps.controller.controller import SweepController
from sweeps.core.trial import State
from sweeps.study.events import TrialPaused
from sweeps.study.record_reader import STOPPED
from tests.controller.controllers import (
    BODY,
    open_controller,
    poll,
    recorded_states,
    recorded_trials,
    report_update,
)
from tests.simulation.simulated_pool import VirtualClock
from tests.study.studies import recorded_study


@pytest.fixture
def controller(make_space: Any, tmp_path: Path) -> SweepController:
    """A controller with a trial that runs."""
    controller = open_controller(make_space(BODY), tmp_path)
    assert controller.start_trial() == "0000"
    return controller


def carry_out(controller: SweepController, clock: VirtualClock, command: Command) -> Answer:
    """Send a command, let the controller carry it out, and return the answer."""
    file = send(controller.folder, command)
    poll(controller, clock)
    assert not file.exists(), "a handled command is deleted"
    answer = read_answer(file)
    assert answer is not None
    return answer


def text_of(answer: Answer) -> str:
    return "; ".join(answer.problems) or answer.text


def is_paused(folder: Path) -> bool:
    """Return whether the study says that the sweep is paused."""
    return recorded_study(folder).paused


def test_a_command_stops_the_sweep_and_leaves_its_trials_resumable(
    controller: Any, clock: Any
) -> None:
    assert text_of(carry_out(controller, clock, Stop())) == "stopping; 1 trial is interrupted"
    again = carry_out(controller, clock, Stop())
    assert text_of(again) == "the sweep is ending already (interrupted)"
    assert controller.reason == "interrupted"
    assert controller.commands.notes
    with pytest.raises(StopIteration):
        controller.start_trial()
    controller.close()
    assert recorded_states(controller.folder) == [State.RUNNING]


def test_a_command_stops_one_trial_at_once_and_the_record_has_the_cause(
    controller: Any, clock: Any
) -> None:
    assert controller.start_trial() == "0001"
    calls: list[tuple[Any, ...]] = []
    controller.pool.stop = SimpleNamespace(remote=lambda *args: calls.append(args))
    controller.on_update(report_update("0000", 1, 0.5))
    file = send(controller.folder, Stop("0000"))
    for _ in range(2):  # The pool may have been restarted after the first request.
        poll(controller, clock)
    assert calls == [("0000",)] * 2
    assert read_answer(file) is None, "the answer waits for the trial's last reports"
    assert not controller.on_update(report_update("0000", 2, 0.4, state=State.PRUNED))
    poll(controller, clock)
    assert read_answer(file) == Answer("trial 0000 is stopped, after 2 steps", "0000")
    assert list(controller.running) == [1]
    assert recorded_states(controller.folder) == [State.PRUNED, State.RUNNING]
    stopped, _ = recorded_trials(controller.folder)
    assert stopped.reason == stopped.result.reason == STOPPED
    assert stopped.result.value == 0.4
    again = carry_out(controller, clock, Stop("0000"))
    assert text_of(again) == "trial 0000 has ended already (PRUNED)"


def test_a_trial_that_ends_before_it_is_stopped_keeps_its_end(controller: Any, clock: Any) -> None:
    file = send(controller.folder, Stop("0000"))
    poll(controller, clock)
    controller.on_update(report_update("0000", 1, 0.5, state=State.COMPLETE))
    poll(controller, clock)
    assert read_answer(file) == Answer(problems=("trial 0000 has ended already (COMPLETE)",))
    (trial,) = recorded_trials(controller.folder)
    assert (trial.result.state, trial.reason) == (State.COMPLETE, None)


def test_a_paused_trial_and_an_interrupted_trial_can_be_stopped(
    make_space: Any, tmp_path: Path, clock: Any
) -> None:
    space = make_space(BODY, scheduler="{name: hyperband, max_t: 9, reduction_factor: 3}")
    first = open_controller(space, tmp_path)
    for _ in range(2):
        assert first.start_trial() is not None
    first.on_update(report_update("0000", 1, 0.5))
    first.search.store.append(TrialPaused(1.0, 0, 1))
    resumed = open_controller(space, tmp_path)
    assert resumed.search.view.paused == {0: 1}
    assert list(resumed.search.interrupted) == [1]
    paused = carry_out(resumed, clock, Stop("0000"))
    assert text_of(paused) == "trial 0000 is stopped, after 1 step"
    interrupted = carry_out(resumed, clock, Stop("0001"))
    assert text_of(interrupted) == "trial 0001 is stopped, before its first step"
    assert not resumed.search.view.paused
    assert not resumed.search.interrupted
    ends = [(trial.result.state, trial.reason) for trial in recorded_trials(tmp_path)]
    assert ends == [(State.PRUNED, STOPPED)] * 2


def test_after_a_pause_trials_run_on_but_none_starts_until_the_resume(
    controller: Any, clock: Any
) -> None:
    answer = carry_out(controller, clock, Pause())
    assert text_of(answer) == "paused; 1 trial is still running, and no new trial starts"
    assert controller.start_trial() is None
    assert controller.reason is None
    assert controller.status().paused
    assert is_paused(controller.folder)
    assert controller.on_update(report_update("0000", 1, 0.5))
    carry_out(controller, clock, Resume())
    assert controller.start_trial() == "0001"
    assert not is_paused(controller.folder)
    assert not controller.status().paused


def test_a_driver_that_follows_a_paused_one_is_not_paused(
    make_space: Any, tmp_path: Path, clock: Any
) -> None:
    space = make_space(BODY)
    first = open_controller(space, tmp_path)
    assert first.start_trial() == "0000"
    carry_out(first, clock, Pause())
    assert is_paused(tmp_path)
    resumed = open_controller(space, tmp_path)
    assert resumed.start_trial() == "0000"
    assert resumed.start_trial() == "0001"
    assert not is_paused(tmp_path)


def test_a_sweep_ends_if_no_trial_is_left_to_start_in_a_pause(
    make_space: Any, tmp_path: Path, clock: Any
) -> None:
    controller = open_controller(make_space(BODY, max_trials=2), tmp_path)
    assert controller.start_trial() is not None
    carry_out(controller, clock, Pause())
    carry_out(controller, clock, Resume())
    assert controller.start_trial() is not None
    answer = carry_out(controller, clock, Pause())
    assert text_of(answer) == "all trials have started already, so a pause would change nothing"
    for name in ("0000", "0001"):
        controller.on_update(report_update(name, 1, 0.5, state=State.COMPLETE))
    with pytest.raises(StopIteration):
        controller.start_trial()


def test_an_enqueued_configuration_starts_next_and_the_record_says_so(
    controller: Any, clock: Any
) -> None:
    answer = carry_out(controller, clock, Enqueue({"eta": 0.25}))
    assert answer == Answer("trial 0001 is the next trial to start", "0001")
    answer = carry_out(controller, clock, Enqueue({"params.eta": 0.75}))
    assert answer.text == "trial 0002 starts after 1 trial enqueued earlier"
    assert [controller.start_trial() for _ in range(3)] == ["0001", "0002", "0003"]
    trials = recorded_trials(controller.folder)
    assert [trial.trial.enqueued for trial in trials] == [False, True, True, False]
    assert [trial.params["eta"] for trial in trials[1:3]] == [0.25, 0.75]
    assert trials[1].to_json()["enqueued"] is True
    store = controller.search.store
    assert store.trial(1).enqueued
    assert not store.trial(3).enqueued


def test_enqueued_configuration_survives_driver_exactly_once(
    make_space: Any, tmp_path: Path, clock: Any
) -> None:
    space = make_space(BODY)
    first = open_controller(space, tmp_path)
    file = send(tmp_path, Enqueue({"eta": 0.25}))
    text = file.read_bytes()
    poll(first, clock)
    file.write_bytes(text)  # The driver died before it could delete the command.
    CommandQueue(tmp_path).discard_stale()
    resumed = open_controller(space, tmp_path)
    poll(resumed, clock)
    assert read_answer(file) == Answer("trial 0000 starts after 1 trial enqueued earlier", "0000")
    assert [resumed.start_trial(), resumed.start_trial()] == ["0000", "0001"]
    enqueued, sampled = recorded_trials(tmp_path)
    assert enqueued.trial.enqueued
    assert enqueued.params["eta"] == 0.25
    assert not sampled.trial.enqueued
    assert sampled.params["eta"] != 0.25


def test_enqueued_configurations_replace_no_initial_points(
    make_space: Any, tmp_path: Path, clock: Any
) -> None:
    space = make_space(BODY, points="[{params.eta: 0.1}, {params.eta: 0.2}]", max_trials=4)
    first = open_controller(space, tmp_path)
    for eta in (0.7, 0.8):
        carry_out(first, clock, Enqueue({"eta": eta}))
        assert first.start_trial() is not None
    resumed = open_controller(space, tmp_path)
    while len(resumed.running) < 4:
        assert resumed.start_trial() is not None
    assert [t.params["eta"] for t in recorded_trials(tmp_path)] == [0.7, 0.8, 0.1, 0.2]
    answer = carry_out(resumed, clock, Enqueue({"eta": 0.5}))
    assert text_of(answer) == (
        "all 4 trials of limits.max_trials have started; `sweeps resume --add-trials` adds trials "
        "later"
    )
    with pytest.raises(StopIteration):
        resumed.start_trial()


GRIDS = "params: {eta: {grid: [1, 2]}}"
FIXED = "params: {eta: 0.5}"
NONE = "{name: none}"
PBT = "{name: pbt, perturbation_interval: 2, max_t: 4}"
# The space, the scheduler, a command, the problems in its answer, and whether the command is wrong.
REFUSED = [
    (
        BODY,
        NONE,
        Enqueue({"eta": 3, "etaa": 1}),
        ["must be within its bounds, 0 to 1, got 3", "no dimension `etaa`"],
        True,
    ),
    (BODY, NONE, Enqueue({}), ["give at least one value"], True),
    (BODY, PBT, Enqueue({"eta": 0.5}), ["pbt starts all trials of its population at once"], False),
    (BODY, PBT, Pause(), ["pbt starts all trials at once"], False),
    (GRIDS, NONE, Enqueue({"eta": 1}), ["all dimensions of the space are grids"], False),
    (FIXED, NONE, Enqueue({"eta": 0.5}), ["the space has no dimension"], False),
    (BODY, NONE, Stop("0099"), ["no trial `0099`; the trials are 0000 to 0000"], True),
    (BODY, NONE, Resume(), ["is running and is not paused"], False),
]


@pytest.mark.parametrize("body, scheduler, command, problems, invalid", REFUSED)
def test_a_command_that_cannot_be_carried_out_is_answered_and_logged(
    make_space: Any,
    tmp_path: Path,
    clock: Any,
    caplog: pytest.LogCaptureFixture,
    body: Any,
    scheduler: Any,
    command: Any,
    problems: Any,
    invalid: Any,
) -> None:
    space = make_space(body, scheduler=scheduler, max_trials=4)
    controller = open_controller(space, tmp_path)
    assert controller.start_trial() == "0000"
    answer = carry_out(controller, clock, command)
    assert len(answer.problems) == len(problems)
    assert answer.invalid is invalid
    assert not answer.text
    for problem in problems:
        assert problem in text_of(answer)
        assert problem in caplog.text
    assert controller.reason is None
    assert not controller.status().paused
