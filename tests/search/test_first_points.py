"""Configurations that are tried before the sampler suggests others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sweeps.search import first_points as module
from sweeps.search.first_points import first_points, read_portfolio
from sweeps.search.search_loop import SearchLoop
from sweeps.space.schema.parameter_schema import allows
from sweeps.space.sections.built_in_trainers import portfolio_files
from sweeps.space.sections.trainer_definition import definition_of
from tests.search.next_trial import next_trial

BODY = """
params:
  eta: {loguniform: [0.01, 0.5]}
  max_depth: {randint: [2, 9]}
"""
GOOD = [
    {"params.eta": 0.1, "params.max_depth": 4, "params.gamma": 3},  # the space has no gamma
    {"params.eta": 0.9, "params.max_depth": 4},  # outside
    {"params.eta": 0.1, "params.max_depth": 4},  # a double
    {"params.max_depth": 8},
    {"params.gamma": 3},  # no dimension of the space
    {"params.eta": 0.2, "params.max_depth": 3},
    {"params.eta": 0.3, "params.max_depth": 6},  # the default
    {"params.eta": 0.25, "params.max_depth": 3},
]


@pytest.fixture
def good(monkeypatch: pytest.MonkeyPatch, make_space: Any) -> Any:
    """Return a function that loads a space with a portfolio."""
    monkeypatch.setattr(module, "read_portfolio", {"xgboost": GOOD}.__getitem__)

    def make(body: str = BODY, **given: Any) -> Any:
        space = make_space(body, **given)
        return replace(space, search=replace(space.search, portfolio="xgboost"))

    return make


def test_the_order_and_what_is_left_out(good: Any) -> None:
    space = good(points="[{params.eta: 0.05}, {params.eta: 0.06}]")
    default = {"params.eta": 0.3, "params.max_depth": 6}
    earlier = [{}, {"params.eta": 0.2, "params.max_depth": 3}]
    assert first_points(space, earlier) == [
        {"params.eta": 0.05},
        {"params.eta": 0.06},
        default,
        *earlier,
        {"params.eta": 0.1, "params.max_depth": 4},
        {"params.max_depth": 8},
        {"params.eta": 0.25, "params.max_depth": 3},
    ]
    assert first_points(good(points="[{params.eta: 0.3, params.max_depth: 6}]"))[:2] == [
        default,
        {"params.eta": 0.1, "params.max_depth": 4},
    ]
    without = replace(space, search=replace(space.search, portfolio=None))
    assert first_points(without, earlier) == [{"params.eta": 0.05}, {"params.eta": 0.06}, *earlier]


@pytest.mark.parametrize(("trials", "count"), [(2, 0), (6, 2), (8, 2), (40, 4)])
def test_a_portfolio_takes_at_most_a_third_of_the_trials(
    good: Any, trials: int, count: int
) -> None:
    assert len(first_points(good(max_trials=trials))) == 1 + count


@pytest.mark.parametrize(
    ("dimension", "key"),
    [
        ("eta: {loguniform: [0.01, 0.5]}", 0.3),
        ("eta: {loguniform: [0.01, 0.1]}", 0.1),
        ("eta: {quniform: [0.05, 0.45, 0.2]}", 0.25),
        ("max_depth: {randint: [7, 9]}", 7),
        ("max_depth: {randint: [2, 6]}", 5),
        ("alpha: {loguniform: [0.001, 1]}", 0.001),
        ("lambda: {quniform: [0.4, 6.4, 1.5]}", 0.4),
        ("lambda: {qloguniform: [0.4, 6.4, 1.5]}", 1.9),
        ("max_bin: {choice: [64, 128]}", 128),
        ("grow_policy: {choice: [lossguide, depthwise]}", "depthwise"),
        ("grow_policy: {choice: [lossguide]}", None),
        ("objective: {choice: ['reg:squarederror']}", None),
    ],
)
def test_the_default_configuration_has_the_nearest_values(
    good: Any, dimension: str, key: float | str | None
) -> None:
    name = f"params.{dimension.partition(':')[0]}"
    (point, *_) = [*first_points(good(f"params: {{{dimension}, gamma: {{uniform: [1, 2]}}}}")), {}]
    assert point == {"params.gamma": 1.0} | ({} if key is None else {name: key})


def test_dimensions_that_are_inactive_with_the_defaults_have_no_key(good: Any) -> None:
    body = """
    params:
      booster: {choice: [gbtree, dart]}
      rate_drop: {when: {params.booster: dart}, uniform: [0.1, 0.5]}
      model: {choice: [{max_bin: {choice: [64, 128]}}, {max_leaves: {randint: [4, 9]}}]}
    """
    assert first_points(good(body)) == [{"params.booster": "gbtree"}]


def test_a_resumed_sweep_continues_the_queue(good: Any, tmp_path: Path) -> None:
    space = good(max_trials=12, scheduler="{name: none}")
    points = [next_trial(SearchLoop.open(tmp_path, space)).params for _ in range(6)]
    assert [(p["eta"], p["max_depth"]) for p in points[:2]] == [(0.3, 6), (0.1, 4)]
    assert points[2]["max_depth"] == 8
    assert [(p["eta"], p["max_depth"]) for p in points[3:5]] == [(0.2, 3), (0.25, 3)]
    assert len({str(params) for params in points}) == 6


@pytest.mark.parametrize("name", portfolio_files())
def test_a_shipped_portfolio_has_values_that_its_trainer_allows(name: Any) -> None:
    portfolio = read_portfolio(name)
    parameters = definition_of(f"sweeps.trainers.{name}").parameters
    assert 5 <= len(portfolio) <= 12 and len({str(one) for one in portfolio}) == len(portfolio)
    for key, value in (item for one in portfolio for item in one.items()):
        assert allows(parameters[key.removeprefix("params.")], value), (key, value)
