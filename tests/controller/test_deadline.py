"""A command ends its search early enough for the final training and the export."""

from __future__ import annotations

import math
from typing import Any

import pytest

import sweeps
from sweeps.controller import deadline
from sweeps.controller.deadline import Deadline, row_growth


def test_without_a_final_training_only_the_export_is_reserved() -> None:
    limit = Deadline(end=100.0, start=1.0)
    assert limit.reserve(50.0, trains=True) == limit.closing == deadline.CLOSING_SECONDS


def test_search_gets_all_time_before_first_trial_has_ended() -> None:
    slow = Deadline(100.0, start=3 * deadline.START_SECONDS, growth=1.5)
    assert slow.reserve(None, trains=True) == deadline.CLOSING_SECONDS < slow.closing
    assert (
        Deadline(100.0, start=1000.0).closing == deadline.CLOSING_SECONDS * deadline.MOST_SLOWNESS
    )


def test_reserve_for_final_training_depends_on_seconds_and_rows() -> None:
    limit = Deadline(end=100.0, start=1.0, growth=1.5)
    training = 20 * 1.5 + deadline.READY_SECONDS
    assert limit.reserve(20.0, trains=True) == pytest.approx(limit.closing + training)
    assert limit.reserve(20.0, trains=False) == limit.closing
    longer = Deadline(end=100.0, start=1.0, growth=2.0)
    assert longer.reserve(20.0, trains=True) > limit.reserve(20.0, trains=True)


def test_a_final_training_fits_until_what_is_reserved_is_left() -> None:
    limit = Deadline(end=100.0, start=1.0, growth=1.0)
    latest = 100.0 - limit.reserve(20.0, trains=True)
    assert limit.fits(20.0, now=latest - 0.1) and not limit.fits(20.0, now=latest + 0.1)


def test_several_models_train_side_by_side() -> None:
    limit = Deadline(end=100.0, start=1.0, growth=1.5, speedup=1.4, slots=2)
    assert limit.training_seconds(14.0) == pytest.approx(14 / 1.4 * 1.5)
    assert limit.training_seconds(14.0, 14.0) == pytest.approx(14 * 1.5)
    assert limit.training_seconds(14.0, 2.0) == pytest.approx(14 * 1.5)
    assert limit.training_seconds(8.0, 8.0, 8.0) == pytest.approx(12 * 1.5)


def test_time_for_the_next_best_trials_is_limited() -> None:
    limit = Deadline(end=100.0, start=1.0, growth=1.0, slots=2, members=8, seconds=100.0)
    alone = limit.reserve(10.0, trains=True)
    assert limit.reserve(10.0, trains=True, others=[10.0]) == pytest.approx(alone)
    ready = deadline.READY_SECONDS
    with_three = limit.closing + 15.0 + ready
    assert limit.reserve(10.0, trains=True, others=[10.0, 10.0]) == pytest.approx(with_three)
    assert limit.reserve(10.0, trains=True, others=[10.0, 90.0]) == pytest.approx(alone)
    assert limit.reserve(10.0, trains=False, others=[10.0]) == limit.closing


def test_members_that_fit_are_trained_the_first_in_any_case() -> None:
    limit = Deadline(end=100.0, start=1.0, growth=1.0, slots=1, members=8)
    now = limit.training_ends - 10.0
    assert limit.members_in_time([4.0, 9.0, 5.0, 2.0, 1.0], now) == [0, 2, 4]
    assert limit.members_in_time([50.0, 1.0], now) == [0]


def test_each_model_of_the_bundle_needs_time() -> None:
    single = Deadline(end=100.0, start=1.0)
    folds = Deadline(end=100.0, start=1.0, members=8, folds=5)
    models = deadline.TYPICAL_MEMBERS * 5
    expected = single.closing + deadline.MODEL_SECONDS * (models - 1)
    assert folds.closing == pytest.approx(expected)


def test_a_slow_start_shows_a_slow_machine() -> None:
    slow = Deadline(end=100.0, start=3 * deadline.START_SECONDS, growth=1.0)
    assert slow.closing == pytest.approx(3 * deadline.CLOSING_SECONDS)
    fast = Deadline(end=100.0, start=deadline.START_SECONDS, growth=1.0)
    extra = slow.reserve(1.0, trains=True) - fast.reserve(1.0, trains=True)
    assert extra == pytest.approx(2 * (deadline.CLOSING_SECONDS + deadline.READY_SECONDS))


@pytest.mark.parametrize("call", [sweeps.run, sweeps.resume])
@pytest.mark.parametrize("minutes", [-0.1, 0.1, math.nan])
def test_a_call_without_time_is_refused(call: Any, minutes: Any) -> None:
    with pytest.raises(sweeps.InputError, match="--minutes: leaves no time for a search"):
        call("absent", minutes=minutes)


@pytest.mark.parametrize(
    ("splits", "folds", "growth"),
    [
        (("train", "valid"), 0, 80 / 60),
        (("train", "valid", "test"), 0, 100 / 60),
        (("train", "valid"), 5, 60 / (60 * 4)),
        (("train", "valid", "test"), 5, (60 + 20) / (60 * 4)),
    ],
)
def test_the_rows_of_the_final_training(splits: Any, folds: int, growth: Any) -> None:
    rows = {"train": 60, "valid": 20, "test": 20}
    assert row_growth(rows, splits, folds) == pytest.approx(growth)
