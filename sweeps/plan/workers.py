"""Count the worker processes that a sweep will start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sweeps.core.resources import Shape, at_once, fits
from sweeps.plan.cells import ShapeCount


def count_workers(shapes: Sequence[ShapeCount], cluster: Mapping[str, float], limit: int, room: Mapping[str, float]) -> int | None:
    """Return the largest number of workers that a sweep starts if none dies. A worker serves trials of any number of workers.

    Args:
        shapes: Number of trials of each shape.
        cluster: All resources of the cluster.
        limit: Number of concurrent trials.
        room: Resources that all workers together may hold, including idle ones.

    Returns:
        The number. None if workers of different resources do not fit at once: the pool then closes some and starts them again.
    """
    wanted: dict[tuple[tuple[str, float], ...], int] = {}
    for count in shapes:
        if count.most:
            alone = at_once(Shape(1, count.shape.per_worker), cluster)
            ranks = min(limit, count.most) * count.shape.workers
            wanted[count.shape.per_worker] = max(wanted.get(count.shape.per_worker, 0), min(ranks, alone))
    needed: dict[str, float] = {}
    for per_worker, number in wanted.items():
        for name, amount in per_worker:
            needed[name] = needed.get(name, 0.0) + amount * number
    return sum(wanted.values()) if len(wanted) == 1 or fits(needed, room) else None
