"""What a shape asks for is what its workers get: CPUs, threads, whole GPUs and fractions of one."""

from __future__ import annotations

import pytest
import ray

from sweeps.core.resources import Shape
from sweeps.core.trial import Trial
from tests.execution.driving import Driving, job

pytestmark = [pytest.mark.long, pytest.mark.timeout(180)]


def given(driving: Driving, number: int, shape: Shape) -> dict[str, float]:
    t = Trial(number, f"{number:04d}", {}, (), shape, number, {})
    driving.start(t)
    progress, reports = driving.finish(t)
    assert progress.error is None, progress.error
    return reports[0].metrics


@pytest.fixture
def ray_with_gpus():
    """A Ray of its own that believes in two GPUs; it only counts them."""
    if ray.is_initialized():
        ray.shutdown()
    ray.init(
        num_cpus=4, num_gpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR"
    )
    yield
    ray.shutdown()


def test_workers_get_what_their_shape_asks_for(ray_with_gpus, tmp_path):
    with Driving(
        job("tests.execution.loops:what_it_was_given", "none"),
        tmp_path,
        cluster={"CPU": 4.0, "GPU": 2.0},
    ) as driving:
        solo = given(driving, 0, Shape(1, (("CPU", 2.0),)))
        assert (solo["threads"], solo["omp"], solo["cpu"], solo["gpu"]) == (2, 2, 2, 0)
        half = given(driving, 1, Shape(1, (("CPU", 1.0), ("GPU", 0.5))))
        assert (half["threads"], half["gpu"], half["visible"]) == (1, 0.5, 1)
        two = given(driving, 2, Shape(2, (("CPU", 1.0), ("GPU", 1.0))))
        assert (two["cpu"], two["gpu"], two["world"]) == (1, 1, 2)
        thirds = given(driving, 3, Shape(2, (("CPU", 2.0), ("GPU", 0.25))))
        assert (thirds["threads"], thirds["omp"], thirds["gpu"], thirds["world"]) == (2, 2, 0.25, 2)
