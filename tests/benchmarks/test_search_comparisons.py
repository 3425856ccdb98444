"""The comparisons of warm starts, of pausing schedulers, and of rows as fidelity, in small."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.search_quality import warm_start
from benchmarks.search_quality.axes import Axis, draw, ordered, place
from benchmarks.search_quality.split import HELD

AXES = [
    Axis("float", 1e-4, 1.0, log=True),
    Axis("float", -2.0, 3.0),
    Axis("int", 16, 1024, log=True),
    Axis("int", 0, 7),
    Axis("choice", 0, 3),
    ordered(8, 16, 32),
]


@pytest.mark.parametrize("axis", AXES, ids=lambda axis: axis.kind)
def test_the_value_at_the_place_of_a_value_is_this_value(axis: Any) -> None:
    rng = np.random.RandomState(0)
    for _ in range(50):
        value = draw({"x": axis}, rng)["x"]
        assert warm_start.at(axis, place(axis, value)) == pytest.approx(value)
    assert place(axis, warm_start.at(axis, 2.0)) == pytest.approx(1.0)


@pytest.mark.parametrize("kind", ["related", "unrelated"])
@pytest.mark.parametrize("name", warm_start.KINDS["related"])
def test_an_earlier_task_has_the_dimensions_of_its_task_and_none_is_held(
    kind: str, name: Any
) -> None:
    target, source = warm_start.task(name), warm_start.KINDS[kind][name]()
    assert dict(source.axes) == dict(target.axes)
    assert not any(
        held.partition("+")[0] in (name, *source.name.replace(",", " ").split()) for held in HELD
    )
    config = draw(target.axes, np.random.RandomState(0))
    assert np.isfinite(source.curve(config)).all() and source.curve(config)[-1] != pytest.approx(
        target.curve(config)[-1]
    )


def test_warm_starts_are_compared_with_cold_replays() -> None:
    rows = [
        {
            "kind": kind,
            "method": "gp",
            "task": task,
            "seed": seed,
            "regret": [value * (seed + 1)] * len(warm_start.BUDGETS),
        }
        for seed in range(3)
        for task, value in (("xgb_cancer", 0.1), ("cells", 0.2))
        for kind, value in (("without", value), ("related", value / 2))
    ]
    page = warm_start.report([*rows, {**rows[1], "seed": 7}])
    assert (
        "| xgb_cancer | xgb_digits | 0.100 / 0.200 |" in page
        and "| cells | cells, moved | 0.200 / 0.400 |" in page
    )
    assert page.count("| ratio | | 0.50 (0.50 – 0.50) |") == 2 and "Unrelated" not in page
