"""The worker actor.

The pool imports this module, so the modules that take long to import are in `worker_runtime`.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import ray
from ray.actor import ActorHandle
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from sweeps.execution.messages import Job, WorkerInfo

T = TypeVar("T")


@ray.remote(max_restarts=0)
class Worker:
    """Process that runs one rank of a trial at a time.

    It stays alive for later trials and gangs.
    """

    def start(self, pool: ActorHandle[Any], worker: str, job: Job) -> WorkerInfo:
        """Prepare the process for training loops; see `WorkerRuntime`."""
        from .worker_runtime import WorkerRuntime

        self.runtime = WorkerRuntime(pool, worker, job)
        return self.runtime.start()

    def execute(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Call a function in this process and return its result.

        Backends call this method. The pool also calls it, to find out whether the process is alive.
        """
        return function(*args, **kwargs)

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of `WorkerRuntime`, such as "run", on the main thread of this process."""
        return getattr(self.runtime, method)(*arguments)


def start(
    pool: ActorHandle[Any], worker: str, job: Job, resources: dict[str, float], node: str | None
) -> tuple[ActorHandle[Any], ray.ObjectRef[WorkerInfo]]:
    """Start a worker.

    Args:
        pool: Handle of the pool.
        worker: Id of the worker.
        job: Settings that all trials of the sweep share.
        resources: Name and amount of each resource of the worker.
        node: Id of the node to start the worker on; None to let Ray choose.

    Returns:
        The worker's handle, and a reference to its `WorkerInfo`. `ray.get` of this reference raises
        an exception if the process dies or cannot start.
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
