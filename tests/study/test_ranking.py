from __future__ import annotations

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sweeps.core.trial import Result, State
from sweeps.study import ranking

F, C, P = State.FAIL, State.COMPLETE, State.PRUNED


def test_five_failures_from_the_start_end_a_sweep_and_later_ones_do_not() -> None:
    assert not ranking.should_abort([F] * 4)
    assert ranking.should_abort([F] * 5)
    assert ranking.should_abort([F] * 5 + [C])
    assert not ranking.should_abort([F, F, P, F, F, F, F, F, F])
    assert not ranking.should_abort([])
    assert not ranking.should_abort([F] * 9, trainers=2)
    assert ranking.should_abort([F] * 10, trainers=2)


def test_a_complete_trial_wins_over_a_better_one_that_was_stopped() -> None:
    results = [
        (0, Result(P, 0.1)),
        (1, Result(C, 0.3)),
        (2, Result(C, 0.2)),
        (3, Result(F, 0.0)),
        (4, Result(C, 0.2)),
    ]
    assert ranking.winner(results, minimize=True) == 2
    assert ranking.winner(results, minimize=False) == 1
    assert ranking.winner([(0, Result(P, 0.3)), (1, Result(P, 0.2))], minimize=True) == 1
    assert ranking.winner([(0, Result(F)), (1, Result(State.RUNNING, 0.1))], minimize=True) is None


def test_a_trial_that_only_time_ended_counts_like_a_complete_one() -> None:
    results = [
        (0, Result(C, 0.3)),
        (1, Result(P, 0.1, reason="asha at step 3")),
        (2, Result(P, 0.15, reason="--minutes, unfinished")),
        (3, Result(P, 0.2, reason="--minutes")),
        (4, Result(P, 0.25, reason="limits.timeout")),
    ]
    assert ranking.ranked(results, minimize=True) == [3, 4, 0, 1, 2]


VALUES = st.none() | st.floats()
STATES = st.sampled_from([State.COMPLETE, State.PRUNED, State.FAIL, State.RUNNING])


@given(st.lists(st.tuples(STATES, VALUES, st.booleans()), max_size=12), st.booleans())
def test_the_ranked_begin_with_the_winner_and_are_in_order(rows: Any, minimize: Any) -> None:
    results = [
        (n, Result(state, value, feasible=feasible))
        for n, (state, value, feasible) in enumerate(rows)
    ]
    numbers = ranking.ranked(results, minimize)
    assert (numbers[0] if numbers else None) == ranking.winner(results, minimize)
    by_rank = [
        (not rows[n][2], rows[n][0] is State.PRUNED, rows[n][1] if minimize else -rows[n][1])
        for n in numbers
    ]
    assert by_rank == sorted(by_rank)
    assert set(numbers) == {
        n
        for n, (state, v, _) in enumerate(rows)
        if state in (State.COMPLETE, State.PRUNED) and v is not None and math.isfinite(v)
    }


def test_an_infinite_value_is_on_no_front_and_never_wins() -> None:
    results = [(0, Result(C, 1.0, values=(1.0, math.inf))), (1, Result(C, 2.0, values=(2.0, 3.0)))]
    assert ranking.front(results, (True, True)) == [1]
    assert ranking.front(results[:1], (True, True)) == []
    assert ranking.winner([(0, Result(C, math.inf)), (1, Result(P, 9.0))], minimize=True) == 1
    assert ranking.winner([(0, Result(C, -math.inf))], minimize=False) is None
