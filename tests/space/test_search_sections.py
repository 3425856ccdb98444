"""Sections about the search that a space file may have, one at a time."""

from __future__ import annotations

from typing import Any

import pytest

from sweeps.core.resources import COSTS
from sweeps.space import load
from tests.space.test_searching import TWO, top

ASKED = {
    "objective.1": {"objective": TWO.replace("seconds", "other")},
    "constraints": {"constraints": "{a: '<= 5'}"},
    "repeats": {"repeats": "3"},
    "search.options": {"search": "{algorithm: tpe, options: {n_startup_trials: 3}}"},
    "search.initial_points": {"search": "{initial_points: [{params.eta: 0.5}]}"},
    "scheduler.name=hyperband": {"scheduler": "{name: hyperband, max_t: 9}"},
    "scheduler.name=median": {"scheduler": "{name: median}"},
    "scheduler.name=pbt": {"scheduler": "{name: pbt, perturbation_interval: 3}"},
    "limits.max_gpu_hours": {"limits": "{max_trials: 20, max_gpu_hours: 1}"},
    "limits.target": {"limits": "{max_trials: 20, target: 1}"},
    "limits.patience": {"limits": "{max_trials: 20, patience: 3}"},
    "limits.max_failures_in_a_row": {"limits": "{max_trials: 20, max_failures_in_a_row: 3}"},
    **{
        f"search.algorithm={name}": {"search": f"{{algorithm: {name}}}"}
        for name in ("gp", "qmc", "cmaes", "nsga2")
    },
    **{
        f"objective.metric={name}": {"objective": f"{{metric: {name}, goal: minimize}}"}
        for name in COSTS
    },
}


@pytest.mark.parametrize("entry", ASKED)
def test_what_is_asked_for_is_taken(write: Any, entry: str) -> None:
    assert load(write(top(**ASKED[entry])))


def test_a_population_is_all_trials_that_there_are(write: Any) -> None:
    pbt = "{name: pbt, perturbation_interval: 3%s}"
    assert load(write(top(scheduler=pbt % ""))).scheduler.population == 20
    space = load(write(top(scheduler=pbt % ", population: 6", limits="{max_concurrent_trials: 6}")))
    assert space.limits.max_trials == space.scheduler.population == 6
