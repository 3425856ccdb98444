"""Domains: values within bounds, multiples of q, and what is refused; the same as Ray Tune's where
that can be asked.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sweeps
from sweeps.space import Dimension, Option
from sweeps.space.model.domains import DOMAINS, RULES, argument_problems, build, exact

floats = st.floats(-1e6, 1e6)
integers = st.integers(-(10**9), 10**9)
qs = st.sampled_from([0.1, 0.25, 0.3, 1e-3, 0.5, 2.0, 3, 7])


def bounds(numbers: st.SearchStrategy) -> st.SearchStrategy:
    return st.tuples(numbers, numbers).map(sorted).filter(lambda b: b[0] < b[1]).map(list)


def fine(kind: str, args: list[Any]) -> Dimension:
    assert list(argument_problems(kind, args)) == []
    return build("x", kind, args)


def test_the_names_are_ray_tunes() -> None:
    from ray.tune.search import sample

    assert set(DOMAINS) == {"grid", "choice", *RULES} and len(DOMAINS) == 12
    assert all(callable(getattr(sample, kind)) for kind in DOMAINS if kind != "grid")


@given(bounds(floats), st.floats(0, 1))
def test_uniform_is_the_key_itself(b: list[float], part: float) -> None:
    key = min(b[0] + part * (b[1] - b[0]), b[1])
    assert fine("uniform", b).value(key) == key


@given(bounds(integers), st.data())
def test_randint_excludes_its_upper_bound(b: list[int], data: st.DataObject) -> None:
    dim = fine("randint", b)
    assert isinstance(dim.lower, int) and isinstance(dim.highest, int)
    key = data.draw(st.integers(dim.lower, dim.highest))
    assert dim.value(key) == key and isinstance(dim.value(key), int)
    assert b[0] <= dim.value(key) < b[1]


@given(st.integers(-1000, 1000), st.integers(1, 1000), qs, st.floats(0, 1))
def test_quniform_gives_lower_plus_multiples_of_q(
    low: int, more: int, q: float, part: float
) -> None:
    lower = low / 100
    upper = float(exact(lower) + more * exact(q))
    dim = fine("quniform", [lower, upper, q])
    value = dim.value(lower + part * (upper - lower))
    assert isinstance(value, float) and lower <= value <= upper
    assert ((exact(value) - exact(lower)) / exact(q)).denominator == 1
    assert dim.value(value) == value
    assert dim.value(lower - 1) == lower and dim.value(upper + 1) == upper


def test_qrandint_of_one_excludes_its_upper_bound_as_ray_tune_documents() -> None:
    for args in ([1, 9], [1, 9, 1]):
        dim = fine("qrandint", args)
        assert dim.highest == 8 and dim.value(9) == 8


@given(st.floats(-1e3, 1e3), st.floats(1e-3, 1e3), st.floats(0, 1))
def test_randn_is_the_quantile(mean: float, sd: float, u: float) -> None:
    dim = fine("randn", [mean, sd])
    value = dim.value(u)
    assert math.isfinite(value) and (value <= mean) == (u <= 0.5)
    rounded = fine("qrandn", [mean, sd, 0.25]).value(u)
    assert rounded % 0.25 == 0 and abs(rounded - value) <= 0.125


@given(st.integers(-(10**6), 10**6), qs)
def test_multiples_are_as_a_person_writes_them(n: int, q: float) -> None:
    assert build("x", "qrandn", [0, 1, q]).nearest(n * float(q)) == float(n * Fraction(str(q)))
    assert build("x", "quniform", [0, 1, 0.1]).nearest(0.30000000000000004) == 0.3


def test_options_are_looked_up_by_key_and_true_is_not_one() -> None:
    dim = Dimension("x", "choice", (Option(1, "a"), Option(None, "b"), Option("true", "c")))
    assert [dim.value(key) for key in (1, None, "true")] == ["a", "b", "c"]
    for key in (True, 2, "1"):
        with pytest.raises(ValueError, match="x: no option"):
            dim.value(key)


@pytest.mark.parametrize(
    ("kind", "args", "index", "text"),
    [
        ("quniform", [0, 1], None, "quniform takes 3 numbers [lower, upper, q]"),
        ("randint", [1.0, 3], 0, "lower must be an integer"),
        ("qrandint", [0, 9, 1.5], 2, "q must be an integer"),
        ("qlograndint", [2, 8], None, "qlograndint takes 3 numbers"),
        ("randn", [1e308, 1e308], None, "values that a float can hold"),
        ("qrandn", [0, 1], None, "qrandn takes 3 numbers [mean, sd, q]"),
        ("qrandn", [0, 1, 0], None, "qrandn needs sd > 0 and q > 0"),
    ],
)
def test_faults(kind: str, args: list[Any], index: int | None, text: str) -> None:
    faults = list(argument_problems(kind, args))
    assert len(faults) == 1 and faults[0][0] == index and text in faults[0][1]


def test_a_domain_function_takes_any_iterable_and_a_condition() -> None:
    assert sweeps.choice(range(3)) == sweeps.choice(iter([0, 1, 2])) == {"choice": [0, 1, 2]}
    assert sweeps.qrandint(1, 9) == {"qrandint": [1, 9]} and sweeps.randn() == {"randn": []}
    assert sweeps.uniform(0, upper=1, when={"params.a": 1}) == {
        "uniform": [0, 1],
        "when": {"params.a": 1},
    }
    assert sweeps.choice("abc") == {"choice": "abc"}, "which the parser refuses"
