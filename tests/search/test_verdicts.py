from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.search.verdicts import Asha, NoScheduler
from sweeps.trial import Verdict

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
    assert Asha(81, 1, factor).verdict(others, value, minimize) is Verdict.CONTINUE


@given(values, st.booleans())
def test_nan_never_goes_on_and_never_counts_as_better(others, minimize):
    asha = Asha(81, 1, 3)
    assert asha.verdict(others, math.nan, minimize) is Verdict.STOP
    spoiled = [*others, math.nan, math.nan]
    assert asha.verdict(spoiled, (min if minimize else max)(others, default=0.0), minimize) is Verdict.CONTINUE


@given(values, st.floats(-1e6, 1e6), st.integers(2, 5))
def test_minimising_and_maximising_mirror_each_other(others, value, factor):
    asha = Asha(81, 1, factor)
    assert asha.verdict(others, value, True) is asha.verdict([-v for v in others], -value, False)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60, unique=True), st.integers(2, 4))
def test_of_those_that_all_arrived_one_in_factor_would_pass(everyone, factor):
    asha = Asha(81, 1, factor)
    passed = [v for i, v in enumerate(everyone) if asha.verdict(everyone[:i] + everyone[i + 1 :], v, True) is Verdict.CONTINUE]
    assert len(passed) == math.ceil(len(everyone) / factor)
    assert sorted(everyone)[: len(passed)] == sorted(passed)


@given(values, st.permutations(range(5)))
def test_the_order_on_record_does_not_matter(others, order):
    asha = Asha(81, 1, 3)
    assert asha.verdict(others, 0.5, True) is asha.verdict(sorted(others), 0.5, True)


def test_without_a_scheduler_everything_goes_on():
    assert NoScheduler().rungs == ()
    assert NoScheduler(7).verdict([1.0], math.nan, True) is Verdict.CONTINUE
