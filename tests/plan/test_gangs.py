from __future__ import annotations

from sweeps.plan import plan


def test_a_single_shape_starts_one_gang_for_each_place(make):
    space = make("params: {a: {uniform: [0, 1]}}", trials=9)
    assert plan(space, {"CPU": 4.0}).gangs == 4
    assert plan(space, {"CPU": 64.0}).gangs == 9


def test_gangs_that_fit_side_by_side_are_never_closed(make):
    space = make("scaling: {num_workers: {grid: [1, 2]}}", limits="max_concurrent_trials: 2")
    assert plan(space, {"CPU": 6.0}).gangs == 4
    assert plan(space, {"CPU": 2.0}).gangs == 3  # one machine has room for idle gangs beside the gangs that work


def test_the_number_is_unknown_if_idle_gangs_must_be_closed(make):
    space = make("scaling: {num_workers: {grid: [1, 2]}}", limits="max_concurrent_trials: 2")
    assert plan(space, {"CPU": 2.0}, memory=4e9).gangs is None  # memory is short
    assert plan(make("scaling: {num_workers: {choice: [1, 2, 3, 4]}}"), {"CPU": 4.0}).gangs is None
