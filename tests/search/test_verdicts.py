from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.core.trial import Decision
from sweeps.search.schedulers.rules import Asha, Hyperband, Median, NoScheduler

values = st.lists(st.floats(-1e6, 1e6), max_size=40)


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
def test_rungs_grow_by_the_factor_and_stay_below_max_t(asha, rungs):
    assert asha.rungs == rungs


@given(values, st.booleans(), st.integers(2, 5))
def test_the_best_so_far_always_goes_on(others, minimize, factor):
    value = (min if minimize else max)(others, default=0.0)
    assert Asha(81, 1, factor).verdict(others, value, minimize) is Decision.CONTINUE


@given(values, st.booleans())
def test_nan_never_goes_on_and_never_counts_as_better(others, minimize):
    asha = Asha(81, 1, 3)
    assert asha.verdict(others, math.nan, minimize) is Decision.STOP
    spoiled = [*others, math.nan, math.nan]
    assert asha.verdict(spoiled, (min if minimize else max)(others, default=0.0), minimize) is Decision.CONTINUE


@given(values, st.floats(-1e6, 1e6), st.integers(2, 5))
def test_minimising_and_maximising_mirror_each_other(others, value, factor):
    asha = Asha(81, 1, factor)
    assert asha.verdict(others, value, True) is asha.verdict([-v for v in others], -value, False)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60, unique=True), st.integers(2, 4))
def test_of_those_that_all_arrived_one_in_factor_would_pass(everyone, factor):
    asha = Asha(81, 1, factor)
    passed = [v for i, v in enumerate(everyone) if asha.verdict(everyone[:i] + everyone[i + 1 :], v, True) is Decision.CONTINUE]
    assert len(passed) == math.ceil(len(everyone) / factor)
    assert sorted(everyone)[: len(passed)] == sorted(passed)


@given(values, st.permutations(range(5)))
def test_the_order_on_record_does_not_matter(others, order):
    asha = Asha(81, 1, 3)
    assert asha.verdict(others, 0.5, True) is asha.verdict(sorted(others), 0.5, True)


def test_without_a_scheduler_everything_goes_on():
    assert NoScheduler().rungs == ()
    assert NoScheduler(7).verdict([1.0], math.nan, True) is Decision.CONTINUE


@pytest.mark.parametrize("brackets, begin", [(1, (1,)), (3, (1, 3, 9)), (9, (1, 3, 9, 27))])
def test_a_bracket_begins_a_rung_later_and_there_are_no_more_than_rungs(brackets, begin):
    assert Hyperband(81, 1, 3, brackets).grace_periods == begin
    assert Hyperband(5, 5, 3, brackets).bracket(0, 0) == 0


@given(values, st.floats(-1e6, 1e6), st.booleans(), st.integers(0, 2))
def test_in_its_bracket_hyperband_is_asha_and_below_it_everything_goes_on(others, value, minimize, bracket):
    hyperband, asha = Hyperband(81, 1, 3, 3), Asha(81, 1, 3)
    for step in hyperband.rungs:
        verdict = hyperband.verdict(others, value, minimize, step, bracket)
        if step < 3**bracket:
            assert verdict is Decision.CONTINUE
        else:
            assert verdict is asha.verdict(others, value, minimize, step)


def test_brackets_come_with_hyperbands_odds_and_are_the_same_again():
    hyperband = Hyperband(81, 1, 3, 3)
    drawn = [hyperband.bracket(7, number) for number in range(4000)]
    assert drawn == [hyperband.bracket(7, number) for number in range(4000)]
    assert drawn != [hyperband.bracket(8, number) for number in range(4000)]
    odds = [5 / 5 * 81, 5 / 4 * 27, 5 / 3 * 9]
    for bracket, odd in enumerate(odds):
        assert drawn.count(bracket) / len(drawn) == pytest.approx(odd / sum(odds), abs=0.03)


curves = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20)


@given(curves, st.lists(curves, max_size=12), st.booleans(), st.integers(1, 8))
def test_the_median_rule_stops_what_at_its_best_is_worse_than_the_median_mean(curve, others, minimize, least):
    rule = Median(50, 2, least)
    shown = [rule.shown(other) for other in others]
    verdict = rule.verdict(shown, rule.own(curve, minimize), minimize, 9)
    if len(others) < least:
        assert verdict is Decision.CONTINUE
    else:
        best = min(curve) if minimize else max(curve)
        worse = sum(mean < best if minimize else mean > best for mean in shown)
        assert worse * 2 >= len(shown) or verdict is Decision.CONTINUE
        assert worse * 2 <= len(shown) or verdict is Decision.STOP


@given(st.lists(curves, min_size=5, max_size=12), st.booleans())
def test_under_the_median_rule_nan_is_the_worst(others, minimize):
    rule = Median(50, 2, 5)
    shown = [rule.shown(other) for other in others]
    assert rule.verdict(shown, rule.own([math.nan, math.nan], minimize), minimize, 9) is Decision.STOP
    assert math.isnan(rule.shown([1.0, math.nan])) and rule.own([2.0, math.nan], minimize) == 2.0
    value = rule.own([(min if minimize else max)(shown)], minimize)
    assert rule.verdict([*shown, math.nan], value, minimize, 9) is Decision.CONTINUE


def test_under_the_median_rule_every_report_from_the_grace_period_on_is_decided_on():
    assert 3 not in Median(50, 4).rungs and 4 in Median(50, 4).rungs and 50 not in Median(50, 4).rungs
    assert 10**9 in Median(None, 4).rungs
