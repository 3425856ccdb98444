"""Run the trials of Ray Tune in the workers of the pool.

Ray Tune starts an actor for each trial. In a sweep, the pool's workers run the trials, so this
actor would only pass messages on. It would cost a process of 100 MB, two seconds of imports, and an
additional call for each message. Instead, Tune gets a `PoolTrial` in place of the handle of this
actor. The `PoolTrial` calls the pool directly.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray import tune
from ray.air.execution.resources import AcquiredResources, ResourceManager, ResourceRequest
from ray.tune.execution import tune_controller


class Trainable(tune.Trainable):
    """Empty Trainable of all trials.

    Tune requires such a class, but no instance is ever created.
    """


@contextlib.contextmanager
def run_in(pool: Any) -> Iterator[None]:
    """Context manager that lets Ray Tune run all trials in a pool during the `with` block.

    Args:
        pool: Handle of the pool.
    """
    original = tune_controller.PlacementGroupResourceManager
    manager = functools.partial(_PoolResources, pool)
    tune_controller.PlacementGroupResourceManager = manager  # type: ignore[assignment, misc]
    try:
        yield
    finally:
        tune_controller.PlacementGroupResourceManager = original  # type: ignore[misc]


class _PoolResources(ResourceManager):
    """Resource manager of Ray Tune that grants every request at once.

    The reason: the pool allocates the resources of the trials.
    """

    def __init__(self, pool: Any):
        self._pool = pool

    def request_resources(self, resource_request: ResourceRequest) -> None:
        pass

    def cancel_resource_request(self, resource_request: ResourceRequest) -> None:
        pass

    def has_resources_ready(self, resource_request: ResourceRequest) -> bool:
        return True

    def acquire_resources(self, resource_request: ResourceRequest) -> AcquiredResources:
        return _InPool(resource_request, self._pool)

    def free_resources(self, acquired_resource: AcquiredResources) -> None:
        pass

    def clear(self) -> None:
        pass


@dataclass
class _InPool(AcquiredResources):
    """Resources of one trial.

    Before Tune starts a trial's actor, it passes the actor's class to this object. This object
    returns a stand-in for the class. When Tune then calls `remote` of the stand-in, the call
    returns a `PoolTrial` and starts no actor.
    """

    pool: Any

    def annotate_remote_entities(self, entities: Sequence[Any]) -> list[Any]:
        return [_Method(lambda config, **_: PoolTrial(self.pool, config["trial"]))]


class _Method:
    """Stand-in for an actor's class, or for a method of an actor's handle.

    Tune calls the method `remote` of both.
    """

    def __init__(self, call: Callable[..., Any]):
        self.remote = call


class PoolTrial:
    """Stand-in for the handle of a trial's actor. It has the methods that Tune calls.

    Args:
        pool: Handle of the pool.
        trial: Id of the trial.
    """

    def __init__(self, pool: Any, trial: str):
        self.train = _Method(
            lambda: pool.step.options(max_task_retries=-1).remote(trial)
        )  # Ray repeats a call that a restart cuts off.
        self.stop = _Method(lambda: ray.put(None))
        self.get_auto_filled_metrics = _Method(lambda **_: {})
        # Inside a class, Python would change the name `__ray_ready__` of an attribute.
        setattr(self, "__ray_ready__", self.stop)  # noqa: B010
