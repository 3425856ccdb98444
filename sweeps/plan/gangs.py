"""How many gangs a sweep will start: the pool's own account, run on a clock that is not there."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sweeps.core.resources import Shape, at_once, fits
from sweeps.execution import allocation
from sweeps.execution.allocation import Evict, GangState, Phase, Request, Reuse, Start
from sweeps.plan.cells import Expected, pinned, rounds
from sweeps.space import Space
from sweeps.space.enumeration import shapes_of

# Trials times gangs side by side, up to which the account is run.
SIMULATED = 100_000


@dataclass(frozen=True)
class Gangs:
    """Gangs that will be started.

    Attributes:
        started: how many; None where it is not known beforehand.
        bound: whether it is certain that there will be no more.
        beside: whether all of them stay, so that none is closed to make room for one of another shape.
    """

    started: int | None
    bound: bool
    beside: bool


def gangs(
    space: Space,
    shapes: Sequence[Expected],
    lengths: Sequence[int],
    cluster: Mapping[str, float],
    limit: int,
    room: Mapping[str, float] | None = None,
) -> Gangs:
    """Gangs that a sweep starts, if no worker dies.

    Args:
        space: what is searched.
        shapes: those of its trials.
        lengths: steps that the first trials take, for the order in which they end; beyond the last from the first again.
        cluster: all resources there are.
        limit: trials that run side by side.
        room: see `sweeps.execution.allocation.decide`.
    """
    wanted = [(e.shape, min(limit, e.most, max(1, at_once(e.shape, cluster)))) for e in shapes if e.most]
    together: dict[str, float] = {}
    for shape, number in wanted:
        for name, amount in shape.total.items():
            together[name] = together.get(name, 0.0) + amount * number
    if len(wanted) == 1 or fits(together, room or cluster):
        return Gangs(sum(number for _, number in wanted), True, True)
    trials = space.limits.max_trials
    if space.repeats.count > 1 or any(e.least != e.most for e in shapes) or trials * limit > SIMULATED:
        return Gangs(None, False, False)
    open_ = {dim.name for dim in space.dimensions if not dim.is_grid}
    of_cell = [shapes_of(pinned(space.sections.get("scaling", {}), cell, open_), space.trainer.backend)[0] for cell in space.cells]
    order = [of_cell[i] for i in itertools.islice(itertools.chain.from_iterable(rounds(space.cells)), trials)]
    return Gangs(simulate(order, lengths, cluster, limit, room), False, False)


def simulate(
    order: Sequence[Shape], lengths: Sequence[int], cluster: Mapping[str, float], limit: int, room: Mapping[str, float] | None = None
) -> int:
    """How many gangs the pool's account starts for trials of these shapes, one begun as soon as another ends.

    Args:
        order: the shapes of the trials, as they begin.
        lengths: how long each takes; beyond the last from the first again.
        cluster: all resources there are.
        limit: trials that run side by side.
        room: see `sweeps.execution.allocation.decide`.
    """
    gangs: dict[str, GangState] = {}
    line: list[Request] = []
    running: list[tuple[float, int, str]] = []  # when it ends, the trial, its gang
    now, begun, started = 0.0, 0, 0
    while begun < len(order) or line or running:
        while begun < len(order) and len(line) + len(running) < limit:
            line.append(Request(begun, order[begun].total, order[begun]))
            begun += 1
        match allocation.decide(cluster, list(gangs.values()), (), line, room):
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
        number = line.pop(0).id
        gangs[name] = GangState(name, order[number], Phase.BUSY, begun)
        heapq.heappush(running, (now + lengths[number % len(lengths)], number, name))
    return started
