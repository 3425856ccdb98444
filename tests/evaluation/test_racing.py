"""Races between configurations that are trained again and again."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from sweeps.evaluation.racing import ROUNDS, Values, round_seconds, rounds_in_time, still_racing

VALUES = st.floats(-10, 10, allow_nan=False)


@given(st.dictionaries(st.integers(0, 9), st.lists(VALUES, min_size=3, max_size=3), min_size=1))
def test_the_best_mean_leads_in_both_directions(values: dict[int, list[float]]) -> None:
    left = still_racing(values, minimize=True)
    assert left[0] == min(values, key=lambda n: (math.fsum(values[n]), n))
    turned = {number: [-value for value in own] for number, own in values.items()}
    assert still_racing(turned, minimize=False) == left


def test_those_that_are_clearly_worse_drop_out() -> None:
    values = {1: [1.0, 1.1, 1.2], 2: [1.1, 1.0, 1.3], 3: [5.0, 5.1, 5.3]}
    assert still_racing(values, minimize=True) == [1, 2]
    assert still_racing({n: own[:2] for n, own in values.items()}, minimize=True) == [1, 2, 3]
    assert still_racing({1: [1.0] * 3, 2: [2.0] * 3}, minimize=True) == [1]
    assert still_racing({1: [1.0] * 3, 2: [1.0] * 3}, minimize=True) == [1, 2]


def test_a_missing_value_or_round_drops_a_configuration() -> None:
    values: Values = {1: [1.0, None], 2: [2.0, 2.0], 3: [0.0]}
    assert still_racing(values, minimize=True) == [2]
    assert still_racing({1: [None]}, minimize=True) == [] == still_racing({}, minimize=True)


@given(st.lists(st.floats(0, 100), max_size=5), st.integers(1, 4), st.floats(-5, 500))
def test_the_rounds_fit_into_the_time(seconds: list[float], slots: int, available: float) -> None:
    rounds = rounds_in_time(seconds, slots, available)
    assert 0 <= rounds <= ROUNDS
    of_round = round_seconds(seconds, slots)
    assert of_round >= max(seconds, default=0)
    assert not of_round or rounds * of_round <= max(available, 0) * (1 + 1e-9)
