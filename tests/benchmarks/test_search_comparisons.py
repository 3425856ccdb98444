"""The comparisons of warm starts, of pausing schedulers, and of rows as fidelity, in small."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest

from benchmarks.search_quality import pausing, rows, warm_start
from benchmarks.search_quality.axes import draw, ordered, place
from benchmarks.search_quality.report import read
from benchmarks.search_quality.split import HELD
from benchmarks.search_quality.tasks import Axis

AXES = [
    Axis("float", 1e-4, 1.0, log=True),
    Axis("float", -2.0, 3.0),
    Axis("int", 16, 1024, log=True),
    Axis("int", 0, 7),
    Axis("choice", 0, 3),
    ordered(8, 16, 32),
]


@pytest.mark.parametrize("axis", AXES, ids=lambda axis: axis.kind)
def test_the_value_at_the_place_of_a_value_is_this_value(axis):
    rng = np.random.RandomState(0)
    for _ in range(50):
        value = draw({"x": axis}, rng)["x"]
        assert warm_start.at(axis, place(axis, value)) == pytest.approx(value)
    assert place(axis, warm_start.at(axis, 2.0)) == pytest.approx(1.0)


@pytest.mark.parametrize("kind", ["related", "unrelated"])
@pytest.mark.parametrize("name", warm_start.KINDS["related"])
def test_an_earlier_task_has_the_dimensions_of_its_task_and_none_is_held(kind, name):
    target, source = warm_start.task(name), warm_start.KINDS[kind][name]()
    assert dict(source.axes) == dict(target.axes)
    assert not any(
        held.partition("+")[0] in (name, *source.name.replace(",", " ").split()) for held in HELD
    )
    config = draw(target.axes, np.random.RandomState(0))
    assert np.isfinite(source.curve(config)).all() and source.curve(config)[-1] != pytest.approx(
        target.curve(config)[-1]
    )


def test_warm_starts_are_compared_with_the_replays_without_an_earlier_sweep():
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
    made = warm_start.report([*rows, {**rows[1], "seed": 7}])
    assert (
        "| xgb_cancer | xgb_digits | 0.100 / 0.200 |" in made
        and "| cells | cells, moved | 0.200 / 0.400 |" in made
    )
    assert made.count("| ratio | | 0.50 (0.50 – 0.50) |") == 2 and "Unrelated" not in made


def test_pausing_schedulers_are_compared_on_the_replays_that_all_of_them_have(tmp_path):
    lines = []
    for method, task, seed in itertools.product(["", ", promotion"], ["branin", "cells"], range(3)):
        regret = [
            0.1 + 0.1 * (task == "cells") + 0.01 * seed + 0.05 * (method == ", promotion")
        ] * 3
        lines.append({"method": f"sweeps gp{method}", "task": task, "seed": seed, "regret": regret})
    lines.append({**lines[0], "seed": 9})
    (tmp_path / "out.jsonl").write_text("\n".join(map(json.dumps, lines)))
    made = pausing.table(read(tmp_path / "out.jsonl"), "gp")
    assert "| stopping | 0.160 |" in made and "| promotion | 0.210 (+0.050 ± 0.000) |" in made
    assert "| 6 |" in made and pausing.table(lines, "random") == ""
    assert "| cells | 0.210 | 0.260 | 3 |" in pausing.by_task(lines, "gp", 25.0)


def test_a_search_on_rows_counts_only_models_of_all_rows_within_the_time():
    now, runs = [0.0], []

    def fit(config, step):
        runs.append(step)
        now[0] += step
        return config["C"], -config["C"]

    model = rows.Model({"C": Axis("float", 0.0, 1.0)}, lambda folder: fit, 0.0)
    whole = rows.search(model, fit, 0, "full rows", 50.0, lambda: now[0])
    assert set(runs) == {9} and (whole["trials"], whole["full"]) == (6, 6)
    first, _, last = whole["best"]
    assert first[0] >= last[0] == -last[1], (
        "the sixth model ends after 54 seconds and does not count"
    )
    now[0], few = 0.0, len(runs)
    on_rows = rows.search(model, fit, 0, "rows", 50.0, lambda: now[0])
    assert {1, 3, 9} == set(runs[few:]) and on_rows["trials"] > 6 > on_rows["full"]
    table = rows.table(
        [
            {"model": "m", "scheduler": s, "seed": 0, "seconds": 50, **one}
            for s, one in (("rows", on_rows), ("full rows", whole))
        ]
    )
    assert (
        "| m, 50 s | full rows | 0." in table and "| m, 50 s | rows | a model in 0 of 1 |" in table
    ), "its first model takes 13 seconds"


def test_a_search_without_a_model_says_so():
    row = {
        "model": "m",
        "seed": 0,
        "seconds": 5,
        "best": [None, [0.5, 0.6], [0.4, 0.5]],
        "trials": 2,
        "full": 1,
    }
    table = rows.table([{**row, "scheduler": scheduler} for scheduler in rows.SCHEDULERS])
    assert "| a model in 0 of 1 | 0.5000 | 0.4000 | 0.5000 | 2 | 1 | 1 |" in table
