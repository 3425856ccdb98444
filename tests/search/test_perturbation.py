"""Who takes over from whom, and with which parameters."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.search.schedulers.perturbation import choose_donor, draw_key, explore, rng_of
from sweeps.space.model.domains import Dimension, Option, build

values = st.one_of(st.floats(-1e6, 1e6), st.just(math.nan))
members = st.lists(values, min_size=1, max_size=12).map(lambda numbers: dict(enumerate(numbers)))
DIMENSIONS = [
    build("params.a", "uniform", [-1, 3]),
    build("params.b", "quniform", [0.25, 1.45, 0.1]),
    build("params.c", "loguniform", [1e-4, 1e-1]),
    build("params.d", "qloguniform", [3, 65, 2]),
    build("params.e", "randint", [-3, 9]),
    build("params.f", "qrandint", [1, 41, 5]),
    build("params.g", "lograndint", [1, 100]),
    build("params.h", "randn", [5, 2]),
    build("params.i", "qrandn", [0, 3, 0.5]),
    Dimension("params.j", "choice", tuple(Option(key, key) for key in ("a", None, 3, True))),
    Dimension("params.k", "choice", (Option("alone", 1),)),
]
dimensions = st.sampled_from(DIMENSIONS)


@given(members, st.booleans(), st.floats(0.01, 0.5), st.integers(0, 99))
def test_only_the_worst_take_over_and_only_from_the_best(
    known: Any, minimize: Any, fraction: Any, seed: Any
) -> None:
    taken = {
        number: choose_donor(number, known, known, minimize, fraction, random.Random(seed))
        for number in known
    }
    takers = [number for number, donor in taken.items() if donor is not None]
    size = min(math.ceil(len(known) * fraction), len(known) // 2)
    assert len(takers) <= size
    for number in takers:
        theirs, own = known[taken[number]], known[number]
        assert math.isnan(own) or (theirs < own if minimize else theirs > own)
        better = sum(v < theirs if minimize else v > theirs for v in known.values())
        assert better < size and not math.isnan(theirs)
        worse = sum(math.isnan(v) or (v > own if minimize else v < own) for v in known.values())
        assert math.isnan(own) or worse < size


@given(members, st.booleans(), st.integers(0, 99))
def test_the_order_in_which_members_are_named_does_not_matter(
    known: Any, minimize: Any, seed: Any
) -> None:
    numbers = list(known)
    random.Random(seed).shuffle(numbers)
    mixed = {number: known[number] for number in numbers}
    for number in known:
        first, again = (
            choose_donor(number, order, order, minimize, 0.25, rng_of(seed, 1, 2))
            for order in (known, mixed)
        )
        assert first == again


@given(st.lists(st.floats(0, 1), min_size=4, max_size=12, unique=True), st.data())
def test_who_has_nothing_to_give_gives_nothing(values: Any, data: Any) -> None:
    known = dict(enumerate(values))
    donors = [number for number in known if data.draw(st.booleans())]
    worst, best = max(known, key=known.__getitem__), min(known, key=known.__getitem__)
    taken = choose_donor(worst, known, donors, True, 0.5, random.Random(1))
    assert taken is None or taken in donors
    assert (choose_donor(worst, known, donors, True, 1e-3, random.Random(1)) == best) == (
        best in donors
    )


def test_the_first_to_come_and_equals_go_on_as_they_are() -> None:
    assert choose_donor(0, {0: math.nan}, [0], True, 0.5, random.Random(1)) is None
    equal = dict.fromkeys(range(3), 1.0)
    for number in range(3):
        assert choose_donor(number, equal, equal, True, 0.5, random.Random(1)) is None
    assert choose_donor(1, {0: 1.0, 1: math.nan}, [0, 1], False, 0.25, random.Random(1)) == 0


@given(dimensions, st.integers(0, 10**6), st.floats(0, 1))
def test_what_is_explored_lies_within_its_domain(dimension: Any, seed: Any, resample: Any) -> None:
    draw = random.Random(seed)
    key = draw_key(dimension, draw)
    for _ in range(12):  # up to the bounds and along them
        key = explore(dimension, key, resample, draw)
        value = dimension.value(key)
        if dimension.options:
            assert value in [option.value for option in dimension.options]
            continue
        assert type(value) is (int if dimension.is_integer else float) and math.isfinite(value)
        assert type(key) is (int if dimension.is_integer else float)
        if dimension.lower is not None:
            assert (
                dimension.lower <= key <= dimension.highest
                and dimension.lower <= value <= dimension.highest
            )
        else:
            assert 0 < key < 1
        if dimension.q is not None:
            steps = (value - (dimension.lower or 0)) / dimension.q
            assert abs(steps - round(steps)) < 1e-9


@given(dimensions, st.integers(0, 10**6))
def test_what_is_not_drawn_anew_moves_a_little(dimension: Any, seed: Any) -> None:
    draw = random.Random(seed)
    key = draw_key(dimension, draw)
    old, new = dimension.value(key), dimension.value(explore(dimension, key, 0.0, draw))
    if dimension.options:
        order = [option.value for option in dimension.options]
        assert abs(order.index(new) - order.index(old)) == (len(order) > 1)
    elif new in (dimension.lower, dimension.highest) or (
        dimension.mean is not None and abs(new - dimension.mean) > 5 * dimension.sd
    ):
        pass  # it was cut off at a bound
    elif dimension.is_integer or dimension.q is not None:
        step = dimension.q or 1
        assert step - 1e-9 <= abs(new - old) <= max(step, 0.2 * abs(old) + step / 2) + 1e-9
    else:
        assert new == pytest.approx(0.8 * old, rel=1e-6, abs=1e-7) or new == pytest.approx(
            1.2 * old, rel=1e-6, abs=1e-7
        )
