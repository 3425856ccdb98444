"""Values on the command line, such as `eta=0.1,max_depth=4`, and the check of a configuration that
is enqueued.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.core.errors import InputError
from sweeps.space.parse.assignments import parse_assignments
from sweeps.space.parse.enqueued_point import full_name, parse_point, refusal
from tests.search.conftest import make_space

__all__ = ["make_space"]

NAMES = st.from_regex(r"[a-z][a-z_.]{0,10}", fullmatch=True)
PLAIN = st.text("abc ,=[]{}'#:\\", max_size=12)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**9), 10**9)
    | st.floats(allow_nan=False, allow_infinity=False)
    | PLAIN,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(PLAIN.filter(bool), inner, max_size=3)
    ),
    max_leaves=5,
)


@given(st.dictionaries(NAMES, VALUES, max_size=5), st.booleans())
def test_values_in_json_are_read_back(values: Any, separate: Any) -> None:
    texts = [f"{name}={json.dumps(value)}" for name, value in values.items()]
    assert (
        parse_assignments(texts if separate else [",".join(texts)] * bool(texts), "--params")
        == values
    )


@given(st.text())
def test_any_text_is_a_list_of_values_or_an_error_of_the_option(text: Any) -> None:
    try:
        parse_assignments([text], "--params")
    except InputError as e:
        assert all(problem.place == "--params" for problem in e.problems)


@pytest.mark.parametrize(
    "text, problem",
    [
        ("eta", "must be NAME=VALUE, such as eta=0.1, got eta"),
        ("", "must be NAME=VALUE, such as eta=0.1, got an empty text"),
        ("=1", "must be NAME=VALUE, such as eta=0.1, got =1"),
        ("eta=", "must be NAME=VALUE, such as eta=0.1, got eta="),
        ("eta=1,eta=2", "`eta` is given twice"),
        ("eta=[1", "eta: not valid YAML"),
    ],
)
def test_a_wrong_text_is_one_line(text: str, problem: str) -> None:
    with pytest.raises(InputError) as e:
        parse_assignments([text], "--params")
    assert len(e.value.problems) == 1 and str(e.value).startswith(f"--params: {problem}")


BODY = """
preprocessor: {grid: [none, StandardScaler]}
scaling: {num_workers: {choice: [1, 2]}}
params:
  eta: {loguniform: [1e-2, 0.5]}
  depth: {qrandint: [2, 8, 2]}
  booster: {choice: [gbtree, dart]}
  rate: {uniform: [0, 1], when: {params.booster: dart}}
  net: {choice: [{kind: small}, {kind: big, width: {randint: [8, 64]}}]}
"""
POINTS = [
    ({"eta": 0.1, "params.depth": 4}, {"params.eta": 0.1, "params.depth": 4}),
    (
        {"num_workers": 2, "preprocessor": "StandardScaler"},
        {"scaling.num_workers": 2, "preprocessor": "StandardScaler"},
    ),
    ({"booster": "dart", "rate": 0.5}, {"params.booster": "dart", "params.rate": 0.5}),
]
FAULTS = [
    ({"eta": 3}, ["params.eta: must be within its bounds, 0.01 to 0.5, got 3"]),
    ({"eta": "0.1"}, ["params.eta: must be a number, got '0.1'; write it without quotes"]),
    ({"depth": 3}, ["params.depth: must be 2 plus a multiple of 2, got 3"]),
    ({"depth": True}, ["params.depth: must be an integer, got true"]),
    (
        {"booster": "gblinear"},
        ["params.booster: must be an option of params.booster, got gblinear; valid: gbtree, dart"],
    ),
    (
        {"etaa": 0.1, "eta": None},
        [
            "params.eta: must be a number, got null",
            "the space has no dimension `etaa`; did you mean `eta`?",
        ],
    ),
    ({"eta": 0.1, "params.eta": 0.2}, ["`params.eta` is given twice"]),
    (
        {"rate": 0.5},
        [
            (
                "params.rate: is active only with certain values of `params.booster`; give a value "
                "for `params.booster`, too"
            )
        ],
    ),
    (
        {"rate": 0.5, "booster": "gbtree"},
        ["params.rate: is inactive with the other values of this point"],
    ),
    ({}, ["give at least one value, such as eta=0.1"]),
]


@pytest.mark.parametrize("values, keys", POINTS)
def test_a_configuration_that_fits_the_space(make_space: Any, values: Any, keys: Any) -> None:
    assert parse_point(make_space(BODY), values) == keys


@pytest.mark.parametrize("values, problems", FAULTS)
def test_a_configuration_that_does_not_fit_has_a_line_for_each_fault(
    make_space: Any, values: Any, problems: Any
) -> None:
    with pytest.raises(InputError) as e:
        parse_point(make_space(BODY), values)
    assert [problem.text for problem in e.value.problems] == problems


def test_a_dimension_inside_an_option_needs_the_option(make_space: Any) -> None:
    space = make_space(BODY)
    inner = next(d.name for d in space.dimensions if d.name.endswith("width"))
    with pytest.raises(InputError, match=r"is active only with certain values of `params\.net`"):
        parse_point(space, {inner: 16})
    assert parse_point(space, {inner: 16, "net": 1})[inner] == 16


def test_short_names(make_space: Any) -> None:
    space = make_space(BODY)
    assert [
        full_name(space, name)
        for name in ("eta", "params.eta", "num_workers", "preprocessor", "params", "x")
    ] == [
        *("params.eta", "params.eta", "scaling.num_workers", "preprocessor"),
        *(None, None),
    ]


@pytest.mark.parametrize(
    "body, perturbs, reason",
    [
        (BODY, False, None),
        (BODY, True, "starts all trials of its population at once"),
        (
            "params: {a: {grid: [1, 2]}, b: {grid: [1, 2], when: {params.a: 1}}}",
            False,
            "all dimensions of the space are grids",
        ),
        ("params: {a: 1}", False, "the space has no dimension"),
    ],
)
def test_why_a_sweep_takes_no_configurations(
    make_space: Any, body: Any, perturbs: bool, reason: str | None
) -> None:
    text = refusal(make_space(body), perturbs)
    if reason is None:
        assert text is None
    else:
        assert text is not None and reason in text
