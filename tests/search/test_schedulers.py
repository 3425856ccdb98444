from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.core.trial import Action, State
from sweeps.search.schedulers import Scheduler
from sweeps.search.schedulers.asha import Asha
from sweeps.search.schedulers.hyperband import Hyperband
from sweeps.search.schedulers.median import Median
from sweeps.search.schedulers.none import NoScheduler
from sweeps.search.schedulers.scheduler import all_row_steps, all_rungs, row_steps
from sweeps.search.schedulers.simulated import SimulatedStudy
from sweeps.space.sections.key_types import ROWS
from tests.execution.driving import trial

values = st.lists(st.floats(-1e6, 1e6), max_size=40)


def study_of(
    curves: Iterable[Sequence[float]], minimize: bool = True, bracket: int = 0
) -> SimulatedStudy:
    """A study of trials that have reported these values at the steps 1, 2, ..."""
    study = SimulatedStudy(0, minimize)
    for number, values in enumerate(curves):
        study.start(number, bracket)
        if values:
            study.report(number, dict(enumerate(values, 1)))
    return study


def decided(
    scheduler: Scheduler,
    others: Sequence[float],
    value: float,
    minimize: bool = True,
    rung: int = 1,
    bracket: int = 0,
) -> Action:
    """The action for a trial with this value at a rung, where other trials of its bracket have the
    others.
    """
    study = SimulatedStudy(0, minimize)
    for number, reported in enumerate([value, *others]):
        study.start(number, bracket)
        study.report(number, {rung: reported})
    return scheduler.decide(study, 0, rung).action


@pytest.mark.parametrize(
    "asha, rungs",
    [
        (Asha(200, 10, 3), (10, 30, 90)),
        (Asha(50, 5, 3), (5, 15, 45)),
        (Asha(81, 1, 3), (1, 3, 9, 27)),
        (Asha(4, 4, 2), ()),
        (Asha(5, 4, 2), (4,)),
    ],
)
def test_rungs_grow_by_the_factor_and_stay_below_max_t(asha: Any, rungs: Any) -> None:
    assert asha.rungs() == all_rungs(asha) == rungs


@given(values, st.booleans())
def test_nan_never_continues_and_never_counts_as_better(others: Any, minimize: Any) -> None:
    asha = Asha(81, 1, 3)
    assert decided(asha, others, math.nan, minimize) is Action.STOP
    spoiled = [*others, math.nan, math.nan]
    assert (
        decided(asha, spoiled, (min if minimize else max)(others, default=0.0), minimize)
        is Action.CONTINUE
    )


def test_a_trial_without_a_report_at_the_rung_stops() -> None:
    assert Asha(81, 1, 3).decide(study_of([[]]), 0, 1).action is Action.STOP


@given(values, st.floats(-1e6, 1e6), st.integers(2, 5))
def test_minimizing_and_maximizing_mirror_each_other(others: Any, value: Any, factor: Any) -> None:
    asha = Asha(81, 1, factor)
    assert decided(asha, others, value, True) is decided(asha, [-v for v in others], -value, False)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60, unique=True), st.integers(2, 4))
def test_if_all_trials_have_arrived_one_in_factor_passes(everyone: Any, factor: Any) -> None:
    asha = Asha(81, 1, factor)
    passed = [
        v
        for i, v in enumerate(everyone)
        if decided(asha, everyone[:i] + everyone[i + 1 :], v) is Action.CONTINUE
    ]
    assert len(passed) == math.ceil(len(everyone) / factor)
    assert sorted(everyone)[: len(passed)] == sorted(passed)


def test_without_a_scheduler_every_trial_continues() -> None:
    assert NoScheduler().rungs() == ()
    assert decided(NoScheduler(7), [1.0], math.nan) is Action.CONTINUE


@pytest.mark.parametrize("brackets, begin", [(1, (1,)), (3, (1, 3, 9)), (9, (1, 3, 9, 27))])
def test_each_bracket_begins_a_rung_later_and_there_are_no_more_than_rungs(
    brackets: int, begin: Any
) -> None:
    hyperband = Hyperband(81, 1, 3, brackets)
    assert (
        hyperband.grace_periods
        == begin
        == tuple(hyperband.rungs(bracket)[0] for bracket in range(hyperband.bracket_count))
    )
    assert all_rungs(hyperband) == all_rungs(Asha(81, 1, 3)) or brackets > 1
    assert Hyperband(5, 5, 3, brackets).bracket(0, 0) == 0


@given(values, st.floats(-1e6, 1e6), st.booleans(), st.integers(0, 2))
def test_within_its_bracket_hyperband_is_asha(
    others: Any, value: Any, minimize: Any, bracket: Any
) -> None:
    hyperband, asha = Hyperband(81, 1, 3, 3), Asha(81, 1, 3)
    assert hyperband.rungs(bracket) == asha.rungs()[bracket:]
    for rung in hyperband.rungs(bracket):
        assert decided(hyperband, others, value, minimize, rung, bracket) is decided(
            asha, others, value, minimize, rung, bracket
        )


def test_brackets_come_with_hyperbands_odds_and_are_the_same_again() -> None:
    hyperband = Hyperband(81, 1, 3, 3)
    drawn = [hyperband.bracket(7, number) for number in range(4000)]
    assert drawn == [hyperband.bracket(7, number) for number in range(4000)]
    assert drawn != [hyperband.bracket(8, number) for number in range(4000)]
    odds = [5 / 5 * 81, 5 / 4 * 27, 5 / 3 * 9]
    for bracket, odd in enumerate(odds):
        assert drawn.count(bracket) / len(drawn) == pytest.approx(odd / sum(odds), abs=0.03)


curves = st.lists(st.floats(-1e6, 1e6), min_size=9, max_size=9)


@given(curves, st.lists(curves, max_size=12), st.booleans(), st.integers(1, 8))
def test_median_rule_stops_trial_below_median_of_means(
    own: Any, others: Any, minimize: Any, least: Any
) -> None:
    action = Median(50, 2, least).decide(study_of([own, *others], minimize), 0, 9).action
    if len(others) < least:
        assert action is Action.CONTINUE
    else:
        best = min(own) if minimize else max(own)
        worse = sum(
            sum(other) / 9 < best if minimize else sum(other) / 9 > best for other in others
        )
        assert worse * 2 >= len(others) or action is Action.CONTINUE
        assert worse * 2 <= len(others) or action is Action.STOP


@given(st.lists(curves, min_size=5, max_size=12), st.booleans())
def test_under_the_median_rule_nan_is_the_worst(others: Any, minimize: Any) -> None:
    rule = Median(50, 2, 5)
    bad = study_of([[math.nan] * 9, *others], minimize)
    assert rule.decide(bad, 0, 9).action is Action.STOP
    value = (min if minimize else max)(t.mean_until(9) for t in bad.trials.values() if t.number)
    spoiled = study_of([[value] * 9, [1.0, math.nan, *[1.0] * 7], *others], minimize)
    assert math.isnan(spoiled.trials[1].mean_until(9))
    assert spoiled.trials[1].best_until(9, minimize) == 1.0
    assert rule.decide(spoiled, 0, 9).action is Action.CONTINUE


@given(
    st.lists(st.tuples(st.lists(st.floats(-9, 9), min_size=1, max_size=9), st.booleans())),
    st.floats(-9, 9),
    st.booleans(),
    st.sampled_from([Asha(81), Hyperband(81, 1, 3, 1), Asha(81, type="promotion")]),
)
def test_ended_trial_counts_at_later_rungs_with_best_value(
    others: Any, value: Any, minimize: Any, scheduler: Any
) -> None:
    """The decision is the one for curves that stay at their best value after their end."""
    best = min if minimize else max
    decisions = []
    for is_extended in (False, True):
        curves = [[value] * 9]
        for values, complete in others:
            rest = 9 - len(values) if complete and is_extended else 0
            curves.append([*values, *[best(values)] * rest])
        study = study_of(curves, minimize)
        for number, (_, complete) in enumerate(others, 1):
            study.end(number, State.COMPLETE if complete else State.PRUNED)
        decisions.append(scheduler.decide(study, 0, 9))
    assert decisions[0] == decisions[1]


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 3), st.booleans()), max_size=40),
    st.sampled_from([State.COMPLETE, State.PRUNED, State.FAIL]),
)
def test_trials_of_rung_do_not_depend_on_order_of_reports(moves: Any, end: Any) -> None:
    """A view that is asked after each event knows the same as one that is asked at the end."""
    asked, late = SimulatedStudy(), SimulatedStudy()
    for number, step, ends in moves:
        for study in (asked, late):
            if number not in study.trials:
                study.start(number, number % 2)
            trial = study.trials[number]
            if trial.running:
                study.report(number, {max(trial.values, default=0) + step: float(number)})
                if ends:
                    study.end(number, end)
        for rung in range(1, 8):
            asked.at_rung(rung, rung % 2)
    for rung in range(1, 8):
        trials, known = (study.at_rung(rung, rung % 2) for study in (asked, late))
        assert [trial.number for trial in trials] == [trial.number for trial in known]
        assert all(trial.has_reached(rung) for trial in trials)


def test_ended_trial_has_not_reached_skipped_steps() -> None:
    study = SimulatedStudy()
    study.start(0)
    study.report(0, {1: 3.0, 4: 2.0})
    trial = study.trials[0]
    assert [trial.has_reached(step) for step in (1, 2, 4, 5)] == [True, False, True, False]
    study.end(0, State.COMPLETE)
    assert [trial.has_reached(step) for step in (1, 2, 4, 5)] == [True, False, True, True]
    assert trial.value_at(1) == 3.0 and trial.value_at(9) == 2.0
    assert trial.mean_until(9) == trial.mean_until(4) == 2.5


def test_median_rule_compares_every_report_after_grace_period() -> None:
    assert (
        3 not in Median(50, 4).rungs()
        and 4 in Median(50, 4).rungs()
        and 50 not in Median(50, 4).rungs()
    )
    assert 10**9 in Median(None, 4).rungs()


@given(
    st.integers(1, 5), st.integers(2, 90), st.integers(2, 5), st.integers(0, 50), st.integers(0, 9)
)
def test_a_scheduler_that_counts_rows_trains_at_its_rungs_and_on_all_rows(
    grace: Any, more: Any, factor: Any, number: Any, seed: Any
) -> None:
    for scheduler in (
        Asha(grace + more, grace, factor, resource=ROWS),
        Hyperband(grace + more, grace, factor, 3, resource=ROWS),
    ):
        steps = row_steps(scheduler, seed, trial(number, {}, 1, "none"))
        assert steps == (*scheduler.rungs(scheduler.bracket(seed, number)), grace + more)
        assert set(steps) <= set(all_row_steps(scheduler)) and list(steps) == sorted(set(steps))
        repeat = dataclasses.replace(trial(number, {}, 1, "none"), repeat_of=0)
        assert row_steps(scheduler, seed, repeat) == (grace + more,), "a repeat is never stopped"


def test_other_schedulers_do_not_train_again() -> None:
    assert row_steps(Asha(9), 0, trial(0, {}, 1, "none")) == all_row_steps(NoScheduler(9)) == ()
