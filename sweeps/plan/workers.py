"""Count the worker processes that a sweep will start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sweeps.core.resources import Shape, count_fitting_trials, fits_into
from sweeps.plan.cells import ShapeCount


def count_workers(
    shapes: Sequence[ShapeCount],
    cluster: Mapping[str, float],
    concurrency: int,
    capacity: Mapping[str, float],
) -> int | None:
    """Return the largest number of workers that a sweep starts, assuming that no worker dies.

    Two trials can use the same workers if both need the same resources for each worker, even if
    they need different numbers of workers.

    Args:
        shapes: Number of trials of each shape.
        cluster: Total resources of the cluster, by name.
        concurrency: Largest number of concurrent trials.
        capacity: Resources that all workers together may hold, by name. This may be more than
            `cluster`, because idle workers may hold more CPUs than the cluster has.

    Returns:
        The number of workers. None if workers with different resources do not all fit at the same
        time. In this case, the pool closes some workers and later starts new ones in their place.
    """
    wanted: dict[tuple[tuple[str, float], ...], int] = {}
    for count in shapes:
        if count.most:
            alone = count_fitting_trials(Shape(1, count.shape.per_worker), cluster)
            ranks = min(concurrency, count.most) * count.shape.sizes[-1]
            wanted[count.shape.per_worker] = max(
                wanted.get(count.shape.per_worker, 0), min(ranks, alone)
            )
    needed: dict[str, float] = {}
    for per_worker, number in wanted.items():
        for name, amount in per_worker:
            needed[name] = needed.get(name, 0.0) + amount * number
    return sum(wanted.values()) if len(wanted) == 1 or fits_into(needed, capacity) else None
