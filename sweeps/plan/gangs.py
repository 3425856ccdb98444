"""Count the gangs that a sweep will start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sweeps.core.resources import at_once, fits
from sweeps.plan.cells import ShapeCount


def count_gangs(shapes: Sequence[ShapeCount], cluster: Mapping[str, float], limit: int, room: Mapping[str, float]) -> int | None:
    """Return the largest number of gangs that a sweep starts if no worker dies.

    Args:
        shapes: Number of trials of each shape.
        cluster: All resources of the cluster.
        limit: Number of concurrent trials.
        room: Resources that all gangs together may hold, including idle gangs.

    Returns:
        The number. None if idle gangs of all shapes do not fit at once: the pool then closes gangs and starts them again.
    """
    wanted = [(e.shape, min(limit, e.most, max(1, at_once(e.shape, cluster)))) for e in shapes if e.most]
    needed: dict[str, float] = {}
    for shape, number in wanted:
        for name, amount in shape.total.items():
            needed[name] = needed.get(name, 0.0) + amount * number
    return sum(number for _, number in wanted) if len(wanted) == 1 or fits(needed, room) else None
