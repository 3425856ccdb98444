from __future__ import annotations

import random
from typing import Any

import pytest

from sweeps.plan.plan_counts import FitCount, count_fits, trials_per_cell
from tests.plan.drawing import drawn

CHAINS = {
    "none": ("params: {a: 1}", 0, True),
    "constant": ("preprocessor: [SimpleImputer, StandardScaler]", 1, True),
    "grid": (
        "preprocessor: {grid: [StandardScaler, MinMaxScaler]}\nparams: {a: {grid: [1, 2]}}",
        2,
        True,
    ),
    "grid with none": ("preprocessor: {grid: [none, MinMaxScaler]}", 1, True),
    "choice": ("preprocessor: {choice: [StandardScaler, MinMaxScaler, MaxAbsScaler]}", 3, False),
    "choice with none": ("preprocessor: {choice: [none, MinMaxScaler]}", 1, False),
    "alike": (
        "preprocessor:\n  - {grid: [none, StandardScaler]}\n  - {grid: [StandardScaler, none]}",
        2,
        True,
    ),
    "integers": ("preprocessor: {UniformKBinsDiscretizer: {bins: {randint: [2, 6]}}}", 4, False),
    "steps of q": (
        "preprocessor: {PowerTransformer: {power: {quniform: [0.5, 2, 0.5]}}}",
        4,
        False,
    ),
    "more than can be written out": (
        "preprocessor: {UniformKBinsDiscretizer: {bins: {randint: [2, 5000]}}}",
        12,
        False,
    ),
    "continuous": ("preprocessor: {PowerTransformer: {power: {uniform: [0.5, 2]}}}", 12, False),
    "normal": ("preprocessor: {PowerTransformer: {power: {qrandn: [1, 0.2, 0.1]}}}", 12, False),
    "a grid in a choice": (
        (
            "preprocessor:\n  choice:\n    - {PowerTransformer: {power: {grid: [1, 2]}}}\n"
            "    - StandardScaler"
        ),
        3,
        False,
    ),
    "a condition on a grid": (
        (
            "preprocessor:\n  - {grid: [StandardScaler, none]}\n"
            "  - {choice: [MaxAbsScaler], when: {preprocessor.0: none}}"
        ),
        2,
        True,
    ),
    "a condition on a choice elsewhere": (
        (
            "scaling: {num_workers: {choice: [1, 2]}}\n"
            "preprocessor: [{choice: [StandardScaler], when: {scaling.num_workers: 2}}]"
        ),
        1,
        False,
    ),
    "a column": (
        "preprocessor: {StandardScaler: {columns: {choice: [numeric, all, [a, b]]}}}",
        3,
        False,
    ),
}


@pytest.mark.parametrize("body, most, exact", CHAINS.values(), ids=CHAINS)
def test_no_sweep_fits_more_chains_than_the_plan_says(
    make: Any, body: Any, most: Any, exact: Any
) -> None:
    space = make(body)
    assert count_fits(space, trials_per_cell(space.cells, 12)) == FitCount(most, exact)
    for seed in range(20):
        chains = {
            repr(filled["preprocessor"])
            for filled in drawn(space, random.Random(seed))
            if filled["preprocessor"]
        }
        assert len(chains) == most if exact else len(chains) <= most
