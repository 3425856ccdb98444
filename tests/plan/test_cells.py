from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.core.resources import shape_of
from sweeps.plan.plan_counts import count_shapes, has_conditional_grid, trials_per_cell
from sweeps.search.cells import next_cell
from tests.plan.drawing import drawn

grids = st.lists(
    st.tuples(st.integers(1, 4), st.integers(0, 3)), min_size=1, max_size=12, unique=True
)


@given(grids, st.integers(0, 50))
def test_cells_are_visited_in_the_order_of_the_search(pairs: Any, more: Any) -> None:
    cells = [{"scaling.num_workers": workers, "params.depth": depth} for workers, depth in pairs]
    trials = len(cells) + more
    counts = [0] * len(cells)
    for _ in range(trials):
        counts[next_cell(cells, counts)] += 1
    assert trials_per_cell(cells, trials) == counts


SCALINGS = {
    "constant": "scaling: {num_workers: 2}",
    "grid": "scaling: {num_workers: {grid: [1, 2, 3]}, use_gpu: {grid: [true, false]}}\n"
    "params: {a: {grid: [1, 2]}}",
    "choice": "scaling: {num_workers: {choice: [1, 2]}}",
    "range in a cell": "scaling: {num_workers: {randint: [1, 4]}, use_gpu: {grid: [true, false]}}",
    "mappings": "scaling:\n  grid:\n    - {num_workers: {choice: [1, 2]}}\n"
    "    - {num_workers: 4, resources_per_worker: {CPU: 2}}",
    "a grid in a choice": "scaling:\n  choice:\n    - {num_workers: {grid: [1, 2]}}\n"
    "    - {num_workers: 4}",
    "a condition on a grid": "params: {a: {grid: [1, 2]}}\n"
    "scaling: {num_workers: {grid: [2, 3], when: {params.a: 2}}}",
    "a condition on a choice": "params: {a: {choice: [1, 2]}}\n"
    "scaling: {num_workers: {choice: [2, 3], when: {params.a: 2}}}",
    "one condition on another": (
        "params: {a: {choice: [1, 2]}}\n"
        "scaling:\n  num_workers: {choice: [2, 3], when: {params.a: 2}}\n"
        "  resources_per_worker: {GPU: {choice: [1], when: {scaling.num_workers: 3}}}"
    ),
    "no scaling": "params: {a: {grid: [1, 2]}}",
}


@pytest.mark.parametrize("body", SCALINGS.values(), ids=SCALINGS)
def test_no_shape_gets_more_trials_than_the_plan_says(make: Any, body: Any) -> None:
    space = make(body, trials=14)
    counts = count_shapes(space, trials_per_cell(space.cells, 14))
    assert list(counts) == [replace(shape, backend="none") for shape in space.shapes]
    for seed in range(20):
        shapes = Counter(
            shape_of(filled["scaling"], "none") for filled in drawn(space, random.Random(seed))
        )
        for shape, trials in counts.items():
            assert shapes[shape] <= trials, shape


def test_the_trials_of_a_shape_are_exact_if_the_scaling_is_a_grid(make: Any) -> None:
    space = make(SCALINGS["grid"], trials=14)
    shape_counts = count_shapes(space, trials_per_cell(space.cells, 14))
    assert sorted(shape_counts.values()) == [2, 2, 2, 2, 2, 4]
    space = make(SCALINGS["mappings"], trials=14)
    counts = count_shapes(space, trials_per_cell(space.cells, 14))
    assert list(counts.values()) == [7, 7, 7]


def test_a_grid_inside_a_choice_is_detected(make: Any) -> None:
    assert has_conditional_grid(make(SCALINGS["a grid in a choice"]).sections)
    assert not has_conditional_grid(make(SCALINGS["mappings"]).sections)
