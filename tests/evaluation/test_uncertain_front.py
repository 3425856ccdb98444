"""Points of a Pareto front that another point may dominate."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.core.trial import Report, State
from sweeps.evaluation.uncertain_front import uncertain_front, uncertain_points
from sweeps.evaluation.value_noise import recorded_noise
from sweeps.search.search_loop import SearchLoop
from sweeps.study import ranking
from sweeps.study.events import TrialReported
from tests.search.next_trial import next_trial

POINTS = st.lists(st.tuples(st.floats(-9, 9), st.floats(-9, 9)), min_size=1, max_size=8)


@given(POINTS, st.floats(0, 3), st.booleans())
def test_more_noise_makes_more_points_uncertain(
    points: list[tuple[float, float]], error: float, turned: bool
) -> None:
    goals = (not turned, not turned)
    signed = {i: tuple(-x if turned else x for x in point) for i, point in enumerate(points)}
    front = {
        a: p
        for a, p in signed.items()
        if not any(ranking.dominates(q, p, goals) for b, q in signed.items() if b != a)
        and p not in [signed[b] for b in range(a)]
    }
    assert uncertain_points(front, (0.0, 0.0), goals) == []
    some = uncertain_points(front, (error, error), goals)
    assert set(some) <= set(uncertain_points(front, (error + 1, error + 1), goals))
    huge = uncertain_points(front, (1e9, 1e9), goals)
    assert huge == (list(front) if len(front) > 1 else [])


def test_a_point_that_is_clearly_better_in_one_objective_is_certain() -> None:
    values = {1: (0.0, 5.0), 2: (0.1, 0.0), 3: (9.0, -9.0)}
    assert uncertain_points(values, (1.0, 0.1), (True, True)) == [1]


def run_trials(loop: SearchLoop, curves: list[list[tuple[float, float]]]) -> None:
    """Run trials that report two metrics at each step."""
    for curve in curves:
        trial = next_trial(loop)
        reports = tuple(
            Report(step, {"loss": a, "size": b}, 1.0) for step, (a, b) in enumerate(curve, 1)
        )
        loop.store.append(TrialReported(1.0, trial.number, reports, seconds=0.0))
        loop.store.end(trial.number, State.COMPLETE)


TWO = "[{metric: loss, goal: minimize}, {metric: size, goal: minimize}]"
BODY = "params: {x: {uniform: [0.0, 1.0]}}"


def test_repeats_tell_the_noise(make_space: Any, tmp_path: Path) -> None:
    space = make_space(
        BODY, objective=TWO, scheduler="{name: none}", max_trials=2, extra="repeats: 2"
    )
    loop = SearchLoop.open(tmp_path, space)
    run_trials(loop, [[(1.0, 5.0)], [(2.0, 5.0)], [(1.6, 4.0)], [(1.0, 4.0)]])
    # The variance of two values is half of their squared difference; that of a mean, a quarter.
    noise = recorded_noise(loop.store)
    assert noise is not None and noise[0] == pytest.approx((0.25 + 0.09) / 2) and noise[1] == 0
    assert math.sqrt(noise[0]) > 0.2
    front = loop.store.front()
    assert uncertain_front(loop.store, front) == []
    assert uncertain_front(loop.store, []) == []


def test_without_repeats_and_folds_nothing_is_uncertain(make_space: Any, tmp_path: Path) -> None:
    space = make_space(BODY, objective=TWO, scheduler="{name: none}", max_trials=2)
    loop = SearchLoop.open(tmp_path, space)
    run_trials(loop, [[(1.0, 5.0)], [(0.9, 5.1)]])
    assert recorded_noise(loop.store) is None
    assert uncertain_front(loop.store, loop.store.front()) == []
    assert np.isfinite([r.value or 0.0 for r in loop.store.results().values()]).all()
