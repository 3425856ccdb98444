"""The end of a sweep is a function of its record."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sweeps.core.trial import Result, State
from sweeps.space.sections.search_models import Limits
from sweeps.study import ranking
from sweeps.study.budgets import BudgetState, exhausted

F, C, P = State.FAIL, State.COMPLETE, State.PRUNED
VALUES = st.one_of(st.none(), st.just(math.nan), st.floats(-5, 5).map(lambda v: round(v, 1)))
RESULTS = st.lists(
    st.builds(
        lambda s, v, ok: result_of(s, v, feasible=ok),
        st.sampled_from([F, C, P]),
        VALUES,
        st.booleans(),
    ),
    max_size=25,
)


def result_of(
    state: State, value: float | None = None, gpu: float = 0.0, feasible: bool = True
) -> Result:
    return Result(state, value, values=(value,), metrics={"gpu_seconds": gpu}, feasible=feasible)


def course(results: Any, minimize: bool = True) -> BudgetState:
    ran = BudgetState((minimize,))
    for number, result in enumerate(results):
        ran.add_trial(result)
        ran.add_configuration(number, result)
    return ran


@given(RESULTS, st.booleans())
def test_the_best_so_far_is_the_winner_of_all_that_ended(results: Any, minimize: Any) -> None:
    best = course(results, minimize).best
    assert (best[0] if best else None) == ranking.winner(enumerate(results), minimize)


@given(RESULTS, st.integers(1, 6))
def test_patience_counts_what_ended_since_the_last_better_one(results: Any, patience: Any) -> None:
    ran, idle = course(results), 0
    for n in range(len(results)):
        before, now = (ranking.winner(enumerate(results[:m]), True) for m in (n, n + 1))
        if ranking.tier(results[n]) is None:
            continue
        if now != before and results[n].state is C:
            idle = 0
        elif now is not None and results[now].state is C:
            idle += 1
    assert ran.without_improvement == idle
    ends = exhausted(Limits(patience=patience), ran)
    assert (ends is not None) == (idle >= patience) and (
        ends is None or ends.startswith("limits.patience: ")
    )


@given(RESULTS, st.integers(1, 4))
def test_failures_in_a_row_are_the_latest_ones(results: Any, most: Any) -> None:
    tail = len(results) - max((i + 1 for i, r in enumerate(results) if r.state is not F), default=0)
    ran = course(results)
    assert ran.consecutive_failures == tail
    assert (exhausted(Limits(max_failures_in_a_row=most), ran) is not None) == (tail >= most)


@given(RESULTS, st.floats(-5, 5).map(lambda v: round(v, 1)), st.booleans())
def test_a_target_is_reached_by_a_feasible_trial_that_ran_to_its_end(
    results: Any, target: Any, minimize: Any
) -> None:
    able = [
        r.value
        for r in results
        if r.state is C and r.feasible and r.value is not None and not math.isnan(r.value)
    ]
    reached = any(v <= target if minimize else v >= target for v in able)
    assert (exhausted(Limits(target=target), course(results, minimize)) is not None) == reached


def test_gpu_hours_are_those_of_all_trials_those_that_run_included() -> None:
    ran = course([result_of(C, 1.0, gpu=1800), result_of(F, gpu=900), result_of(P, gpu=600)])
    assert exhausted(Limits(max_gpu_hours=1), ran, running_gpu_seconds=299) is None
    assert (
        exhausted(Limits(max_gpu_hours=1), ran, running_gpu_seconds=300)
        == "limits.max_gpu_hours: 1 GPU hours were used"
    )


def test_without_limits_nothing_ends() -> None:
    assert exhausted(Limits(), course([result_of(F)] * 50)) is None


POINTS = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 5)).map(lambda p: (float(p[0]), float(p[1]))),
    max_size=20,
)


@given(POINTS, st.tuples(st.booleans(), st.booleans()))
def test_the_front_is_what_nothing_dominates_and_is_kept_up_one_by_one(
    points: Any, goals: Any
) -> None:
    results = [Result(C, p[0], values=p) for p in points] + [
        Result(C, 9.0, values=(math.nan, 9.0)),
        Result(P, 9.0, values=(9.0, 9.0)),
    ]
    dominated = {i for i, a in enumerate(points) for b in points if ranking.dominates(b, a, goals)}
    front = ranking.front(enumerate(results), goals)
    assert (
        front == [i for i in range(len(points)) if i not in dominated] if points else front == [1]
    )
    ran = BudgetState(goals)
    for number, result in enumerate(results):
        ran.add_configuration(number, result)
    assert list(ran.front) == front
