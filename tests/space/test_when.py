"""Conditions: what is there and what is not, which cells exist, and what is refused."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sweeps.core.errors import InputError
from sweeps.space import Dimension, Option, Step
from sweeps.space.model.conditions import Term, holds
from sweeps.space.model.enumeration import (
    MAX_CELLS,
    cells_of,
    conflicting_dimension,
)
from sweeps.space.model.templates import conditions_of, fill

BOOSTERS = """
preprocessor:
  - SimpleImputer
  - {grid: [StandardScaler, [MinMaxScaler, RobustScaler], none]}
  - {choice: [MaxAbsScaler], when: {preprocessor.1: none}}
  - PowerTransformer: {power: 1, method: {choice: [box-cox], \
when: {preprocessor.1: [StandardScaler, 1]}}}
scaling:
  num_workers: {grid: [1, 2], when: {preprocessor.1: StandardScaler}}
params:
  kind: {choice: [gbtree, dart, {name: linear}]}
  rate_drop: {uniform: [0, 1], when: {params.kind: dart}}
  depth: {randint: [1, 9], when: {params.kind: [gbtree, dart]}}
  leaves: {randint: [2, 64], when: {params.depth: "> 3", params.kind: dart}}
  deep: {choice: [yes], when: {params.leaves: ">= 32"}}
  layers: [1, {randint: [2, 4], when: {params.kind: 2}}, 5]
"""


def filled(space: Any, **chosen: Any) -> tuple[dict[str, Any], list[str]]:
    """A configuration, and the names that were asked for. Options are chosen by their place."""
    asked: list[str] = []

    def choose(dim: Dimension) -> Any:
        asked.append(dim.name)
        for name, value in chosen.items():
            if dim.name.endswith(name):
                return dim.options[value].key if dim.options else value
        return dim.options[0].key if dim.options else dim.lower

    return space.fill(choose), asked


def test_what_is_not_active_is_absent_and_is_not_asked_for(space: Any) -> None:
    loaded = space(BOOSTERS)
    values, asked = filled(loaded, kind=1, depth=4, leaves=40)
    assert values["params"] == {
        "kind": "dart",
        "rate_drop": 0.0,
        "depth": 4,
        "leaves": 40,
        "deep": "yes",
        "layers": [1, 5],
    }
    values, _ = filled(loaded, kind=1, depth=3)
    assert values["params"] == {"kind": "dart", "rate_drop": 0.0, "depth": 3, "layers": [1, 5]}, (
        "nested: no leaves, so nothing deep"
    )
    values, _ = filled(loaded, kind=0, depth=8)
    assert values["params"] == {"kind": "gbtree", "depth": 8, "layers": [1, 5]}, (
        "all keys must hold"
    )
    values, asked_of_linear = filled(loaded, kind=2)
    assert values["params"] == {"kind": {"name": "linear"}, "layers": [1, 2, 5]}
    assert set(asked) - set(asked_of_linear) == {
        "params.rate_drop",
        "params.depth",
        "params.leaves",
        "params.deep",
    }


def test_in_a_chain_the_steps_are_left_out_and_a_parameter_has_its_default(space: Any) -> None:
    loaded = space(BOOSTERS)
    imputer, power = Step("SimpleImputer"), Step("PowerTransformer", None, {"power": 1})
    boxed = Step("PowerTransformer", None, {"power": 1, "method": "box-cox"})
    values, _ = filled(loaded)
    assert values["preprocessor"] == (imputer, Step("StandardScaler"), boxed) and values[
        "scaling"
    ] == {"num_workers": 1}
    values, _ = filled(loaded, **{"preprocessor.1": 1})
    assert values["preprocessor"] == (imputer, Step("MinMaxScaler"), Step("RobustScaler"), boxed), (
        "an option by its number"
    )
    values, _ = filled(loaded, **{"preprocessor.1": 2})
    assert (
        values["preprocessor"] == (imputer, Step("MaxAbsScaler"), power) and values["scaling"] == {}
    )


def test_only_cells_that_exist_are_visited_and_none_twice(space: Any) -> None:
    loaded = space(BOOSTERS)
    key = "preprocessor.1"
    assert list(loaded.cells) == [
        {key: "StandardScaler", "scaling.num_workers": 1},
        {key: "StandardScaler", "scaling.num_workers": 2},
        {key: "MinMaxScaler+RobustScaler"},
        {key: "none"},
    ]
    assert [shape.workers for shape in loaded.shapes] == [1, 2]


def test_shapes_are_those_that_can_be(space: Any) -> None:
    loaded = space(
        """
params: {big: {choice: [true, false]}}
scaling:
  num_workers: {choice: [2, 4], when: {params.big: true}}
  resources_per_worker: {CPU: 1, GPU: {choice: [1], when: {scaling.num_workers: 4}}}
"""
    )
    assert sorted((s.workers, s.total.get("GPU", 0)) for s in loaded.shapes) == [
        (1, 0),
        (2, 0),
        (4, 4),
    ]


def test_all_parameters_of_a_step_that_are_not_there_leave_the_step(space: Any) -> None:
    body = (
        "preprocessor:\n  - {grid: [none, MinMaxScaler]}\n"
        "  - StandardScaler: {choice: [{columns: all}], when: {preprocessor.0: none}}"
    )
    assert filled(space(body))[0]["preprocessor"] == (Step("StandardScaler", "all"),)
    assert filled(space(body), **{"preprocessor.0": 1})[0]["preprocessor"] == (
        Step("MinMaxScaler"),
        Step("StandardScaler"),
    )


def test_whole_sections_and_columns(space: Any) -> None:
    body = """
preprocessor: {choice: [[StandardScaler: {columns: [a, \
{choice: [b], when: {preprocessor: 0}}]}], none]}
"""
    with pytest.raises(InputError, match="which contains this dimension"):
        space(body)
    body = """
scaling: {num_workers: {grid: [1, 2]}}
params: {choice: [{eta: 1}, {eta: 2}], when: {scaling.num_workers: 2}}
"""
    assert filled(space(body))[0]["params"] == {}
    assert filled(space(body), num_workers=1)[0]["params"] == {"eta": 1}


def test_a_branch_carries_its_own_dimensions(space: Any) -> None:
    """A chain with bins of its own: they are there with the chain, and may be asked for like any
    other.
    """
    loaded = space(
        """
preprocessor:
  choice:
    - [SimpleImputer, UniformKBinsDiscretizer: {columns: {choice: [all, numeric]}, \
bins: {randint: [2, 6]}}]
    - StandardScaler
params:
  fine: {choice: [1], when: {preprocessor.choice.0.1.UniformKBinsDiscretizer.bins: ">= 4"}}
"""
    )
    assert filled(loaded, bins=5) == (
        {
            "data": {},
            "preprocessor": (
                Step("SimpleImputer"),
                Step("UniformKBinsDiscretizer", "all", {"bins": 5}),
            ),
            "scaling": {},
            "params": {"fine": 1},
        },
        [d.name for d in loaded.dimensions],
    )
    assert filled(loaded, bins=3)[0]["params"] == {}
    values, asked = filled(loaded, preprocessor=1)
    assert (values["params"], asked) == ({}, ["preprocessor"]), (
        "no bins, so nothing that rests on them"
    )


NUMBERS = (
    "params: {n: {randint: [1, 9]}, q: {quniform: [0, 1, 0.25]}, u: {uniform: [0, 1]}, c: "
    "{choice: [3, 6, 9]}, x: {choice: [1], when: %s}}"
)


@pytest.mark.parametrize(
    ("when", "terms"),
    [
        ("{params.n: 3}", [Term("params.n", tests=(("==", 3),))]),
        (
            '{params.n: ["< 3", 5, ">=8"]}',
            [Term("params.n", tests=(("<", 3), ("==", 5), (">=", 8)))],
        ),
        ("{params.q: 0.75}", [Term("params.q", tests=(("==", 0.75),))]),
        (
            '{params.u: "<= 0.5", params.n: "> 2"}',
            [Term("params.u", tests=(("<=", 0.5),)), Term("params.n", tests=((">", 2),))],
        ),
        ('{params.c: "> 3"}', [Term("params.c", keys=(6, 9))]),
        ('{params.c: [3, "> 8"]}', [Term("params.c", keys=(3, 9))]),
    ],
)
def test_the_forms(space: Any, when: str, terms: list[Term]) -> None:
    assert list(space(NUMBERS % when).dimensions[-1].when) == terms


def test_many_cells_are_counted_no_further_than_is_needed(space: Any) -> None:
    body = (
        ", ".join(f"p{i}: {{grid: [1, 2]}}" for i in range(40))
        + ", q: {grid: [1], when: {params.p0: 1}}"
    )
    with pytest.raises(InputError, match=f"the grids make more than {MAX_CELLS} cells"):
        space(f"params: {{{body}}}")


# ---- any template


@st.composite
def templates(draw: st.DrawFn) -> dict[str, Any]:
    """Templates of grids, choices and small ranges, each with a condition on some that come before;
    grids on grids alone.
    """
    names = (f"d{i}" for i in itertools.count())
    before: list[Dimension] = []

    def term(dim: Dimension) -> Term:
        if dim.options:
            keys = draw(
                st.lists(
                    st.sampled_from([option.key for option in dim.options]),
                    min_size=1,
                    max_size=2,
                    unique=True,
                )
            )
            return Term(dim.name, keys=tuple(keys))
        return Term(
            dim.name, tests=((draw(st.sampled_from(["<", ">=", "=="])), draw(st.integers(0, 3))),)
        )

    def make(depth: int, grids: bool) -> Any:
        kinds = (
            ["leaf", "number"]
            if not depth
            else ["leaf", "number", "choice", "list"] + ["grid"] * 2 * grids
        )
        kind = draw(st.sampled_from(kinds))
        if kind == "leaf":
            return draw(st.integers(0, 3))
        if kind == "list":
            return [make(depth - 1, grids) for _ in range(draw(st.integers(1, 2)))]
        may = [dim for dim in before if dim.is_grid or kind != "grid"]
        when = (
            tuple(
                term(dim)
                for dim in draw(
                    st.lists(st.sampled_from(may), max_size=2, unique_by=lambda d: d.name)
                )
            )
            if may
            else ()
        )
        name = next(names)
        if kind == "number":
            dim = Dimension(name, "randint", lower=0, upper=3, when=when)
        else:
            inner = [
                make(depth - 1, grids and kind == "grid") for _ in range(draw(st.integers(1, 2)))
            ]
            dim = Dimension(
                name, kind, tuple(Option(f"o{i}", item) for i, item in enumerate(inner)), when=when
            )
        before.append(dim)
        return dim

    return {str(i): make(draw(st.integers(0, 2)), True) for i in range(draw(st.integers(1, 4)))}


def every_way(template: Any) -> list[tuple[Any, dict[str, Any]]]:
    """Every filling by brute force, each with what was asked for and answered."""
    ways: list[tuple[Any, dict[str, Any]]] = []
    todo: list[list[int]] = [[]]
    while todo:
        way = todo.pop()
        asked: dict[str, Any] = {}

        def choose(dim: Dimension, way: list[int] = way, asked: dict[str, Any] = asked) -> Any:
            keys = [option.key for option in dim.options] or [0, 1, 2]
            if len(asked) == len(way):
                todo.extend([*way, i] for i in range(1, len(keys)))
                way.append(0)
            asked[dim.name] = keys[way[len(asked)]]
            return asked[dim.name]

        ways.append((fill(template, choose), asked))
    return ways


@given(templates())
def test_cells_are_what_the_grids_come_to_in_any_filling(template: Any) -> None:
    """With no grid inside a choice: a combination of grids is a cell if and only if some
    configuration has it.
    """
    cells = [json.dumps(cell, sort_keys=True) for cell in itertools.islice(cells_of(template), 50)]
    everything = every_way(template) if len(cells) < 50 else []
    assume(everything and len(everything) < 3000)
    grids = {d.name for d in _dims(template) if d.is_grid}
    expected = {
        json.dumps({k: v for k, v in asked.items() if k in grids}, sort_keys=True)
        for _, asked in everything
    }
    assert len(cells) == len(set(cells))
    assert set(cells) == expected


@given(templates())
def test_what_can_never_be_is_known(template: Any) -> None:
    everything = every_way(template)
    assume(len(everything) < 3000)
    dims = {dim.name: dim for dim in _dims(template)}
    asked = {name for _, names in everything for name in names}
    conditions = conditions_of(template)
    assert {name for name in dims if conflicting_dimension(name, dims, conditions) is None} == asked


def _dims(template: Any) -> list[Dimension]:
    from sweeps.space.model.templates import dimensions

    return list(dimensions(template))


def test_a_condition_is_open_until_it_is_known() -> None:
    when = (Term("a", keys=(1,)), Term("b", tests=((">", 2),)))
    assert holds(when, {"a": 1, "b": 3}) is True
    assert holds(when, {"a": 1}) is False
    assert holds(when, {"a": 1}, ["b"]) is None
    assert holds(when, {"a": 2}, ["b"]) is False
    assert holds((Term("a", keys=(1,)),), {"a": True}) is False, "true is not 1"


def test_conditions_can_name_elastic_number_of_workers(space: Any) -> None:
    body = """\
scaling: {num_workers: {choice: [1, {elastic: [1, 4]}]}}
params:
  a: {choice: [1, 2], when: {scaling.num_workers: {elastic: [1, 4]}}}
  b: {choice: [1, 2], when: {scaling.num_workers: 1}}
"""
    loaded = space(body)
    assert [str(shape) for shape in loaded.shapes] == ["1 worker × 1 CPU", "1 to 4 workers × 1 CPU"]
    values = filled(loaded, num_workers=1)[0]
    assert set(values["params"]) == {"a"} and values["scaling"] == {
        "num_workers": {"elastic": [1, 4]}
    }
    assert set(filled(loaded, num_workers=0)[0]["params"]) == {"b"}
