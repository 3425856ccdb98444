"""Scores of candidates: expected improvement, of one value or of a hypervolume, and the probability
that a trial is feasible.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna._hypervolume import compute_hypervolume

from sweeps.search.samplers import acquisition
from sweeps.search.samplers.gaussian_process import Process

LEVELS = st.integers(0, 6).map(float)


@settings(max_examples=60)
@given(
    st.integers(2, 3).flatmap(
        lambda m: st.lists(st.lists(LEVELS, min_size=m, max_size=m), min_size=1, max_size=8)
    )
)
def test_the_boxes_are_the_region_that_a_front_does_not_dominate(front: Any) -> None:
    values, m = np.array(front), len(front[0])
    boxes = np.maximum(acquisition.undominated(values, np.full(m, 5.0)), -1.0)
    volume = np.prod(boxes[:, 1] - boxes[:, 0], axis=1).sum()
    inside = values[(values < 5).all(axis=1)]
    assert volume == pytest.approx(
        6.0**m - (compute_hypervolume(inside, np.full(m, 5.0)) if len(inside) else 0)
    )


@pytest.mark.parametrize("objectives", [1, 2, 3])
def test_the_expected_improvement_is_the_mean_over_draws(objectives: int) -> None:
    rng = np.random.RandomState(objectives)
    front, reference = rng.rand(4, objectives), np.ones(objectives)
    mean, deviation = rng.rand(3, objectives), 0.1 + 0.3 * rng.rand(3, objectives)
    boxes = acquisition.undominated(front, reference)
    improvements = acquisition.expected_improvement(mean, deviation, boxes)
    for i in range(3):
        drawn = np.minimum(mean[i] + deviation[i] * rng.normal(size=(4000, objectives)), reference)
        without = compute_hypervolume(front, reference)
        gains = [compute_hypervolume(np.vstack([front, row]), reference) - without for row in drawn]
        assert improvements[i] == pytest.approx(
            np.mean(gains), abs=4 * float(np.std(gains)) / math.sqrt(4000)
        )


def process(x: Any, y: Any) -> Process:
    surrogate = Process(np.array(x)[:, None], np.array(y), np.array([False]))
    surrogate.condition(np.array([-1.5, 0.0, -6.0]))
    return surrogate


def test_an_improbable_candidate_scores_less() -> None:
    objective, bound = (
        process([0.1, 0.9], [0.0, 0.0]),
        acquisition.Bound(process([0.2, 0.8], [-1.0, 1.0]), 0.0),
    )
    surrogate = acquisition.Surrogate([objective], [bound], lambda places: places)
    places = np.array([[0.3], [0.7]])
    good, bad = surrogate.feasibility(places)
    assert good > 0.9 and bad < 0.1
    free, bounded = (
        acquisition.acquisition(s, acquisition.improvement_region(np.zeros((1, 1))), places)
        for s in (acquisition.Surrogate([objective], [], lambda places: places), surrogate)
    )
    assert free[0] == pytest.approx(free[1]) and bounded == pytest.approx(free * [good, bad])
    nothing_feasible = acquisition.improvement_region(np.zeros((0, 1)))
    assert acquisition.acquisition(surrogate, nothing_feasible, places) == pytest.approx(
        [good, bad]
    )


def test_the_best_trials_are_feasible_and_dominated_by_few() -> None:
    values = np.array([[0.0, 0.0], [3.0, 3.0], [1.0, 2.0], [2.0, 1.0], [3.0, 4.0]])
    assert acquisition.best_first(values, np.array([0.1, 1, 1, 1, 0.2])).tolist() == [2, 3, 1, 4, 0]
    assert acquisition.dominators(values).tolist() == [0, 3, 1, 1, 4]
