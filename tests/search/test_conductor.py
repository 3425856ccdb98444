"""What a driver decides that no whole sweep of the tests comes to: without Ray."""

from __future__ import annotations

import time
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
import ray.exceptions

from sweeps.conductor import Conductor
from sweeps.errors import InputError, Problem
from sweeps.gangs.messages import Past, Progress
from sweeps.search.study import Ledger
from sweeps.trial import Report, State
from tests.search.deaths import Deaf

BODY = "params: {eta: {uniform: [0, 1]}}"


class Pool(Deaf):
    """Keeps what it is told of trials."""

    def __init__(self) -> None:
        self.started: list[Past | None] = []
        self.start = SimpleNamespace(remote=lambda trial, folder, past=None: self.started.append(past))


def conductor(space: Any, folder: Any) -> tuple[Conductor, Pool]:
    pool, deaf = Pool(), Deaf()
    tracker: Any = deaf
    going = Conductor(Ledger(folder, space), pool, tracker, time.time(), lambda: False, lambda s: None, lambda: None)
    going.settle()
    return going, pool


def ready(monkeypatch: pytest.MonkeyPatch, raises: Exception) -> None:
    """Whatever is waited for is there, and is this error."""

    def get(what: Any) -> None:
        raise raises

    monkeypatch.setattr("sweeps.conductor.ray", SimpleNamespace(wait=lambda what, timeout: (what, []), get=get, exceptions=ray.exceptions))


@pytest.mark.parametrize("ended", [0, 1])
def test_a_chain_that_is_found_bad_ends_the_sweep_unless_trials_have_ended(make_space, tmp_path, monkeypatch, ended):
    going, _ = conductor(make_space(BODY, scheduler="{name: none}"), tmp_path)
    for _ in range(ended):
        name = going.begin()
        assert name is not None
        going.hear(name, Progress((Report(1, {"loss": 0.5}, 1.0),), state=State.COMPLETE))
    bad = InputError(Problem("space.preprocessor", "no column `x`"))
    ready(monkeypatch, ray.exceptions.RayTaskError("prefit", "", bad))
    going.prefit = object()
    going._look_at_prefit()
    assert (going.refused is None) == bool(ended) and (going.reason is None) == bool(ended), "its own trials fail, others stay"


def test_the_death_of_a_driver_is_no_failure_of_a_trial_whose_pool_is_lost_later(make_space, tmp_path, monkeypatch):
    space = make_space(BODY, scheduler="{name: none}")
    first, _ = conductor(space, tmp_path)
    name = first.begin()
    assert name is not None
    first.hear(name, Progress((Report(1, {"loss": 0.5}, 1.0),), attempts=3))  # two gangs were lost under it
    going, pool = conductor(space, tmp_path)
    assert going.begin() == name and pool.started[-1] == Past(3, ((1, 0.5),), None, None, 0.0, 0)
    going.hear(name, Progress((Report(2, {"loss": 0.4}, 2.0),), attempts=4))
    ready(monkeypatch, ray.exceptions.RayActorError())
    going._look_whether_the_pool_lives()
    assert pool.started[-1] is not None and (pool.started[-1].attempts, pool.started[-1].lost) == (4, 1)
    going.hear(name, Progress((Report(3, {"loss": 0.3}, 3.0),), attempts=5))
    going._look_whether_the_pool_lives()
    assert pool.started[-1].lost == 2


def test_what_a_trial_took_that_waits_to_go_on_counts_as_spent(make_space, tmp_path):
    body = BODY + "\nscaling: {num_workers: 1, resources_per_worker: {CPU: 1, GPU: 1}}"
    space = make_space(body, scheduler="{name: none}", extra="")
    first, _ = conductor(space, tmp_path)
    name = first.begin()
    assert name is not None
    first.hear(name, Progress((Report(1, {"loss": 0.5}, 1.0),), seconds=7200.0))
    going, _ = conductor(space, tmp_path)
    assert going.ledger.interrupted == deque([0]) and going.reason is None
    object.__setattr__(going.space.limits, "max_gpu_hours", 1.5)
    going._look_at_budgets()
    assert going.reason is not None and going.reason.startswith("limits.max_gpu_hours")
