"""Decisions of a driver, as a function of what it knows."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections import deque
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sweeps.controller.decide import decide
from sweeps.controller.driver_commands import (
    Ask,
    Continue,
    End,
    LimitsChecked,
    PauseTrial,
    Refuse,
    ResumeTrial,
    StartLater,
    StartNoMore,
    StopSweep,
    TrialLeft,
    TrialWanted,
)
from sweeps.controller.driver_state import DriverState, Policy
from sweeps.core.trial import Checkpoint, Report, Result, State
from sweeps.execution.messages import Ended, TrialUpdate
from sweeps.search.plugins import scheduler_of
from sweeps.search.schedulers.view import StudyView
from sweeps.search.trial_queue import TrialQueue
from sweeps.study.events import (
    AttemptStarted,
    TrialDecided,
    TrialEnded,
    TrialPaused,
    TrialReported,
    TrialStarted,
)
from sweeps.study.objectives import Objectives
from sweeps.study.record_reader import STOPPED
from sweeps.study.sweep_state import SweepState
from tests.execution.driving import trial

BODY = "params: {eta: {uniform: [0, 1]}}"
PROMOTION = "{name: asha, max_t: 9, type: promotion}"


class Known:
    """The knowledge of a driver, made of events without a study."""

    def __init__(self, space: Any) -> None:
        self.space = space
        self.scheduler = scheduler_of(space.scheduler)
        objectives = Objectives.from_space(space)
        sweep = SweepState(objectives, space.repeats)
        view = StudyView(0, objectives.minimize)
        queue = TrialQueue(space, scheduler_stops=True)
        self.driver = DriverState(sweep, view, queue, deque())
        self.defaults: tuple[dict[str, Any], ...] = ()

    def start(self, number: int) -> None:
        started = TrialStarted(0.0, number, trial(number, {"eta": 0.5}, 1, "none"))
        self.driver.view.add(self.driver.sweep.apply(started))
        self.driver.queue.record_start({"params.eta": 0.5}, None)
        self.driver.running = {**self.driver.running, number: None}

    def happen(self, event: Any) -> None:
        state = self.driver.sweep.apply(event)
        self.driver.view.follow(state)
        if isinstance(event, TrialEnded):
            self.driver.queue.record_end(state.number, state.state)
        if isinstance(event, TrialEnded | TrialPaused):
            left = {n: run for n, run in self.driver.running.items() if n != event.number}
            self.driver.running = left

    def report(self, number: int, step: int, loss: float, saves: bool = True) -> None:
        saved = Checkpoint(f"checkpoint_{step:06d}", step, step) if saves else None
        reports = (Report(step, {"loss": loss}, 0.0),)
        self.happen(TrialReported(0.0, number, reports, saved, saved))

    def decide(self, event: Any) -> list[Any]:
        before = dict(self.driver.sweep.trials)  # The states are frozen.
        policy = Policy.of(self.space, self.scheduler, self.driver.sweep)
        policy = dataclasses.replace(policy, defaults=self.defaults)
        commands = list(decide(self.driver, event, policy))
        again = decide(self.driver, event, policy)
        assert list(map(str, commands)) == list(map(str, again)), "the same decision again"
        assert before == self.driver.sweep.trials, "nothing changes"
        return commands


def waits(number: int, rung: int) -> TrialUpdate:
    return TrialUpdate(f"{number:04d}", rung=rung)


@pytest.fixture
def known(make_space: Any) -> Known:
    return Known(make_space(BODY, scheduler="{name: asha, max_t: 9}", max_trials=4))


def test_a_trial_starts_if_one_is_left_and_there_is_room(known: Any) -> None:
    assert known.decide(TrialWanted()) == [Ask()]
    known.driver.slots = 1
    known.start(0)
    assert known.decide(TrialWanted()) == [StartLater()]
    known.driver.slots = None
    for number in (1, 2, 3):
        known.start(number)
    assert known.decide(TrialWanted()) == [StartNoMore()]


def test_interrupted_trials_come_first_and_a_pause_or_an_end_starts_none(known: Any) -> None:
    known.driver.interrupted.append(7)
    assert known.decide(TrialWanted()) == [ResumeTrial(7)]
    known.driver.paused = True
    assert known.decide(TrialWanted()) == [StartLater()]
    known.driver.paused, known.driver.reason = False, "--minutes"
    assert known.decide(TrialWanted()) == [StartNoMore()]


def test_a_rung_is_decided_once(known: Any) -> None:
    for number, loss in enumerate((0.1, 0.2, 0.3, 0.4)):
        known.start(number)
        known.report(number, 1, loss)
    assert known.decide(waits(0, 1)) == [Continue(0, 1)]
    assert known.decide(waits(3, 1)) == [End(3, State.PRUNED, reason="asha at step 1")]
    known.happen(TrialDecided(0.0, 0, 1))
    assert known.decide(waits(0, 1)) == [Continue(0, 1, is_new=False)], "after a failed attempt"


def test_a_default_configuration_is_never_stopped(known: Any) -> None:
    for number, loss in enumerate((0.1, 0.2, 0.3, 0.4)):
        known.start(number)
        known.report(number, 1, loss)
    assert known.decide(waits(3, 1)) == [End(3, State.PRUNED, reason="asha at step 1")]
    known.defaults = ({},)  # Every trial has these keys.
    assert known.decide(waits(3, 1)) == [Continue(3, 1, is_new=False)]


def test_best_paused_trial_continues_and_others_end(make_space: Any) -> None:
    known = Known(make_space(BODY, scheduler=PROMOTION, max_trials=3))
    for number, loss in enumerate((0.3, 0.1, 0.2)):
        known.start(number)
        known.report(number, 1, loss)
        expected = PauseTrial(number, 1)
        assert known.decide(waits(number, 1)) == [expected], "none is among the best of three yet"
        known.happen(TrialPaused(0.0, number, 1))
    known.driver.view.all_started = True
    assert known.decide(TrialWanted()) == [ResumeTrial(1, 1)], "one of three continues"
    known.happen(TrialDecided(0.0, 1, 1))
    known.driver.running = {1: None}
    assert known.decide(TrialWanted()) == [StartLater()]
    known.happen(TrialEnded(0.0, 1, Result(State.FAIL)))
    assert known.decide(TrialWanted()) == [ResumeTrial(2, 1)], "the next one after a failure"
    known.happen(TrialDecided(0.0, 2, 1))
    known.happen(TrialEnded(0.0, 2, Result(State.PRUNED)))
    left = [End(0, State.PRUNED, reason="asha at step 1"), StartNoMore()]
    assert known.decide(TrialWanted()) == left, "one of three has continued and did not fail"


@pytest.mark.parametrize("ended", [False, True])
def test_a_missing_checkpoint_ends_the_sweep_or_one_trial(make_space: Any, ended: bool) -> None:
    known = Known(make_space(BODY, scheduler=PROMOTION, max_trials=4))
    known.start(0)
    known.report(0, 1, 0.5, saves=False)
    if ended:
        known.start(1)
        known.report(1, 1, 0.4)
        known.happen(TrialEnded(0.0, 1, Result(State.COMPLETE)))
    (command,) = known.decide(waits(0, 1))
    assert isinstance(command, End if ended else Refuse)
    assert "reported step 1 without a checkpoint" in str(command)


def test_trial_of_earlier_driver_ends_as_it_would_have(known: Any) -> None:
    for number, loss in enumerate((0.1, 0.2, 0.3)):
        known.start(number)
        known.report(number, 1, loss)
    states = known.driver.sweep.trials
    assert known.decide(TrialLeft(states[2])) == [End(2, State.PRUNED, reason="asha at step 1")]
    assert known.decide(TrialLeft(states[0])) == [Continue(0, 1)]
    known.report(0, 5, 0.1)
    assert known.decide(TrialLeft(states[0])) == [], "it stands at no rung"
    known.report(0, 9, 0.1)
    assert known.decide(TrialLeft(states[0])) == [End(0, State.COMPLETE)]


def test_an_end_in_the_pool_says_why(known: Any) -> None:
    known.start(0)
    end = Ended(0, State.PRUNED)
    known.driver.reason = "--minutes"
    (early,) = known.decide(TrialUpdate("0000", end=end))
    assert early.reason == "--minutes, unfinished", "without a checkpoint, it cannot win"
    known.report(0, 1, 0.5)
    assert known.decide(TrialUpdate("0000", end=end)) == [End(0, State.PRUNED, reason="--minutes")]
    known.driver.stop_requested.add(0)
    (command,) = known.decide(TrialUpdate("0000", end=end))
    assert command.reason == STOPPED
    refused = Ended(0, State.FAIL, "boom", refused=("objective.metric", "is missing"))
    first, second = known.decide(TrialUpdate("0000", end=refused))
    assert isinstance(first, Refuse) and second == End(0, State.FAIL, "boom", final={})


def test_limits_stop_a_sweep_once(known: Any) -> None:
    assert known.decide(LimitsChecked()) == []
    assert known.decide(LimitsChecked("--minutes")) == [StopSweep("--minutes", State.PRUNED)]
    known.driver.reason = "interrupted"
    assert known.decide(LimitsChecked("--minutes")) == []


def test_gpu_hours_count_running_and_waiting_trials(make_space: Any) -> None:
    space = make_space(BODY, scheduler="{name: asha, max_t: 9}", max_trials=4)
    limits = dataclasses.replace(space.limits, max_gpu_hours=1.0)
    known = Known(dataclasses.replace(space, limits=limits))
    gpu = trial(0, {"eta": 0.5}, 1, "none")
    shape = dataclasses.replace(gpu.shape, per_worker=(("GPU", 1.0),))
    state = known.driver.sweep.apply(TrialStarted(0.0, 0, dataclasses.replace(gpu, shape=shape)))
    known.driver.running = {0: None}
    assert known.decide(LimitsChecked(None, {state.id: 3599.0})) == []
    (stop,) = known.decide(LimitsChecked(None, {state.id: 3600.0}))
    assert stop.reason.startswith("limits.max_gpu_hours") and stop.unfinished is State.PRUNED


MOVES = st.lists(
    st.tuples(st.sampled_from(["want", "report", "again", "fail", "lose"]), st.integers(0, 5)),
    max_size=60,
)


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    MOVES,
    st.sampled_from(["{name: asha, max_t: 9}", PROMOTION]),
    st.integers(0, 2**32),
)
def test_any_course_of_a_sweep_ends_and_decides_each_rung_once(
    make_space: Any, moves: Any, kind: Any, seed: Any
) -> None:
    """Reports may come twice. At the end, every trial that still runs is taken to its end."""
    known = Known(make_space(BODY, scheduler=kind, max_trials=6))
    decided: set[tuple[int, int]] = set()
    ended: set[int] = set()
    chance = random.Random(seed)
    rest = itertools.cycle([("want", 0), ("report", 0)])
    for move, number in itertools.chain(moves, itertools.islice(rest, 400)):
        if len(ended) == 6:
            break
        step_course(known, move, number, decided, ended, chance)
    assert known.decide(TrialWanted())[-1] == StartNoMore()
    assert len(ended) == 6 and not known.driver.running and not known.driver.view.paused


def step_course(known: Any, move: Any, number: Any, decided: Any, ended: Any, chance: Any) -> None:
    """Make one move of a sweep, and carry out what the driver decides."""
    driver = known.driver
    if move == "want":
        for command in known.decide(TrialWanted()):
            carry_out(known, command, decided, ended)
        return
    running = sorted(driver.running)
    if not running:
        return
    chosen = running[number % len(running)]
    state = driver.sweep.trials[chosen]
    if move == "lose":
        known.happen(AttemptStarted(0.0, chosen, state.attempt + 1))
    elif move == "again" and state.reports:
        known.report(chosen, state.steps, 0.5)
    elif move == "fail":
        end = TrialUpdate(state.id, end=Ended(0, State.FAIL, "boom"))
        for command in known.decide(end):
            carry_out(known, command, decided, ended)
    elif move in ("report", "again"):
        step = state.steps + 1
        known.report(chosen, step, chance.random())
        update = waits(chosen, step) if step in known.scheduler.rungs() else None
        if step == 9:
            update = TrialUpdate(state.id, end=Ended(0, State.COMPLETE))
        for command in known.decide(update) if update else ():
            carry_out(known, command, decided, ended)


def carry_out(known: Any, command: Any, decided: Any, ended: Any) -> None:
    """Do what a driver does."""
    match command:
        case Ask():
            known.start(len(known.driver.sweep.trials))
            known.driver.view.all_started = known.driver.queue.is_empty
        case ResumeTrial(number, rung):
            assert rung is not None
            known.happen(TrialDecided(0.0, number, rung))
            known.driver.running = {**known.driver.running, number: None}
        case Continue(number, rung, is_new):
            assert is_new == ((number, rung) not in decided)
            decided.add((number, rung))
            known.happen(TrialDecided(0.0, number, rung))
        case PauseTrial(number, rung):
            assert (number, rung) not in decided
            decided.add((number, rung))
            known.happen(TrialPaused(0.0, number, rung))
        case End(number, state):
            assert number not in ended
            ended.add(number)
            known.happen(TrialEnded(0.0, number, Result(state)))
