from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.core.errors import InputError
from sweeps.core.resources import Shape, count_fitting_trials, missing_resources
from sweeps.plan import find_infeasible_shapes, find_infeasible_shapes_here, plan


def texts(space: Any, cluster: Any, nodes: Any = ()) -> Any:
    problems = find_infeasible_shapes(space, cluster, nodes)
    assert all(p.place == space.place("scaling") for p in problems)
    return [p.text for p in problems]


def test_an_infeasible_shape_is_reported_with_both_numbers(make: Any) -> None:
    space = make("params: {a: 1}\nscaling: {num_workers: 4}")
    (problem,) = find_infeasible_shapes(space, {"CPU": 2.0})
    assert (
        str(problem)
        == f"{space.path}:9:3: scaling: 4 workers × 1 CPU can never run, because it needs 4 CPU "
        "(there are 2)"
    )
    assert texts(space, {"CPU": 1.0}) == [
        "scaling: 4 workers × 1 CPU can never run, because it needs 4 CPU (there is 1)"
    ]
    assert texts(space, {"CPU": 4.0}) == []
    with pytest.raises(InputError, match="can never run"):
        plan(space, {"CPU": 2.0})


def test_every_missing_resource_is_named(make: Any) -> None:
    space = make(
        "scaling: {num_workers: 2, use_gpu: true, resources_per_worker: {CPU: 2, disk: 1}}"
    )
    assert texts(space, {"CPU": 3.0, "GPU": 2.0}) == [
        (
            "scaling: 2 workers × 2 CPU, 1 GPU, 1 disk can never run, because it needs 4 CPU "
            "(there "
            "are 3), 2 disk (there are 0)"
        )
    ]


def test_many_infeasible_shapes_are_reported_in_one_line(make: Any) -> None:
    few = make("scaling: {num_workers: {grid: [1, 2, 3, 4]}}")
    assert len(texts(few, {"CPU": 2.0})) == 2
    many = make("scaling: {num_workers: {randint: [1, 65]}}")
    assert texts(many, {"CPU": 2.0}) == [
        (
            "scaling: 62 of the 64 shapes can never run; the smallest of these, 3 workers × 1 "
            "CPU, "
            "needs 3 CPU (there are 2)"
        )
    ]


def test_fractions_of_a_gpu_are_on_one_gpu(make: Any) -> None:
    space = make("scaling: {num_workers: 3, resources_per_worker: {GPU: 0.6}}")
    assert texts(space, {"CPU": 8.0, "GPU": 2.0}) == [
        (
            "scaling: 3 workers × 1 CPU, 0.6 GPU can never run, because it needs 3 × 1 CPU, 0.6 "
            "GPU "
            "(there is room for 2 on this node)"
        )
    ]
    assert texts(space, {"CPU": 8.0, "GPU": 3.0}) == []


def test_each_worker_is_on_one_node(make: Any) -> None:
    space = make("scaling: {num_workers: 2, resources_per_worker: {CPU: 3}}")
    cluster = {"CPU": 8.0}
    assert texts(space, cluster, [{"CPU": 4.0}, {"CPU": 4.0}]) == []
    assert texts(space, cluster, [{"CPU": 6.0}, {"CPU": 2.0}]) == []
    assert texts(space, cluster, [{"CPU": 4.0}, {"CPU": 2.0}, {"CPU": 2.0}]) == [
        (
            "scaling: 2 workers × 3 CPU can never run, because it needs 2 × 3 CPU (there is room "
            "for "
            "1 on these 3 nodes)"
        )
    ]


def test_an_uncounted_resource_is_not_checked(make: Any) -> None:
    space = make("scaling: {resources_per_worker: {CPU: 1, memory: 1000000000}}")
    assert plan(space, {"CPU": 2.0}).concurrency == 2
    with pytest.raises(InputError, match=r"needs 1 GB of memory \(there are 1e-06 GB\)"):
        plan(space, {"CPU": 2.0, "memory": 1000.0})
    with pytest.raises(InputError, match=r"needs 1 GB of memory \(there are 0.5 GB\)"):
        plan(space, {"CPU": 2.0}, memory=5e8)


def test_before_ray_starts_only_the_cpus_are_checked(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_OVERRIDE_RESOURCES", '{"CPU": 3}')
    assert not find_infeasible_shapes_here(
        make("scaling: {num_workers: 3, use_gpu: true, resources_per_worker: {disk: 0.5}}")
    )
    (problem,) = find_infeasible_shapes_here(make("scaling: {num_workers: 4, use_gpu: true}"))
    assert (
        problem.text
        == "scaling: 4 workers × 1 CPU, 1 GPU can never run, because it needs 4 CPU (there are 3)"
    )


@given(
    st.integers(1, 6),
    st.sampled_from([0.25, 0.3, 0.5, 0.6, 1.0, 2.0]),
    st.integers(0, 8),
    st.integers(0, 4),
)
def test_every_feasible_shape_runs_at_least_once_on_one_machine(
    workers: Any, part: Any, cpus: Any, gpus: Any
) -> None:
    shape = Shape(workers, (("CPU", 1.0), ("GPU", part)))
    machine = {"CPU": float(cpus), "GPU": float(gpus)}
    assert (count_fitting_trials(shape, machine) > 0) is (
        missing_resources(shape, machine, [machine]) is None
    )
