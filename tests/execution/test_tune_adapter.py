"""Ray Tune's trials run in the workers of the pool, and have no process of their own."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from ray.air.execution.resources import ResourceRequest
from ray.tune.execution import tune_controller

import sweeps
from sweeps.core.trial import State
from sweeps.execution.ray_apis import tune_adapter
from tests.commands import space_of
from tests.execution.driving import Driving, job, trial


class Failing:
    """A source whose methods fail, each with an error of its own."""

    def __getattr__(self, name: str) -> Any:
        def fail(*args: Any) -> None:
            raise OSError(name)

        return fail


def test_the_first_error_of_the_source_is_kept_and_raised_again() -> None:
    calls = tune_adapter.SourceCalls(Failing())
    for method in ("poll", "start_trial", "on_trial_lost"):
        with pytest.raises(OSError, match="poll"), calls as source:
            getattr(source, method)()
    assert str(calls.error) == "poll"


def test_the_source_is_polled_while_tune_waits_for_the_first_trial() -> None:
    class Paused(Failing):
        polled = 0

        def start_trial(self) -> str | None:
            return "0000" if self.polled else None

        def poll(self) -> None:
            self.polled += 1

    source = Paused()
    searcher = tune_adapter.TrialSearcher(tune_adapter.SourceCalls(source))
    assert searcher.suggest("first") == {"trial": "0000"} and source.polled == 1
    source.polled = 0
    assert searcher.suggest("second") is None and source.polled == 0, (
        "Tune polls while a trial runs"
    )


def test_tune_asks_the_pool_directly() -> None:
    calls = []
    pool = SimpleNamespace(
        step=SimpleNamespace(
            options=lambda **how: SimpleNamespace(remote=lambda trial: calls.append((trial, how)))
        )
    )
    controller: Any = tune_controller
    original = controller.PlacementGroupResourceManager
    with tune_adapter.run_trials_in(pool):
        manager = controller.PlacementGroupResourceManager()
    assert controller.PlacementGroupResourceManager is original
    request = ResourceRequest([{"CPU": 1}])
    assert manager.has_resources_ready(request), (
        "Tune waits for no resources, because the pool allocates them"
    )
    (actor,) = manager.acquire_resources(request).annotate_remote_entities([tune_adapter.Trainable])
    handle = actor.remote(config={"trial": "0003"}, storage=None)
    handle.train.remote()
    assert calls == [("0003", {"max_task_retries": -1})]
    assert callable(handle.stop.remote)
    assert callable(handle.__ray_ready__.remote)


@pytest.mark.integration
@pytest.mark.timeout(120)
def test_trials_start_no_process_but_the_workers(clean_ray: Any, tmp_path: Path) -> None:
    before = set(clean_ray.util.placement_group_table())
    titles: set[str] = set()

    def look(status: object) -> None:
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                titles.update(
                    part.partition(".")[0] for part in process.cmdline() if part.startswith("ray::")
                )

    space = space_of(tmp_path, "no_checkpoint", limits="max_trials: 4, max_concurrent_trials: 2")
    result = sweeps.run(space, dir=tmp_path / "runs", on_progress=look)
    assert result.trials["completed"] == 4
    assert set(clean_ray.util.placement_group_table()) == before
    own = (
        "ray::IDLE",
        "ray::Dashboard",
        "ray::RuntimeEnv",
        "ray::_AutoscalingCoordinator",
        "ray::_StatsActor",
    )  # Ray's own, and Ray Data's
    assert {title for title in titles if not title.startswith(own)} == {
        "ray::Worker",
        "ray::_Pool",
        "ray::_DataActor",
    }


@pytest.mark.integration
@pytest.mark.extended
@pytest.mark.timeout(120)
def test_the_wait_for_a_decision_does_not_count_as_trial_time(
    clean_ray: Any, tmp_path: Path
) -> None:
    with Driving(job("tests.execution.loops:three_steps", "none", rungs=(2,)), tmp_path) as driving:
        one = trial(0, {}, 1, "none")
        driving.start(one)
        assert driving.update(one).rung == 2
        time.sleep(2)  # The driver decides late.
        driving.pool.answer.remote(one.id, 2, True)
        ended, _ = driving.finish(one)
        assert ended.state is State.COMPLETE and ended.seconds < 1.5
