"""The densities that `tpe` compares: they are densities, their samples follow them, and a cell
conditions them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from sweeps.search.samplers.encoding import Axes
from sweeps.search.samplers.parzen import Mixture, neighbors, third_nearest

SPACE: dict[str, BaseDistribution] = {
    "real": FloatDistribution(-2.0, 3.0),
    "rate": FloatDistribution(1e-4, 1.0, log=True),
    "whole": IntDistribution(1, 9),
    "even": IntDistribution(2, 10, step=2),
    "layers": IntDistribution(1, 64, log=True),
    "kind": CategoricalDistribution(["a", "b", "c"]),
}


def mixture(
    space: dict[str, BaseDistribution], seed: int, n: int, cell: dict[int, int] | None = None
) -> Mixture:
    rng = np.random.RandomState(seed)
    axes = Axes(space)
    everything = Mixture(axes, np.empty((0, len(space))), np.empty(0), neighbors, {})
    return Mixture(axes, everything.sample(rng, n), rng.rand(n) + 0.1, neighbors, cell or {})


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(SPACE)), st.integers(0, 99), st.integers(0, 30))
def test_the_whole_is_one(name: Any, seed: Any, n: Any) -> None:
    distribution = SPACE[name]
    mix = mixture({name: distribution}, seed, n)
    if isinstance(distribution, FloatDistribution):
        unit = (np.arange(4000) + 0.5) / 4000
        values, share = mix.axes.values(unit[:, None]), 1 / 4000
    else:
        every = range(3)
        if not isinstance(distribution, CategoricalDistribution):
            assert isinstance(distribution, IntDistribution)
            every = range(distribution.low, distribution.high + 1)
        values, share = (
            np.array(
                [v for v in every if v % (getattr(distribution, "step", 1) or 1) == 0], dtype=float
            )[:, None],
            1,
        )
    density = np.exp(mix.log_pdf(values))
    assert density.sum() * share == pytest.approx(
        np.sqrt(2 * np.pi) if isinstance(distribution, FloatDistribution) else 1.0, rel=2e-3
    )


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 99), st.integers(0, 40))
def test_what_is_drawn_lies_in_the_space(seed: Any, n: Any) -> None:
    drawn = mixture(SPACE, seed, n).sample(np.random.RandomState(seed), 100)
    for i, distribution in enumerate(SPACE.values()):
        for value in drawn[:, i]:
            assert distribution._contains(value), (distribution, value)
    assert np.isfinite(mixture(SPACE, seed, n).log_pdf(drawn)).all()


def test_what_is_drawn_follows_the_density() -> None:
    mix = mixture({"real": SPACE["real"], "kind": SPACE["kind"]}, 3, 8)
    drawn = mix.sample(np.random.RandomState(0), 20_000)
    for kind in range(3):
        for low, high in ((-2.0, -1.0), (-1.0, 1.0), (1.0, 3.0)):
            middles = low + (np.arange(500) + 0.5) / 500 * (high - low)
            density = np.exp(mix.log_pdf(np.column_stack([middles, np.full(500, kind)]))) / np.sqrt(
                2 * np.pi
            )
            there = (drawn[:, 1] == kind) & (drawn[:, 0] >= low) & (drawn[:, 0] < high)
            assert there.mean() == pytest.approx(density.mean() * (high - low) / 5.0, abs=0.012)


def test_a_width_is_that_of_the_farther_neighbor_within_bounds() -> None:
    assert neighbors(np.array([[0.2], [0.9], [0.3]]))[:, 0] == pytest.approx([0.2, 0.6, 0.6])
    assert neighbors(np.array([[0.5], [0.5]]))[:, 0] == pytest.approx([0.25, 0.25])


def test_a_width_is_the_distance_to_the_third_nearest_over_all_dimensions() -> None:
    places = np.array([[0.1, 0.1], [0.1, 0.3], [0.1, 0.5], [0.1, 0.9], [0.11, 0.1]])
    assert third_nearest(places)[:, 0] == pytest.approx(
        np.array([0.4, 0.2, 0.4, 0.8, 0.4]) / np.sqrt(2), rel=1e-2
    )
    assert third_nearest(np.full((4, 2), 0.3)) == pytest.approx(np.full((4, 2), 0.01)), (
        "not below a hundredth"
    )
    assert third_nearest(np.array([[0.3]])) == pytest.approx(np.array([[0.5]]))
