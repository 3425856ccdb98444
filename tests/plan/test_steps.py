from __future__ import annotations

import random
from statistics import median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.plan.steps import MAX_SIMULATED, StepCount, count_steps, parts_until, simulate
from sweeps.search.schedulers import Scheduler
from sweeps.search.schedulers.asha import Asha
from sweeps.search.schedulers.hyperband import Hyperband
from sweeps.search.schedulers.median import Median
from sweeps.search.schedulers.none import NoScheduler
from sweeps.space.sections.key_types import ROWS

SCHEDULERS = [
    Asha(27),
    Asha(4, 4, 2),
    Hyperband(27, 1, 3, 3),
    Median(20, 3, 4),
    Asha(27, type="promotion"),
    Hyperband(27, type="promotion"),
    Asha(9, resource=ROWS),
    Hyperband(9, resource=ROWS),
]


def step_count(scheduler: Scheduler, trials: int, concurrency: int, repeats: int = 0) -> StepCount:
    """Return the number of steps with a scheduler that has a `max_t`."""
    estimate = count_steps(scheduler, trials, concurrency, repeats)
    assert estimate is not None
    return estimate


@given(
    st.sampled_from(SCHEDULERS),
    st.lists(st.integers(0, 9), min_size=1, max_size=24),
    st.integers(1, 9),
    st.integers(0, 3),
)
def test_no_sweep_takes_more_steps_than_the_bound(
    scheduler: Any, qualities: Any, concurrency: Any, repeats: Any
) -> None:
    trials = len(qualities)
    estimate = step_count(scheduler, trials, concurrency, repeats)
    ends = simulate(scheduler, trials, concurrency, qualities.__getitem__)
    spent = sum(ends)
    if estimate.counts_rows:
        spent = sum(parts_until(scheduler, number, end) for number, end in enumerate(ends))
    assert spent + repeats * ends.count(scheduler.max_t) * scheduler.max_t <= estimate.most
    assert estimate.typical <= estimate.most


@given(st.integers(1, 30), st.integers(1, 9))
def test_the_bound_is_attained_if_each_trial_is_the_best_so_far(
    trials: Any, concurrency: Any
) -> None:
    asha = Asha(50, 5)
    most = step_count(asha, trials, concurrency).most
    assert sum(simulate(asha, trials, concurrency, lambda number: -number)) == most


def test_without_rungs_every_trial_runs_to_its_end() -> None:
    for scheduler in (NoScheduler(20), Asha(20, 20, 3)):
        estimate = step_count(scheduler, 7, 2)
        assert (estimate.typical, estimate.most) == (140, 140)
    assert count_steps(NoScheduler(), 7, 2) is None


def test_the_typical_number_is_deterministic_and_holds_for_large_sweeps() -> None:
    asha, trials = Asha(50, 5, 3), 3 * MAX_SIMULATED
    estimate = step_count(asha, trials, 4).typical
    assert step_count(asha, trials, 4).typical == estimate
    rng = random.Random(1)
    whole = [
        sum(simulate(asha, trials, 4, [rng.random() for _ in range(trials)].__getitem__))
        for _ in range(3)
    ]
    assert estimate == pytest.approx(median(whole), rel=0.2)


def test_paused_trials_continue_in_a_simulation() -> None:
    promotion, stopping = Asha(27, type="promotion"), Asha(27)
    assert sorted(simulate(promotion, 27, 1, lambda n: n)) == [1] * 18 + [3] * 6 + [9] * 2 + [27]
    assert step_count(promotion, 60, 4).typical < step_count(stopping, 60, 4).typical


def test_the_median_rule_compares_at_every_step_from_the_first() -> None:
    estimate = step_count(Median(30, 4, 5), 10, 2)
    assert estimate.every and estimate.rungs == (4,)


def test_a_run_on_more_rows_starts_from_scratch() -> None:
    asha = Asha(9, resource=ROWS)
    assert [parts_until(asha, 0, step) for step in (1, 3, 9)] == [1, 4, 13]
    assert step_count(asha, 4, 1).most == 4 * 13
    assert step_count(asha, 4, 1, repeats=2).most == 4 * (13 + 2 * 9), (
        "a repeat trains only on all rows"
    )
