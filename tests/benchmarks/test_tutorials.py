"""The configurations that the benchmark of the tutorials trains on both sides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import sweeps
from benchmarks.common import Task
from benchmarks.tutorials import TUTORIALS, WORKLOAD


@pytest.mark.parametrize("tutorial", TUTORIALS, ids=lambda tutorial: tutorial.space)
def test_every_configuration_is_a_trial_of_the_space(tutorial: Any) -> None:
    space = sweeps.load(tutorial.file, tutorial.overrides_for(len(tutorial.points)))
    assert len(space.search.initial_points) == space.limits.max_trials == len(tutorial.points)
    names = {dimension.name for dimension in space.dimensions}
    assert all(set(point) == names for point in tutorial.points), "nothing is left for the sampler"


def test_every_tutorial_has_a_side_of_sweeps_and_of_ray() -> None:
    names = {side.name for side in WORKLOAD.sides}
    assert all({f"{t.space}-ours", f"{t.space}-ray-0"} <= names for t in TUTORIALS)


def test_a_run_with_a_missing_trial_is_refused(tmp_path: Path) -> None:
    first = TUTORIALS[0]
    assert first.measures(Task(2, tmp_path), 9.0, [1.0, 3.0], [0.5, 0.25]) == {
        "whole": 9.0,
        "trial": 2.0,
        "best": 0.25,
        "mean": 0.375,
    }
    with pytest.raises(RuntimeError, match="1 trials ended and 2 have a value, instead of 2"):
        first.measures(Task(2, tmp_path), 9.0, [1.0], [0.5, 0.25])
