"""Choose the rounds that a booster trains, measures and reports."""

from __future__ import annotations

import itertools
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sweeps.testing.fake_session import small_table
from sweeps.trainers._best import Steps
from sweeps.trainers._rounds import MOST_REPORTS, MOST_ROUNDS, Rounds, max_rounds, reported_rounds

CURRENT = small_table("binary")[0]()


@given(st.integers(1, 20_000))
def test_at_most_200_rounds_are_reported_and_the_last_one_is_among_them(last: Any) -> None:
    reported = sorted(reported_rounds(last))
    assert len(reported) <= MOST_REPORTS and reported[-1] == last and reported[0] == 1
    if last <= MOST_REPORTS:
        assert reported == list(range(1, last + 1))


@given(st.integers(MOST_REPORTS + 1, MOST_ROUNDS), st.integers(MOST_REPORTS + 1, MOST_ROUNDS))
def test_long_trials_report_the_same_rounds_a_few_percent_apart(shorter: Any, longer: Any) -> None:
    some, more = reported_rounds(shorter), reported_rounds(longer)
    assert set(some) - {shorter} <= set(more) or shorter > longer
    steps = sorted(more)
    assert all(b - a <= 2 + a * 0.03 for a, b in itertools.pairwise(steps))


@given(st.integers(1, 900), st.integers(1, 60), st.lists(st.integers(1, 900), max_size=9))
def test_patience_ends_training_at_first_due_report(
    last: Any, patience: Any, improvements: Any
) -> None:
    rounds = Rounds.of({"patience": patience}, last, None)
    steps = Steps(CURRENT, "valid-logloss")
    trained = []
    for step in rounds.after(0, steps):
        trained.append(step)
        if step in rounds.reported and step in improvements:
            steps.best = step
    assert trained == list(range(1, trained[-1] + 1)) and trained[-1] in rounds.reported
    waited = [step - (steps.best or 0) for step in trained if step in rounds.reported]
    assert trained[-1] == last or waited[-1] >= patience
    assert all(wait < patience for wait in waited[:-1])


def test_without_patience_all_rounds_are_trained_up_to_max_t() -> None:
    steps = Steps(CURRENT, "valid-logloss")
    assert list(Rounds.of({}, 9, None).after(4, steps)) == [5, 6, 7, 8, 9]
    assert list(Rounds.of({"patience": None}, 9, 7).after(0, steps)) == list(range(1, 8))
    assert Rounds.of({}, 9, None).patience == math.inf
    assert max_rounds({}, 100) == 100 and max_rounds({"patience": 3}, 100) == MOST_ROUNDS


@given(st.integers(1, 2000), st.integers(1, 60), st.integers(1, 7))
def test_renewal_rounds_are_reported_and_far_enough_apart(
    last: Any, distance: Any, factor: Any
) -> None:
    rounds = Rounds.of({}, last, None)
    rounds_left = sorted(rounds.renewal_rounds(distance, factor))
    assert set(rounds_left) - {0} <= set(rounds.reported)
    assert all(step % factor == 0 for step in rounds_left)
    assert all(b - a >= distance for a, b in itertools.pairwise(rounds_left))
    if last <= MOST_REPORTS and distance % factor == 0:
        assert rounds_left == list(range(0, last + 1, distance))
