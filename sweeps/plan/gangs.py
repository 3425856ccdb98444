"""Count the gangs that a sweep will start, by a simulation of the pool's allocation."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sweeps.core.resources import Shape, at_once, fits
from sweeps.execution import allocation
from sweeps.execution.allocation import Evict, GangState, Phase, Request, Reuse, Start
from sweeps.plan.cells import ShapeCount, fix_cell, visiting_order
from sweeps.space import Space
from sweeps.space.enumeration import shapes_of

# Simulate at most this many trials times concurrent trials.
SIMULATED = 100_000


@dataclass(frozen=True)
class GangCount:
    """Number of gangs that a sweep starts.

    Attributes:
        started: The number; None if unknown.
        bound: True if this number is an upper bound.
        all_stay: True if idle gangs of all shapes fit on the machine. The pool then closes no gang to start one of another shape.
    """

    started: int | None
    bound: bool
    all_stay: bool


def count_gangs(
    space: Space,
    shapes: Sequence[ShapeCount],
    lengths: Sequence[int],
    cluster: Mapping[str, float],
    limit: int,
    room: Mapping[str, float] | None = None,
) -> GangCount:
    """Count the gangs that a sweep starts if no worker dies.

    Args:
        space: The search space.
        shapes: Number of trials of each shape.
        lengths: Number of steps of the first trials, which decides in which order trials end. Later trials reuse the list.
        cluster: All resources of the cluster.
        limit: Number of concurrent trials.
        room: Resources that all gangs together may hold, including idle gangs. None if they may hold no more than `cluster`.
    """
    wanted = [(e.shape, min(limit, e.most, max(1, at_once(e.shape, cluster)))) for e in shapes if e.most]
    all_shapes: dict[str, float] = {}
    for shape, number in wanted:
        for name, amount in shape.total.items():
            all_shapes[name] = all_shapes.get(name, 0.0) + amount * number
    if len(wanted) == 1 or fits(all_shapes, room or cluster):
        return GangCount(sum(number for _, number in wanted), True, True)
    trials = space.limits.max_trials
    if space.repeats.count > 1 or any(e.least != e.most for e in shapes) or trials * limit > SIMULATED:
        return GangCount(None, False, False)
    undecided = {dim.name for dim in space.dimensions if not dim.is_grid}
    of_cell = [shapes_of(fix_cell(space.sections.get("scaling", {}), cell, undecided), space.trainer.backend)[0] for cell in space.cells]
    order = [of_cell[i] for i in itertools.islice(itertools.chain.from_iterable(visiting_order(space.cells)), trials)]
    return GangCount(simulate(order, lengths, cluster, limit, room), False, False)


def simulate(
    order: Sequence[Shape], lengths: Sequence[int], cluster: Mapping[str, float], limit: int, room: Mapping[str, float] | None = None
) -> int:
    """Return how many gangs the pool starts if each trial starts as soon as another ends.

    Args:
        order: Shapes of the trials, in their order of start.
        lengths: Duration of the first trials. Later trials reuse the list from its start.
        cluster: All resources of the cluster.
        limit: Number of concurrent trials.
        room: Resources that all gangs together may hold, including idle gangs. None if they may hold no more than `cluster`.
    """
    gangs: dict[str, GangState] = {}
    queue: list[Request] = []
    running: list[tuple[float, int, str]] = []  # (time of the end, trial, gang)
    now, begun, started = 0.0, 0, 0
    while begun < len(order) or queue or running:
        while begun < len(order) and len(queue) + len(running) < limit:
            queue.append(Request(begun, order[begun].total, order[begun]))
            begun += 1
        match allocation.decide(cluster, list(gangs.values()), (), queue, room):
            case Reuse(_, name):
                pass
            case Start():
                started += 1
                name = f"gang-{started}"
            case Evict(name):
                del gangs[name]
                continue
            case _:
                now, _, name = heapq.heappop(running)
                gangs[name] = GangState(name, gangs[name].shape, Phase.IDLE, begun)
                continue
        number = queue.pop(0).id
        gangs[name] = GangState(name, order[number], Phase.BUSY, begun)
        heapq.heappush(running, (now + lengths[number % len(lengths)], number, name))
    return started
