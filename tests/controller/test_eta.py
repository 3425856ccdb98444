"""The estimate of the time left, from when trials ended."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.controller.eta import time_left


def rounds(count: int, concurrency: int, seconds: float, first: float = 0.0) -> list[float]:
    """Return when trials ended that ran in rounds. The first round took longer by `first`."""
    return [first + seconds * (i // concurrency + 1) for i in range(count)]


def test_nothing_is_known_before_some_trials_have_ended() -> None:
    assert time_left(9.0, 14, rounds(2, 1, 4.0), concurrency=1, timeout=None) is None
    assert time_left(4.0, 12, rounds(4, 4, 4.0), concurrency=4, timeout=None) is None
    assert time_left(13.0, 13, rounds(3, 1, 4.0), concurrency=1, timeout=None) is not None


@pytest.mark.parametrize("concurrency", [1, 3, 4, 16])
def test_the_first_trials_start_up_does_not_count(concurrency: int) -> None:
    ends = rounds(3 * concurrency, concurrency, seconds=4.0, first=100.0)
    left = time_left(ends[-1], 2 * concurrency, ends, concurrency, timeout=None)
    if concurrency > 1:
        assert left is not None and left.seconds == pytest.approx(8.0) and not left.at_most


def test_a_last_trial_that_takes_longer_than_usual_has_no_estimate() -> None:
    assert time_left(100.0, 1, rounds(14, 2, 4.0), concurrency=2, timeout=None) is None


@given(
    st.lists(st.floats(0, 1e6), max_size=30).map(sorted),
    st.integers(0, 50),
    st.integers(0, 9),
    st.none() | st.floats(0, 2e6),
)
def test_the_estimate_is_never_negative_and_never_beyond_the_limit(
    ends: Any, unfinished: Any, concurrency: Any, timeout: Any
) -> None:
    now = ends[-1] if ends else 0.0
    left = time_left(now, unfinished, ends, concurrency, timeout)
    assert left is not None or timeout is None
    if left is not None and timeout is not None:
        assert 0 <= left.seconds <= max(0.0, timeout - now)
