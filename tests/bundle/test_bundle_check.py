"""Predictions of a bundle are compared with those of training: bit by bit, or within the tolerance
of a model that was trained on a GPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from sweeps.bundle.check import describe_difference
from sweeps.bundle.manifest import GPU_TOLERANCE


def frame(*probabilities: float) -> pd.DataFrame:
    p = np.array(probabilities)
    return pd.DataFrame(
        {
            "prediction": np.where(p > 0.5, "yes", "no"),
            "probability_no": 1 - p,
            "probability_yes": p,
        }
    )


def test_the_smallest_difference_counts_without_a_tolerance() -> None:
    text = describe_difference(frame(0.25, 0.5), frame(0.25, np.nextafter(0.5, 1)))
    assert text is not None and '(column name="prediction") are different' in text


def test_class_may_change_if_probability_is_within_tolerance() -> None:
    assert describe_difference(frame(0.25, 0.5), frame(0.25, 0.5005), GPU_TOLERANCE) is None
    assert describe_difference(frame(0.25, 0.5), frame(0.25, 0.502), GPU_TOLERANCE) is not None


def test_classes_without_probabilities_are_never_tolerated() -> None:
    assert (
        describe_difference(
            frame(0.5)[["prediction"]], frame(0.5001)[["prediction"]], GPU_TOLERANCE
        )
        is not None
    )


def test_a_missing_value_is_no_small_difference() -> None:
    assert describe_difference(frame(0.5, np.nan), frame(0.5, np.nan), GPU_TOLERANCE) is None
    assert describe_difference(frame(0.5), frame(np.nan), GPU_TOLERANCE) is not None


@given(st.floats(-1e9, 1e9), st.floats(-3, 3))
def test_tolerance_is_relative_for_large_and_absolute_for_small(value: Any, times: Any) -> None:
    off = times * GPU_TOLERANCE * max(1.0, abs(value))
    expected, got = (pd.DataFrame({"prediction": [x]}) for x in (value, value + off))
    if abs(times) < 0.99:
        assert describe_difference(expected, got, GPU_TOLERANCE) is None
    if abs(times) > 2.01:
        assert describe_difference(expected, got, GPU_TOLERANCE) is not None
