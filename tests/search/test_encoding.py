"""The way from the values of a space to the places that samplers calculate with, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeps.search.samplers.encoding import Axes
from tests.search.test_parzen import SPACE


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 999))
def test_a_place_is_that_of_its_values(seed: Any) -> None:
    axes = Axes(SPACE)
    for place in axes.anywhere(np.random.RandomState(seed), 20):
        values = axes.external(place)
        assert list(values) == list(SPACE)
        internal = [SPACE[name].to_internal_repr(value) for name, value in values.items()]
        assert all(
            distribution._contains(value)
            for distribution, value in zip(SPACE.values(), internal, strict=True)
        ), values
        assert np.allclose(axes.places(np.array([internal])), place)


def test_what_has_steps_stays_on_them() -> None:
    axes = Axes({"whole": SPACE["whole"], "real": SPACE["real"], "kind": SPACE["kind"]})
    moved = axes.on_steps(np.array([[0.5, 0.123, 2.0], [0.56, 0.123, 2.0], [1.0, 1.0, 0.0]]))
    assert np.allclose(
        moved, [[0.5, 0.123, 2.0], [0.5 + 1 / 9, 0.123, 2.0], [1 - 1 / 18, 1.0, 0.0]]
    )
