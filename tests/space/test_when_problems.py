"""Conditions that can never be true, or that name no dimension, are refused."""

from __future__ import annotations

from typing import Any

import pytest

from sweeps.core.errors import InputError
from sweeps.space.model.conditions import Term
from tests.space.test_when import NUMBERS


def test_nested_dimension_of_missing_option_is_known(
    space: Any,
) -> None:
    body = (
        "params: {kind: {choice: [a, {k: {randint: [1, 9]}}]}, x: {uniform: [0, 1], when: {%s: '> "
        "3'}}}"
    )
    assert space(body % "params.kind.choice.1.k").dimensions[-1].when == (
        Term("params.kind.choice.1.k", tests=((">", 3),)),
    )
    with pytest.raises(
        InputError,
        match=r"names an unknown dimension: `params\.kind\.k`; did you mean "
        r"`params\.kind\.choice\.1\.k`\?",
    ):
        space(body % "params.kind.k")


INVALID = [
    ("{}", "got {}"),
    (
        "{params.nn: 3}",
        "params.x: `when` names an unknown dimension: `params.nn`; did you mean `params.n`?",
    ),
    ("{params.x: 1}", "params.x: `when` names the dimension itself"),
    (
        "{params.n: 12}",
        "params.x.when: `params.n`: can never be true, because params.n is 1 to 8, got 12",
    ),
    ('{params.n: "> 8"}', "can never be true, because params.n is 1 to 8, got '> 8'"),
    ("{params.n: 2.5}", "can never be true, because params.n is 1 to 8"),
    ("{params.q: 0.3}", "can never be true, because params.q is 0 to 1 by 0.25"),
    ("{params.u: 0.5}", "is continuous, so it never equals a number"),
    (
        "{params.n: many}",
        (
            'must be a value, a list of values or a comparison such as "> 3" (one of <=, >=, <, > '
            "and "
            "a number)"
        ),
    ),
    ('{params.n: "!= 3"}', "must be a value, a list of values or a comparison"),
    ('{params.n: "== 3"}', "must be a value, a list of values or a comparison"),
    ('{params.n: "3 < n"}', "must be a value, a list of values or a comparison"),
    ("{params.n: []}", "an empty list never matches"),
    (
        "{params.c: 4}",
        "params.x.when: `params.c`: must be an option of params.c, got 4; valid: 3, 6, 9",
    ),
    ('{params.c: "> 9"}', "can never be true, because params.c is one of 3, 6, 9"),
]


@pytest.mark.parametrize(("when", "piece"), INVALID, ids=[when for when, _ in INVALID])
def test_one_clear_line(lines: Any, when: str, piece: str) -> None:
    head = (
        "trainer: xgboost\ndata: {train: d.csv, valid: 0.2, label: y}\n"
        "objective: {metric: m, goal: minimize}\nlimits: {max_trials: 9}\n"
    )
    if when == "a: 1":
        when = "'a: 1'"
        piece = piece.replace("got a: 1", "got 'a: 1'")
    (line,) = lines(f"{head}space:\n  {NUMBERS % when}\n")
    assert line.startswith("6:") and piece in line


MORE = [
    (
        "a: {choice: [1], when: {params.b: 1}}, b: {choice: [1, 2]}",
        "`when` may name only earlier dimensions; `params.b` comes later",
    ),
    ("a: {choice: [x, {b: {choice: [1], when: {params.a: x}}}]}", "which contains this dimension"),
    (
        "a: {choice: [x, y]}, b: {choice: [1], when: {params.a: z}}",
        "must be an option of params.a, got z; valid: x, y",
    ),
]


@pytest.mark.parametrize(("params", "piece"), MORE, ids=[piece for _, piece in MORE])
def test_one_clear_line_more(lines: Any, params: str, piece: str) -> None:
    head = (
        "trainer: xgboost\ndata: {train: d.csv, valid: 0.2, label: y}\n"
        "objective: {metric: m, goal: minimize}\nlimits: {max_trials: 9}\n"
    )
    (line,) = lines(f"{head}space:\n  params: {{{params}}}\n")
    assert line.startswith("6:") and piece in line


def test_a_required_parameter_has_no_condition(lines: Any) -> None:
    head = (
        "trainer: xgboost\ndata: {train: d.csv, valid: 0.2, label: y}\n"
        "objective: {metric: m, goal: minimize}\nlimits: {max_trials: 9}\n"
    )
    steps = (
        "preprocessor: [{choice: [none, MinMaxScaler]}, PowerTransformer: {power: {choice: [1], "
        "when: {preprocessor.0: none}}}]"
    )
    assert (
        "power: is required by PowerTransformer, so it cannot have a `when`"
        in lines(f"{head}space: {{{steps}}}\n")[0]
    )


def test_a_faulty_dimension_is_reported_once(lines: Any) -> None:
    head = (
        "trainer: xgboost\ndata: {train: d.csv, valid: 0.2, label: y}\n"
        "objective: {metric: m, goal: minimize}\nlimits: {max_trials: 9}\n"
    )
    (line,) = lines(
        f"{head}space: {{params: {{a: {{uniform: [1, 0]}}, b: {{choice: [1], when: {{params.a: '> "
        f"0'}}}}}}}}\n"
    )
    assert "params.a: uniform needs lower < upper" in line
