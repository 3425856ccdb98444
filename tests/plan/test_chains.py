from __future__ import annotations

import random

import pytest

from sweeps.plan.cells import trials_per_cell
from sweeps.plan.chains import FitCount, count_fillings, count_fits, fillings
from tests.plan.drawing import drawn

CHAINS = {
    "none": ("params: {a: 1}", (0, 0)),
    "constant": ("preprocessor: [SimpleImputer, StandardScaler]", (1, 1)),
    "grid": (
        "preprocessor: {grid: [StandardScaler, MinMaxScaler]}\nparams: {a: {grid: [1, 2]}}",
        (2, 2),
    ),
    "grid with none": ("preprocessor: {grid: [none, MinMaxScaler]}", (1, 1)),
    "choice": ("preprocessor: {choice: [StandardScaler, MinMaxScaler, MaxAbsScaler]}", (1, 3)),
    "choice with none": ("preprocessor: {choice: [none, MinMaxScaler]}", (0, 1)),
    "alike": (
        "preprocessor:\n  - {grid: [none, StandardScaler]}\n  - {grid: [StandardScaler, none]}",
        (2, 2),
    ),
    "integers": ("preprocessor: {UniformKBinsDiscretizer: {bins: {randint: [2, 6]}}}", (1, 4)),
    "steps of q from any bound": (
        "preprocessor: {PowerTransformer: {power: {quniform: [0.6, 2.1, 0.5]}}}",
        (1, 4),
    ),
    "steps of q": ("preprocessor: {PowerTransformer: {power: {quniform: [0.5, 2, 0.5]}}}", (1, 4)),
    "more than trials": (
        "preprocessor: {UniformKBinsDiscretizer: {bins: {randint: [2, 500]}}}",
        (1, 12),
    ),
    "more than can be written out": (
        "preprocessor: {UniformKBinsDiscretizer: {bins: {randint: [2, 5000]}}}",
        (1, 12),
    ),
    "continuous": ("preprocessor: {PowerTransformer: {power: {uniform: [0.5, 2]}}}", (1, 12)),
    "continuous in a cell": (
        (
            "preprocessor:\n  grid:\n    - StandardScaler\n"
            "    - {PowerTransformer: {power: {uniform: [0.5, 2]}}}\n"
            "    - none"
        ),
        (1, 5),
    ),
    "normal": ("preprocessor: {PowerTransformer: {power: {qrandn: [1, 0.2, 0.1]}}}", (1, 12)),
    "a grid in a choice": (
        (
            "preprocessor:\n  choice:\n    - {PowerTransformer: {power: {grid: [1, 2]}}}\n"
            "    - StandardScaler"
        ),
        (1, 3),
    ),
    "a condition on a grid": (
        (
            "preprocessor:\n  - {grid: [StandardScaler, none]}\n"
            "  - {choice: [MaxAbsScaler], when: {preprocessor.0: none}}"
        ),
        (2, 2),
    ),
    "a condition on a choice beside it": (
        (
            "preprocessor:\n  - {choice: [StandardScaler, none]}\n"
            "  - {choice: [MaxAbsScaler, MinMaxScaler], when: {preprocessor.0: none}}"
        ),
        (1, 3),
    ),
    "a condition on a choice elsewhere": (
        (
            "scaling: {num_workers: {choice: [1, 2]}}\n"
            "preprocessor: [{choice: [StandardScaler], when: {scaling.num_workers: 2}}]"
        ),
        (0, 1),
    ),
    "a column": (
        "preprocessor: {StandardScaler: {columns: {choice: [numeric, all, [a, b]]}}}",
        (1, 3),
    ),
}


@pytest.mark.parametrize("body, bounds", CHAINS.values(), ids=CHAINS)
def test_the_number_of_fits_is_within_the_predicted_bounds(make, body, bounds):
    space = make(body)
    fits = count_fits(space, trials_per_cell(space.cells, 12))
    assert (fits.least, fits.most) == bounds
    for seed in range(20):
        chains = {
            repr(filled["preprocessor"])
            for filled in drawn(space, random.Random(seed))
            if filled["preprocessor"]
        }
        assert fits.least <= len(chains) <= fits.most


def test_the_continuous_dimension_that_leaves_the_number_open_is_named(make):
    space = make(CHAINS["continuous in a cell"][0])
    assert count_fits(space, trials_per_cell(space.cells, 12)) == FitCount(
        1, 5, "preprocessor.grid.1.PowerTransformer.power"
    )
    space = make(CHAINS["integers"][0])
    assert count_fits(space, trials_per_cell(space.cells, 12)).continuous is None


def test_every_filling_is_yielded_once(make):
    section = make(
        "params:\n  a: {choice: [1, 2]}\n  b:\n    choice:\n"
        "      - {c: {randint: [0, 3]}, d: {grid: [x, y]}}\n"
        "      - 5"
    ).sections["params"]
    found = [repr(filled) for filled in fillings(section)]
    assert len(found) == len(set(found)) == count_fillings(section) == 2 * (3 * 2 + 1)
