from __future__ import annotations

import math
import random
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.core.trial import Action
from sweeps.plan.steps import SIMULATED, count_steps, parts_until, simulate
from sweeps.search.schedulers.asha import Asha
from sweeps.search.schedulers.hyperband import Hyperband
from sweeps.search.schedulers.median import Median
from sweeps.search.schedulers.none import NoScheduler
from sweeps.search.schedulers.pasha import Pasha
from sweeps.space.section_models import ROWS
from tests.search.test_schedulers import decided

ashas = st.builds(
    lambda grace, more, factor: Asha(grace + more, grace, factor),
    st.integers(1, 6),
    st.integers(0, 60),
    st.integers(2, 5),
)


def extremes(asha: Asha, trials: int) -> tuple[int, int]:
    """Return the least and the largest number of steps over all orders of arrival and all values.

    Of a moment counts how many trials are on their way to each rung, and how many values each rung
    has on record: a new one may be better than any number of these, or as good, and whoever is on
    the way may come next.
    """
    ends = (*asha.rungs(), asha.max_t)
    known: dict[tuple[tuple[int, ...], tuple[int, ...]], tuple[int, int]] = {}

    def spent(coming: tuple[int, ...], on_record: tuple[int, ...]) -> tuple[int, int]:
        """Return the remaining steps. The steps of a trial are counted when it ends."""
        if not any(coming):
            return 0, 0
        if (coming, on_record) in known:
            return known[coming, on_record]
        found = []
        for i, waiting in enumerate(coming):
            if not waiting:
                continue
            left = tuple(n - (j == i) for j, n in enumerate(coming))
            if i == len(on_record):
                low, high = spent(left, on_record)
                found.append((low + ends[i], high + ends[i]))
                continue
            others = [float(v) for v in range(on_record[i])]
            recorded = tuple(n + (j == i) for j, n in enumerate(on_record))
            verdicts = {
                decided(asha, others, value)
                for value in (*(v - 0.5 for v in others), *others, len(others) + 0.5)
            }
            for verdict in verdicts:
                if verdict is Action.STOP:
                    low, high = spent(left, recorded)
                    found.append((low + ends[i], high + ends[i]))
                else:
                    found.append(
                        spent(tuple(n + (j == i + 1) for j, n in enumerate(left)), recorded)
                    )
        known[coming, on_record] = min(low for low, _ in found), max(high for _, high in found)
        return known[coming, on_record]

    return spent((trials, *[0] * len(asha.rungs())), (0,) * len(asha.rungs()))


@pytest.mark.parametrize(
    "asha",
    [Asha(9, 1, 3), Asha(50, 5, 3), Asha(12, 2, 2), Asha(27, 3, 5), Asha(4, 4, 2), Asha(5, 4, 4)],
)
@pytest.mark.parametrize("trials", range(1, 8))
def test_the_bounds_hold_for_all_orders_and_values(asha, trials):
    estimate = count_steps(asha, trials, concurrency=1)
    assert (estimate.least, estimate.most) == extremes(asha, trials)


@given(ashas, st.lists(st.integers(0, 9), min_size=1, max_size=24), st.integers(1, 9))
def test_every_sweep_spends_a_number_of_steps_within_the_bounds(asha, qualities, concurrency):
    estimate = count_steps(asha, len(qualities), concurrency)
    assert (
        estimate.least
        <= sum(simulate(asha, len(qualities), concurrency, qualities.__getitem__))
        <= estimate.most
    )
    assert estimate.least <= estimate.typical <= estimate.most


@given(ashas, st.integers(1, 30), st.integers(1, 9))
def test_both_bounds_are_attained_for_any_number_of_concurrent_trials(asha, trials, concurrency):
    estimate = count_steps(asha, trials, concurrency)
    assert sum(simulate(asha, trials, concurrency, lambda number: -number)) == estimate.most
    assert sum(simulate(asha, trials, 1, lambda number: number)) == estimate.least
    # as trials of equal pace come to a rung in the order of their numbers
    assert sum(simulate(asha, trials, concurrency, lambda number: number)) == estimate.least


def test_a_sweep_with_only_nan_takes_fewer_steps():
    asha = Asha(9, 1, 3)
    assert sum(simulate(asha, 5, 1, lambda number: math.nan)) == 5 < count_steps(asha, 5, 1).least


def test_without_rungs_every_trial_runs_to_its_end():
    for scheduler in (NoScheduler(20), Asha(20, 20, 3)):
        estimate = count_steps(scheduler, 7, 2)
        assert (estimate.least, estimate.typical, estimate.most) == (140, 140, 140)
    assert count_steps(NoScheduler(), 7, 2) is None


def test_the_typical_number_is_deterministic_and_holds_for_large_sweeps():
    asha, trials = Asha(50, 5, 3), 3 * SIMULATED
    estimate = count_steps(asha, trials, 4).typical
    assert count_steps(asha, trials, 4).typical == estimate
    rng = random.Random(1)
    whole = [
        sum(simulate(asha, trials, 4, [rng.random() for _ in range(trials)].__getitem__))
        for _ in range(3)
    ]
    assert estimate == pytest.approx(median(whole), rel=0.1)


PROMOTION = [
    Asha(27, type="promotion"),
    Asha(4, 4, 2, type="promotion"),
    Hyperband(27, type="promotion"),
]
PAUSING = [*PROMOTION, Pasha(27), Pasha(5, 4), Pasha(4, 4)]


@pytest.mark.parametrize(
    "scheduler",
    [
        Hyperband(27, 1, 3, 3),
        Hyperband(9, 1, 3, 5),
        Hyperband(4, 4, 2, 2),
        Median(20, 3, 4),
        Median(9, 1, 1),
        *PAUSING,
    ],
)
@pytest.mark.parametrize("trials, concurrency", [(1, 1), (7, 2), (40, 4)])
def test_every_simulated_sweep_is_within_the_bounds(scheduler, trials, concurrency):
    estimate = count_steps(scheduler, trials, concurrency)
    assert estimate.least <= estimate.typical <= estimate.most
    for quality in (lambda n: n, lambda n: -n, lambda n: n * 7919 % 101):
        assert (
            estimate.least
            <= sum(simulate(scheduler, trials, concurrency, quality))
            <= estimate.most
        )


def test_the_lower_bound_of_hyperband_is_that_of_asha_in_each_bracket():
    hyperband = Hyperband(27, 1, 3, 3)
    alone = [hyperband.bracket(0, number) for number in range(40)]
    whole, rest = len(set(alone)), {b: alone.count(b) - 1 for b in set(alone)}
    assert count_steps(hyperband, 40, 1).least == 27 * whole + sum(
        3**b * n for b, n in rest.items()
    )
    assert sum(simulate(hyperband, 40, 1, lambda n: n)) == count_steps(hyperband, 40, 1).least


def test_paused_trials_continue_in_a_simulation():
    promotion, stopping = PROMOTION[0], Asha(27)
    assert sorted(simulate(promotion, 27, 1, lambda n: -n)) == [1, 1, 3, 3, 9, 9] + [27] * 21, (
        "each trial is the best so far"
    )
    assert sorted(simulate(promotion, 27, 1, lambda n: n)) == [1] * 18 + [3] * 6 + [9] * 2 + [27]
    assert count_steps(promotion, 60, 4).typical < count_steps(stopping, 60, 4).typical


def test_the_median_rule_compares_at_every_step_from_the_first():
    estimate = count_steps(Median(30, 4, 5), 10, 2)
    assert estimate.every and estimate.rungs == (4,) and estimate.least == 5 * 30 + 5 * 4


@given(
    st.one_of(ashas, st.builds(Median, st.integers(5, 40), st.integers(1, 4), st.integers(1, 5))),
    st.lists(st.integers(0, 9), min_size=1, max_size=24),
    st.integers(0, 3),
)
def test_complete_trials_are_repeated_to_the_end(scheduler, qualities, repeats):
    taken = simulate(scheduler, len(qualities), 1, qualities.__getitem__)
    ended = taken.count(scheduler.max_t)
    assert ended >= scheduler.min_complete(len(qualities))
    estimate = count_steps(scheduler, len(qualities), 1, repeats=repeats)
    assert (
        estimate.least <= sum(taken) + repeats * ended * scheduler.max_t <= estimate.most
        and estimate.least <= estimate.typical <= estimate.most
    )


@given(
    st.integers(1, 4),
    st.integers(1, 60),
    st.integers(2, 5),
    st.lists(st.integers(0, 9), min_size=1, max_size=24),
    st.integers(1, 9),
)
def test_parts_of_the_rows_are_within_the_bounds(grace, more, factor, qualities, concurrency):
    for scheduler in (
        Asha(grace + more, grace, factor, resource=ROWS),
        Hyperband(grace + more, grace, factor, 3, resource=ROWS),
    ):
        trials = len(qualities)
        estimate = count_steps(scheduler, trials, concurrency)
        lengths = simulate(scheduler, trials, concurrency, qualities.__getitem__)
        spent = sum(parts_until(scheduler, number, length) for number, length in enumerate(lengths))
        assert estimate.counts_rows and estimate.least <= spent <= estimate.most
        assert estimate.least <= estimate.typical <= estimate.most


def test_a_run_on_more_rows_starts_from_scratch():
    asha = Asha(9, resource=ROWS)
    assert [parts_until(asha, 0, step) for step in (1, 3, 9)] == [1, 4, 13]
    estimate = count_steps(asha, 4, 1)
    assert (estimate.least, estimate.most) == (13 + 3, 4 * 13)
    assert count_steps(asha, 4, 1, repeats=2).most == 4 * (13 + 2 * 9), (
        "a repeat trains only on all rows"
    )
