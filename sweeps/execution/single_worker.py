"""A gang of one: an actor that runs the loop itself.

Not Ray Train's local mode, which cannot carry it: there `get_checkpoint()` is None, `report(checkpoint=)` keeps a pointer to a
folder that is gone, and `get_storage()` raises.
"""

from __future__ import annotations

from typing import Any

import ray

from sweeps.core.resources import Shape
from sweeps.execution.messages import Job


@ray.remote(max_restarts=0)
class Solo:
    """The only worker of its gang."""

    def serve(self, pool: Any, gang: str, job: Job) -> None:
        from sweeps.execution import rank  # not in the pool's process, which starts faster without Ray Data

        rank.serve(pool, gang, job, rank=0, distributed=False)


def start(pool: Any, gang: str, job: Job, shape: Shape) -> tuple[Any, Any]:
    """Start the actor.

    Returns:
        Its handle, and a reference that resolves when the gang was closed and fails when its process died.
    """
    resources = dict(shape.per_worker)
    actor = Solo.options(  # type: ignore[attr-defined]
        num_cpus=resources.pop("CPU", 0),
        num_gpus=resources.pop("GPU", 0),
        memory=int(resources.pop("memory", 0)) or None,
        resources=resources or None,
    ).remote()
    return actor, actor.serve.remote(pool, gang, job)
