"""The worker actor. The pool imports this module; what takes long to import is in `worker_runtime`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from sweeps.execution.messages import Assignment, Ended, Job, WorkerInfo


@ray.remote(max_restarts=0)
class Worker:
    """One process. It stays warm from trial to trial and from gang to gang."""

    def start(self, pool: Any, worker: str, job: Job) -> WorkerInfo:
        """See `WorkerRuntime.start`."""
        from sweeps.execution.worker_runtime import WorkerRuntime

        self.runtime = WorkerRuntime(pool, worker, job)
        return self.runtime.start()

    def execute(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function of a backend in this process."""
        return function(*args, **kwargs)

    def run(self, assignment: Assignment) -> Ended:
        """See `WorkerRuntime.run`."""
        return self.runtime.run(assignment)

    def leave(self) -> None:
        """See `WorkerRuntime.leave`."""
        self.runtime.leave()


def start(pool: Any, worker: str, job: Job, resources: dict[str, float], node: str | None) -> tuple[Any, Any]:
    """Start a worker.

    Args:
        pool: Handle of the pool.
        worker: Id of the worker.
        job: What all trials of the sweep share.
        resources: Name and amount of each resource of the worker.
        node: Id of the node to start it on; None to let Ray choose.

    Returns:
        Its handle, and a reference of its `WorkerInfo`, which fails if the process dies or cannot start.
    """
    resources = dict(resources)
    actor = Worker.options(  # type: ignore[attr-defined]
        num_cpus=resources.pop("CPU", 0),
        num_gpus=resources.pop("GPU", 0),
        memory=int(resources.pop("memory", 0)) or None,
        resources=resources or None,
        scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False) if node else None,
    ).remote()
    return actor, actor.start.remote(pool, worker, job)
