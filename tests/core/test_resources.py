from __future__ import annotations

from typing import Any

import pytest

from sweeps.core.resources import (
    auto_concurrency,
    count_fitting_trials,
    jax_connects,
    parked_cpus,
    shape_of,
)

CLUSTER = {"CPU": 8.0, "GPU": 2.0, "memory": 1e10}


@pytest.mark.parametrize(
    "scaling, total",
    [
        ({}, {"CPU": 1}),
        ({"num_workers": 3}, {"CPU": 3}),
        ({"num_workers": 2, "resources_per_worker": {"CPU": 2}}, {"CPU": 4}),
        ({"num_workers": 2, "use_gpu": True}, {"CPU": 2, "GPU": 2}),
        ({"use_gpu": True, "resources_per_worker": {"GPU": 0.25}}, {"CPU": 1, "GPU": 0.25}),
        ({"resources_per_worker": {"CPU": 0, "GPU": 1}}, {"GPU": 1}),
    ],
)
def test_a_worker_gets_what_ray_train_would_give_it(scaling: Any, total: Any) -> None:
    assert shape_of(scaling, "torch").total == total


@pytest.mark.parametrize(
    "scaling, connects",
    [
        ({"num_workers": 1}, True),
        ({"num_workers": 2}, False),
        ({"num_workers": 2, "use_gpu": True}, True),
        ({"num_workers": 2, "use_gpu": True, "resources_per_worker": {"GPU": 0.5}}, False),
        ({"num_workers": 2, "resources_per_worker": {"GPU": 1.5}}, False),
        ({"num_workers": 2, "resources_per_worker": {"TPU": 4}}, True),
    ],
)
def test_jax_backend_connects_workers_with_gpus_or_tpus(scaling: Any, connects: bool) -> None:
    assert jax_connects(shape_of(scaling, "jax")) is connects


def test_an_elastic_number_of_workers_needs_its_lower_bound() -> None:
    shape = shape_of({"num_workers": {"elastic": [2, 4]}}, "torch")
    assert (
        shape.total == {"CPU": 2}
        and list(shape.sizes) == [2, 3, 4]
        and str(shape) == "2 to 4 workers × 1 CPU"
    )
    assert shape.scaling == {
        "num_workers": {"elastic": [2, 4]},
        "resources_per_worker": {"CPU": 1.0},
    }
    assert shape_of(shape.scaling, "torch") == shape and shape.of_size(3) == shape_of(
        {"num_workers": 3}, "torch"
    )
    assert (
        count_fitting_trials(shape, CLUSTER) == 4 and auto_concurrency([shape], CLUSTER, 100) == 4
    )
    assert list(shape_of({}, "").sizes) == [1]


def test_a_part_of_a_gpu_lies_on_one_gpu() -> None:
    def of(gpu: float, workers: int = 1) -> Any:
        return shape_of({"num_workers": workers, "resources_per_worker": {"GPU": gpu}}, "")

    assert count_fitting_trials(of(0.6), {"CPU": 8, "GPU": 2}) == 2
    assert count_fitting_trials(of(0.6, 3), {"CPU": 8, "GPU": 2}) == 0
    assert count_fitting_trials(of(0.25, 3), {"CPU": 8, "GPU": 2}) == 2
    assert count_fitting_trials(of(1 / 3), {"CPU": 8, "GPU": 1}) == 3
    assert count_fitting_trials(of(2), {"CPU": 8, "GPU": 4}) == 2


@pytest.mark.parametrize(
    "cpus, memory, parked",
    [(2, 24e9, 2), (64, 1e12, 8), (2, 8e9, 1), (2, 4e9, 0), (16, 24e9, 0), (2, 1e300, 2)],
)
def test_idle_gangs_stay_where_there_is_memory_for_their_processes(
    cpus: int, memory: float, parked: int
) -> None:
    assert parked_cpus(cpus, memory) == parked
