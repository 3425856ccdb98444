from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sweeps.core.resources import Shape
from sweeps.plan import plan
from sweeps.plan.gangs import GangCount, simulate

CPU = (("CPU", 1.0),)


def test_one_shape_is_started_once_a_place(make):
    space = make("params: {a: {uniform: [0, 1]}}", trials=9)
    assert plan(space, {"CPU": 4.0}).gangs == GangCount(4, True, True)
    assert plan(space, {"CPU": 64.0}).gangs == GangCount(9, True, True)


def test_shapes_that_fit_side_by_side_are_never_closed(make):
    body = "scaling: {num_workers: {grid: [1, 2]}}"
    limited = make(body, limits="max_concurrent_trials: 2")
    assert plan(limited, {"CPU": 6.0}).gangs == GangCount(4, True, True)
    assert plan(limited, {"CPU": 2.0}).gangs == GangCount(3, True, True)  # idle ones stay while others work
    made = plan(limited, {"CPU": 2.0}, memory=4e9).gangs  # not where memory is short
    assert made.started > 4 and not made.all_stay


def test_shapes_that_the_search_chooses_are_not_reckoned(make):
    assert plan(make("scaling: {num_workers: {choice: [1, 2, 3, 4]}}"), {"CPU": 4.0}).gangs == GangCount(None, False, False)


def test_a_gang_makes_room_for_another():
    one, two = Shape(1, CPU), Shape(2, CPU)
    assert simulate([one] * 5, [1], {"CPU": 2.0}, 2) == 2
    assert simulate([two] * 5, [3, 1], {"CPU": 2.0}, 2) == 1
    assert simulate([one, two] * 3, [1], {"CPU": 2.0}, 1) == 6
    assert simulate([one, one, two, two, one, one], [1], {"CPU": 2.0}, 2) == 5
    assert simulate([one, one, two, two, one, one], [1], {"CPU": 2.0}, 2, {"CPU": 4.0}) == 3


orders = st.lists(st.integers(1, 4), min_size=1, max_size=20)


@given(orders, st.lists(st.integers(1, 9), min_size=1, max_size=20), st.integers(4, 9), st.integers(1, 6))
def test_it_starts_a_gang_for_each_shape_and_for_each_trial_at_most(workers, lengths, cpus, limit):
    order = [Shape(n, CPU) for n in workers]
    assert len(set(order)) <= simulate(order, lengths, {"CPU": float(cpus)}, limit) <= len(order)
