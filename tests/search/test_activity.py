"""Which dimensions are active, for many configurations at once, and which choices are ordered."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sweeps.search.samplers.activity import Activity, is_ordered
from sweeps.search.samplers.encoding import Axes
from sweeps.space import Dimension, Option
from sweeps.study.distributions import distribution_of

BODY = """
preprocessor:
  - {grid: [none, StandardScaler]}
  - {choice: [none, {UniformKBinsDiscretizer: {bins: {randint: [4, 17]}}}], \
when: {preprocessor.0: none}}
params:
  one: {choice: [only]}
  kind: {choice: [a, {k: {uniform: [0, 1]}, \
sub: {choice: [c, {m: {randint: [1, 9]}}]}}], when: {params.one: only}}
  depth: {randint: [1, 9]}
  deep: {uniform: [0, 1], when: {params.depth: [1, "> 6"]}}
  rate: {quniform: [0, 1, 0.25]}
  normal: {randn: [5, 2]}
  both: {loguniform: [0.1, 10], when: {params.rate: ">= 0.5", \
params.normal: "< 5", params.depth: "<= 4"}}
  last: {uniform: [0, 1], when: {params.both: "> 1"}}
"""


def test_the_active_dimensions_are_those_of_a_filled_space(make_space: Any) -> None:
    space = make_space(BODY)
    distributions = {d.name: distribution_of(d) for d in space.dimensions}
    axes = Axes({name: d for name, d in sorted(distributions.items()) if not d.single()})
    activity = Activity(space, axes.names)
    places = axes.anywhere(np.random.RandomState(0), 400)
    active_names = activity.is_active(axes.internal(places))
    counts = np.zeros(len(axes.names))
    for place, active in zip(places, active_names, strict=True):
        keys = axes.external(place)
        asked: set[str] = set()

        def choose(dimension: Dimension, keys: Any = keys, asked: set[str] = asked) -> Any:
            asked.add(dimension.name)
            return keys.get(dimension.name, "only")

        space.fill(choose)
        assert {name for name, on in zip(axes.names, active, strict=True) if on} == asked - {
            "params.one"
        }
        counts += active
    assert (counts > 0).all() and sum(counts < 400) == 8


@pytest.mark.parametrize(
    ("values", "ordered"),
    [
        ([16, 32, 64], True),
        ([0.5, 0.1, 0], True),
        ([1, 2], False),
        ([1, 3, 2], False),
        (["1", "2", "3"], False),
        ([1, 2, True], False),
    ],
)
def test_numbers_in_order_are_an_ordered_choice(values: Any, ordered: bool) -> None:
    assert is_ordered(Dimension("x", "choice", tuple(Option(v, v) for v in values))) == ordered
