from __future__ import annotations

import pytest

from sweeps.plan import plan
from sweeps.plan.text import render


def test_a_single_shape_starts_one_worker_for_each_place(make):
    space = make("params: {a: {uniform: [0, 1]}}", trials=9)
    assert plan(space, {"CPU": 4.0}).workers == 4
    assert plan(space, {"CPU": 64.0}).workers == 9


def test_workers_serve_trials_of_every_size(make):
    limited = make(
        "scaling: {num_workers: {grid: [1, 2]}}\nparams: {eta: {uniform: [0, 1]}}",
        limits="max_concurrent_trials: 2",
    )
    assert plan(limited, {"CPU": 6.0}).workers == 4
    assert plan(limited, {"CPU": 2.0}).workers == 2
    assert plan(make("scaling: {num_workers: {choice: [1, 2, 3, 4]}}"), {"CPU": 4.0}).workers == 4


@pytest.mark.parametrize("bounds", ["[1, 3]", "[1.0, 3.0]"])
def test_elastic_trials_may_use_every_worker(make, bounds):
    space = make(
        f"scaling: {{num_workers: {{elastic: {bounds}}}}}",
        limits="max_concurrent_trials: 2",
        trials=9,
    )
    shown = plan(space, {"CPU": 8.0})
    assert shown.workers == 6 and plan(space, {"CPU": 4.0}).workers == 4
    assert "1 to 3 workers × 1 CPU" in render(shown) and shown.to_json()["shapes"][0][
        "workers"
    ] == {"elastic": [1, 3]}


def test_the_number_is_unknown_if_workers_of_different_resources_must_close(make):
    space = make(
        "scaling: {resources_per_worker: {CPU: {grid: [1, 2]}}}\nparams: {eta: {uniform: [0, 1]}}",
        limits="max_concurrent_trials: 2",
    )
    assert plan(space, {"CPU": 4.0}).workers == 4
    assert plan(space, {"CPU": 2.0}, memory=4e9).workers is None
