"""Schedulers that pause trials and promote the best ones: ASHA with `type: promotion`, Hyperband
with it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sweeps.core.trial import Action, State
from sweeps.search.schedulers.asha import Asha
from sweeps.search.schedulers.hyperband import Hyperband
from sweeps.search.schedulers.promotion import next_promoted
from sweeps.search.schedulers.simulated import SimulatedStudy

PROMOTION = Asha(27, type="promotion")
SCHEDULERS = [PROMOTION, Hyperband(27, type="promotion")]
qualities = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40)
Passed = list[tuple[int, int | None]]  # (trial, rung) of each promotion


def search(
    scheduler: Asha,
    trials: int,
    workers: int,
    value: Callable[[int, int], float],
    minimize: bool = True,
) -> tuple[SimulatedStudy, Passed]:
    """Run a sweep as the controller does. A round takes each running trial to its next rung."""
    view = SimulatedStudy(7, minimize)
    passed: Passed = []
    running: list[int] = []
    while True:
        while len(running) < workers:
            view.all_started = len(view.trials) == trials
            if (paused := scheduler.next_paused(view)) is not None:
                passed.append((paused, view.trials[paused].paused_at))
                view.resume(paused)
                running.append(paused)
            elif not view.all_started:
                running.append(len(view.trials))
                view.start(running[-1], scheduler.bracket(7, running[-1]))
            else:
                break
        if not running:
            return view, passed
        for number in running.copy():
            trial = view.trials[number]
            ends = (*scheduler.rungs(trial.bracket), scheduler.max_t)
            step = next(end for end in ends if end not in trial.values)
            first = max(trial.values, default=0) + 1
            view.report(number, {s: value(number, s) for s in range(first, step + 1)})
            action = (
                Action.STOP
                if step == scheduler.max_t
                else scheduler.decide(view, number, step).action
            )
            if action is Action.CONTINUE:
                passed.append((number, step))
                continue
            running.remove(number)
            if action is Action.PAUSE:
                view.pause(number, step)
            else:
                view.end(number)


def study_of(
    values: Mapping[int, Mapping[int, float]],
    paused: Mapping[int, int] = MappingProxyType({}),
    minimize: bool = True,
) -> SimulatedStudy:
    """A study of trials with these values by step.

    Args:
        values: Values of each trial by its number.
        paused: Rung at which each paused trial waits.
        minimize: True if smaller values are better.
    """
    study = SimulatedStudy(0, minimize)
    for number, curve in values.items():
        study.start(number)
        if curve:
            study.report(number, dict(curve))
        if number in paused:
            study.pause(number, paused[number])
    return study


def test_if_the_best_trial_fails_on_its_way_the_next_one_is_promoted() -> None:
    view = study_of({n: {1: float(n)} for n in range(4)}, paused={1: 1, 2: 1, 3: 1})
    view.all_started = True
    view.end(0, State.FAIL)
    assert PROMOTION.next_paused(view) == 1


@given(qualities, st.integers(1, 5), st.booleans(), st.sampled_from(SCHEDULERS))
def test_one_trial_in_factor_continues_in_each_bracket(
    values: Any, workers: Any, minimize: Any, scheduler: Any
) -> None:
    view, _ = search(scheduler, len(values), workers, lambda number, step: values[number], minimize)
    assert not any(t.running and t.paused_at is None for t in view.trials.values())
    for bracket in {t.bracket for t in view.trials.values()}:
        assert len(view.at_rung(27, bracket)) >= 1, (
            "the best trial continues when all trials have started"
        )
        for rung, above in zip(
            scheduler.rungs(bracket), (*scheduler.rungs(bracket)[1:], 27), strict=True
        ):
            reached, best = view.at_rung(rung, bracket), (min if minimize else max)
            assert len(view.at_rung(above, bracket)) >= max(1, len(reached) // 3)
            assert best(t.values[rung] for t in reached) == best(
                t.values[above] for t in view.at_rung(above, bracket)
            )


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=40),
    st.integers(0, 2**32),
    st.integers(2, 5),
    st.booleans(),
)
def test_a_promoted_trial_is_among_the_best_one_in_factor_of_its_rung(
    values: Any, seed: Any, factor: Any, minimize: Any
) -> None:
    rng = random.Random(seed)
    waiting = {number: 1 for number in range(len(values)) if rng.random() < 0.5}
    view = study_of({n: {1: v} for n, v in enumerate(values)}, waiting, minimize)
    number = next_promoted(view, waiting, [(1, 0)], lambda reached: reached // factor)
    ranked = sorted(range(len(values)), key=lambda n: (values[n] if minimize else -values[n], n))
    best = ranked[: len(values) // factor]
    assert number == next((n for n in best if n in waiting), None)


def test_trial_continues_at_once_only_if_best_of_paused_trials() -> None:
    waiting = {n: {1: float(n)} for n in (1, 2, 3, 4, 5)}
    paused = dict.fromkeys(waiting, 1)
    view = study_of({**waiting, 9: {1: 0.5}}, paused)
    assert PROMOTION.decide(view, 9, 1).action is Action.CONTINUE
    # The first of six still waits, and is promoted before the second.
    view = study_of({**waiting, 9: {1: 1.5}}, paused)
    assert PROMOTION.decide(view, 9, 1).action is Action.PAUSE and PROMOTION.next_paused(view) == 1
    view.resume(1)
    assert PROMOTION.decide(view, 9, 1).action is Action.CONTINUE, "two of six may pass"


def test_a_higher_rung_comes_first() -> None:
    values = {n: {1: float(n), 3: float(n)} for n in (3, 4, 5)}
    values |= {n: {1: float(n)} for n in (0, 1, 2)}
    view = study_of(values, paused={n: 3 if n > 2 else 1 for n in values})
    assert PROMOTION.next_paused(view) == 3
    view.resume(3)
    assert PROMOTION.next_paused(view) == 0


def test_best_trial_of_rung_continues_only_when_nothing_runs() -> None:
    view = study_of({n: {1: float(n)} for n in (0, 1)}, paused={0: 1, 1: 1})
    assert PROMOTION.next_paused(view) is None
    view.all_started = True
    assert PROMOTION.next_paused(view) == 0
    view.start(2)
    assert PROMOTION.next_paused(view) is None
    view.end(2)
    assert PROMOTION.next_paused(view) == 0


def test_nan_is_stopped_and_counts_as_a_trial_of_its_rung() -> None:
    for third, action in (
        ({1: 1.0}, Action.CONTINUE),  # one of three passes
        ({1: math.nan}, Action.STOP),
        ({}, Action.STOP),
    ):
        view = study_of({0: {1: math.nan}, 1: {1: math.nan}, 2: third})
        view.end(0)
        view.end(1)
        assert PROMOTION.decide(view, 2, 1).action is action


def test_a_trial_that_ended_on_its_own_takes_a_place_among_the_best() -> None:
    waiting = {n: {1: float(n), 3: float(n)} for n in range(1, 6)}
    view = study_of(waiting, paused=dict.fromkeys(waiting, 3))
    assert PROMOTION.next_paused(view) == 1
    view.start(0)
    view.report(0, {1: 0.0})
    view.end(0, State.COMPLETE)
    assert PROMOTION.next_paused(view) == 1, "two of six continue"
    view.start(9)
    view.report(9, {1: 0.5})
    view.end(9, State.COMPLETE)
    assert PROMOTION.next_paused(view) is None
