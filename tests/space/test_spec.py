"""Dimensions wherever they stand, filling them, cells, shapes, and the keys of options."""

from __future__ import annotations

import math
from typing import Any

from sweeps.core.resources import Shape
from sweeps.space import Dimension, Step
from sweeps.space.model.templates import children


def first(dim: Dimension) -> Any:
    """A key of any dimension: the first option, the lower bound, the median."""
    return dim.options[0].key if dim.options else 0.5 if dim.lower is None else dim.lower


def last(dim: Dimension) -> Any:
    return dim.options[-1].key if dim.options else 0.5 if dim.lower is None else dim.lower


NESTED = """
preprocessor:
  grid:
    - [SimpleImputer: {strategy: {choice: [mean, most_frequent]}}, StandardScaler]
    - StandardScaler: {columns: {grid: [numeric, [age, 'pixel_*']]}}
    - none
scaling:
  num_workers: {grid: [1, 2]}
  resources_per_worker: {CPU: {choice: [1, 0.5]}}
params:
  eta: {loguniform: [1e-4, 1e-1]}
  layers: [{randint: [1, 9]}, 64, {width: {qrandint: [8, 64, 8]}}]
  kind:
    choice:
      - gbtree
      - {name: dart, rate_drop: {uniform: [0, 1]}}
  noise: {randn: [0, 1]}
"""


def test_names_in_the_order_of_the_file_nested_after_their_own(space: Any) -> None:
    dimensions = space(NESTED).dimensions
    assert [(dim.name, dim.kind) for dim in dimensions] == [
        ("preprocessor", "grid"),
        ("preprocessor.grid.0.0.SimpleImputer.strategy", "choice"),
        ("preprocessor.grid.1.StandardScaler.columns", "grid"),
        ("scaling.num_workers", "grid"),
        ("scaling.resources_per_worker.CPU", "choice"),
        ("params.eta", "loguniform"),
        ("params.layers.0", "randint"),
        ("params.layers.2.width", "qrandint"),
        ("params.kind", "choice"),
        ("params.kind.choice.1.rate_drop", "uniform"),
        ("params.noise", "randn"),
    ]
    eta, width = dimensions[5], dimensions[7]
    assert (eta.lower, eta.upper, eta.q, eta.options) == (1e-4, 1e-1, None, ())
    assert (width.lower, width.upper, width.q) == (8, 64, 8)
    assert [dim.is_grid for dim in dimensions].count(True) == 3


def test_columns_are_words_or_tuples(space: Any) -> None:
    loaded = space(NESTED)
    grid = loaded.dimensions[0]
    keys = {grid.name: grid.options[1].key, loaded.dimensions[2].name: "[age, pixel_*]"}
    (step,) = loaded.fill(lambda dim: keys.get(dim.name, first(dim)))["preprocessor"]
    assert step == Step("StandardScaler", ("age", "pixel_*"))


def test_cells_of_a_nested_grid_count_under_their_branch(space: Any) -> None:
    loaded = space(NESTED)
    assert len(loaded.cells) == (1 + 2 + 1) * 2
    assert loaded.cells[0] == {
        "preprocessor": "SimpleImputer+StandardScaler",
        "scaling.num_workers": 1,
    }
    inner = "preprocessor.grid.1.StandardScaler.columns"
    assert {cell["preprocessor"] for cell in loaded.cells if inner in cell} == {"StandardScaler"}
    for cell in loaded.cells:
        loaded.fill(lambda dim, cell=cell: cell[dim.name] if dim.is_grid else first(dim))


def test_a_grid_inside_a_choice_is_in_every_cell(space: Any) -> None:
    loaded = space("params: {a: {choice: [{grid: [1, 2]}, {x: {grid: [3, 4]}}]}}")
    assert len(loaded.cells) == 4
    for cell in loaded.cells:
        for option in loaded.dimensions[0].options:
            loaded.fill(
                lambda dim, cell=cell, key=option.key: cell[dim.name] if dim.is_grid else key
            )


def test_shapes(space: Any) -> None:
    loaded = space(
        "scaling: {num_workers: {randint: [1, 3]}, use_gpu: {grid: [true, false]}, "
        "resources_per_worker: {CPU: {choice: [1, 2]}}}"
    )
    assert len(loaded.shapes) == 8
    assert Shape(2, (("CPU", 2.0), ("GPU", 1.0)), "xgboost") in loaded.shapes
    assert space("scaling: {grid: [{num_workers: 1}, {num_workers: 2}]}").shapes[1] == Shape(
        2, (("CPU", 1.0),), "xgboost"
    )
    assert space("scaling: {resources_per_worker: {grid: [{CPU: 1}, {}]}}").shapes == (
        Shape(1, (("CPU", 1.0),), "xgboost"),
    )


def test_chains_in_every_form(space: Any) -> None:
    def filled(yaml: str, choose: Any = last) -> tuple[Step, ...]:
        steps: tuple[Step, ...] = space(f"preprocessor: {yaml}").fill(choose)["preprocessor"]
        return steps

    scaler, imputer = Step("StandardScaler"), Step("SimpleImputer")
    assert filled("none") == filled("null") == filled("[]") == filled("[none]") == ()
    assert (
        filled("StandardScaler")
        == filled("[StandardScaler]")
        == filled("{StandardScaler: }")
        == filled("{StandardScaler: {}}")
        == (scaler,)
    )
    assert filled("[SimpleImputer, {choice: [none, StandardScaler]}]") == (imputer, scaler)
    assert filled("[SimpleImputer, {choice: [none, StandardScaler]}]", first) == (imputer,)
    assert filled("[{grid: [[SimpleImputer, StandardScaler], none]}]", first) == (imputer, scaler)
    assert filled("{json:loads: {a: [1, {choice: [2]}], columns: all}}") == (
        Step("json:loads", "all", {"a": [1, 2]}),
    )
    assert filled("{SimpleImputer: {choice: [{}, {strategy: constant, columns: [a]}]}}") == (
        Step("SimpleImputer", ("a",), {"strategy": "constant"}),
    )
    assert filled("{StandardScaler: {columns: [a, {choice: [b, c]}]}}") == (
        Step("StandardScaler", ("a", "c")),
    )


def keys(space: Any, section: str) -> list[Any]:
    return [option.key for option in space(section).dimensions[0].options]


def test_keys_are_readable_and_unique(space: Any) -> None:
    assert keys(space, "params: {a: {grid: [1, a, 0.5, null, true]}}") == [
        1,
        "a",
        0.5,
        None,
        "true",
    ]
    assert keys(space, "params: {a: {grid: [true, 'true', 1]}}") == [True, "true", "1"]
    assert keys(
        space, "params: {a: {choice: [[64, 64], {n: 1}, .inf, -.inf, .nan, {choice: [1]}]}}"
    ) == [*("[64, 64]", "{n: 1}", ".inf", "-.inf", ".nan", "choice")]
    assert keys(space, "params: {a: {choice: [{uniform: [0, 1]}, {uniform: [0, 2]}]}}") == [
        "uniform",
        "uniform#2",
    ]
    chains = """
preprocessor:
  grid:
    - none
    - StandardScaler
    - [SimpleImputer: {strategy: mean, columns: all}, StandardScaler]
    - [SimpleImputer: {strategy: constant, columns: all}, StandardScaler]
    - sklearn.preprocessing:PowerTransformer
    - [{choice: [none, MinMaxScaler]}, StandardScaler]
"""
    assert keys(space, chains) == [
        "none",
        "StandardScaler",
        "SimpleImputer(strategy=mean)+StandardScaler",
        "SimpleImputer(strategy=constant)+StandardScaler",
        "PowerTransformer",
        "choice+StandardScaler",
    ]
    long = keys(space, "params: {a: {grid: [[" + "x, " * 50 + "y], [" + "x, " * 50 + "z]]}}")
    assert len(set(long)) == 2 and all(len(key) <= 62 for key in long)


def test_constants_stay_as_they_are(space: Any) -> None:
    body = (
        "params: {layers: [1, 2], nested: {choice: 3, other: 4}, empty: {}, weights: {0: 1.0, 1: "
        "2.0}, units: {hidden: [1, 2]}}"
    )
    assert space(body).fill(first)["params"] == {
        "layers": [1, 2],
        "nested": {"choice": 3, "other": 4},
        "empty": {},
        "weights": {0: 1.0, 1: 2.0},
        "units": {"hidden": [1, 2]},
    }


def test_whole_params_as_a_dimension(space: Any) -> None:
    loaded = space("params: {grid: [{eta: 0.1}, {eta: {uniform: [0, 1]}, depth: 3}]}")
    assert [dim.name for dim in loaded.dimensions] == ["params", "params.grid.1.eta"]
    assert loaded.fill(last)["params"] == {"eta": 0, "depth": 3}


def test_dotted_keys_do_not_make_two_names_alike(space: Any) -> None:
    loaded = space("params: {a.b: {uniform: [0, 1]}, a: {b: {uniform: [0, 1]}}}")
    assert [dim.name for dim in loaded.dimensions] == ["params.a.b", "params.a.b#2"]


def test_max_trials_defaults_to_the_cells_of_grids_alone(space: Any) -> None:
    assert (
        space("params: {a: {grid: [1, 2, 3]}, b: {grid: [1, 2]}}", limits="").limits.max_trials == 6
    )
    assert space("params: {a: 3}", limits="").limits.max_trials == 1


def product(template: Any) -> int:
    """Return the number of cells of a template without conditions."""
    if not isinstance(template, Dimension):
        return math.prod(product(child) for child in children(template))
    counts = [product(option.value) for option in template.options]
    return sum(counts) if template.is_grid else math.prod(counts)
