from __future__ import annotations

import itertools
from collections import Counter
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sweeps.search.cells import cell_of, next_cell, scaling_key
from sweeps.search.trial_queue import TrialQueue
from sweeps.space.model.conditions import Key

CELLS: list[dict[str, Key]] = [
    {"preprocessor": p, "scaling.num_workers": w}
    for p, w in itertools.product(["a", "b", "c"], [1, 2])
]


@given(st.integers(1, 12), st.integers(0, 60))
def test_cells_fill_evenly_at_any_time(n: Any, steps: Any) -> None:
    counts = [0] * n
    cells: list[dict[str, Key]] = [{"x": i} for i in range(n)]
    for _ in range(steps):
        counts[next_cell(cells, counts)] += 1
        assert max(counts) - min(counts) <= 1


def test_a_shape_comes_up_about_once_a_round() -> None:
    counts, visited = [0] * len(CELLS), []
    for _ in range(8 * len(CELLS)):
        i = next_cell(CELLS, counts)
        counts[i] += 1
        visited.append(scaling_key(CELLS[i]))
    switches = sum(a != b for a, b in itertools.pairwise(visited))
    assert switches == 8, "one switch a round: rounds run forth and back"


def test_a_grid_inside_an_option_that_is_not_taken_starves_no_other_grid() -> None:
    """`p: {grid: [a, b]}` beside a choice, of which an option has a grid `d` and the other, which
    is liked, none.
    """
    cells = [{"p": p, "d": d} for p, d in itertools.product("ab", (1, 2))]
    limits = SimpleNamespace(max_trials=100)
    search = SimpleNamespace(initial_points=(), portfolio=None)
    space: Any = SimpleNamespace(
        cells=cells, dimensions=(), search=search, limits=limits, repeats=SimpleNamespace(count=1)
    )
    queue = TrialQueue(space, False)
    counts: Counter[Key] = Counter()
    indices = []
    for number in range(40):
        turn = queue.next(lambda number: {})
        assert turn is not None
        indices.append(turn.in_cell_before)
        keys = turn.cell if number % 10 == 0 else {"p": turn.cell["p"]}
        queue.record_start(keys, None)
        counts[keys["p"]] += 1
    assert counts == {"a": 20, "b": 20} and max(indices) == 9


def test_a_point_that_names_an_inner_grid_lies_in_a_cell_that_has_it() -> None:
    nested = [{"p": "a"}, {"p": "b", "p.b.strategy": "mean"}, {"p": "b", "p.b.strategy": "median"}]
    assert next_cell(nested, [0, 0, 0], {"p.b.strategy": "median", "eta": 0.1}) == 2
    assert (
        next_cell(nested, [0, 4, 4], {"p": "b"}) == 1
        and next_cell(nested, [0, 0, 0], {"eta": 0.1}) == 0
    )


def test_a_trial_lies_in_the_most_specific_cell() -> None:
    nested = [{"p": "a"}, {"p": "b", "p.b.strategy": "mean"}, {"p": "b", "p.b.strategy": "median"}]
    assert cell_of({"p": "a", "eta": 0.1}, nested) == 0
    assert cell_of({"p": "b", "p.b.strategy": "median"}, nested) == 2
    assert cell_of({"p": "c"}, nested) is None
    assert cell_of({"eta": 1.0}, [{}]) == 0
