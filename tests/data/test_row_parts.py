"""The order of the train rows, and the sizes of their parts, for a scheduler that counts rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.core.errors import InputError
from sweeps.data.splits.row_parts import check_parts, nested_order, rows_at

SEEDS = st.integers(0, 2**32 - 1)
STRATA = st.lists(st.integers(0, 4), min_size=1, max_size=60)


@given(st.integers(1, 60), SEEDS)
def test_the_order_has_each_row_once_and_depends_only_on_the_seed(n: Any, seed: Any) -> None:
    order = nested_order(n, None, seed)
    assert sorted(order) == list(range(n))
    assert (order == nested_order(n, None, seed)).all()


@given(STRATA, SEEDS)
def test_every_beginning_of_the_order_has_the_shares_of_the_classes(strata: Any, seed: Any) -> None:
    codes = np.array(strata)
    order = nested_order(len(codes), codes, seed)
    assert sorted(order) == list(range(len(codes)))
    counts = np.bincount(codes, minlength=5)
    classes = int(np.count_nonzero(counts))
    for m in range(1, len(codes) + 1):
        counts_so_far = np.bincount(codes[order[:m]], minlength=5)
        assert np.count_nonzero(counts_so_far) >= min(m, classes), (
            "the order begins with one row of each class"
        )
        assert (np.abs(counts_so_far - m * counts / len(codes)) <= classes).all()


def test_the_seed_changes_the_order_of_rows_in_a_class() -> None:
    strata = np.repeat([0, 1], 50)
    assert (nested_order(100, strata, 1) != nested_order(100, strata, 2)).any()


@given(st.integers(1, 200), st.integers(1, 1000))
def test_the_parts_grow_up_to_all_rows(max_t: Any, n: Any) -> None:
    sizes = [rows_at(step, max_t, n) for step in range(1, max_t + 1)]
    assert sizes == sorted(sizes) and sizes[0] >= 1 and sizes[-1] == n
    assert all(0 <= size * max_t - n * step < max_t for step, size in enumerate(sizes, 1))


@pytest.mark.parametrize(
    "n, classes, workers, words",
    [
        (100, 0, 1, "step 1 of 81 has only 2 of the 100 train rows"),
        (100, 3, 1, "at least 3, one for each of 3 classes"),
        (100, 0, 4, "at least 4, one for each of 4 workers"),
        (60, 0, 1, "at least 2; raise scheduler.grace_period, or lower scheduler.max_t"),
    ],
)
def test_a_first_part_that_is_too_small_is_refused(
    n: int, classes: int, workers: int, words: str
) -> None:
    if (n, classes, workers) == (100, 0, 1):
        check_parts((1, 9, 81), n, classes, workers)
        return
    with pytest.raises(InputError, match=words) as raised:
        check_parts((1, 9, 81), n, classes, workers)
    assert [problem.place for problem in raised.value.problems] == ["scheduler.grace_period"]
