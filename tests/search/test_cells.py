from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from sweeps.search.cells import cell_of, next_cell, scaling_key

CELLS = [{"preprocessor": p, "scaling.num_workers": w} for p, w in itertools.product(["a", "b", "c"], [1, 2])]


@given(st.integers(1, 12), st.integers(0, 60))
def test_cells_fill_evenly_at_any_time(n, steps):
    counts = [0] * n
    cells = [{"x": i} for i in range(n)]
    for _ in range(steps):
        counts[next_cell(cells, counts)] += 1
        assert max(counts) - min(counts) <= 1


def test_a_shape_comes_up_about_once_a_round():
    counts, visited = [0] * len(CELLS), []
    for _ in range(8 * len(CELLS)):
        i = next_cell(CELLS, counts)
        counts[i] += 1
        visited.append(scaling_key(CELLS[i]))
    switches = sum(a != b for a, b in itertools.pairwise(visited))
    assert switches == 8, "one switch a round: rounds run forth and back"


def test_a_trial_lies_in_the_most_specific_cell():
    nested = [{"p": "a"}, {"p": "b", "p.b.strategy": "mean"}, {"p": "b", "p.b.strategy": "median"}]
    assert cell_of({"p": "a", "eta": 0.1}, nested) == 0
    assert cell_of({"p": "b", "p.b.strategy": "median"}, nested) == 2
    assert cell_of({"p": "c"}, nested) is None
    assert cell_of({"eta": 1.0}, [{}]) == 0
