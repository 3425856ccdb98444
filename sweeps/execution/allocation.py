"""The one account of the cluster's resources, and what the pool does next: pure functions of a small state."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sweeps.core.resources import EPSILON, Shape, fits, minus


class Phase(enum.Enum):
    """Where a gang stands; one that starts is BUSY. In every phase it holds its resources."""

    IDLE = "IDLE"
    BUSY = "BUSY"
    CLOSING = "CLOSING"


@dataclass(frozen=True)
class GangState:
    """What the decision needs of a gang.

    Attributes:
        used: grows with every lease: the smallest is the least recently used.
        keys: of the data it keeps caches of.
    """

    id: str
    shape: Shape
    phase: Phase
    used: int = 0
    keys: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Request:
    """Someone in line: a trial that needs a gang of a shape, or a fit that needs bare resources (`shape` None).

    Attributes:
        key: of the trial's data; a gang that keeps it is warmer than another.
        tasks: of a fit, whether it runs tasks, for which Ray finds no CPU that a gang holds, be it idle.
        again: of a trial that is tried again: it comes before trials that have not begun.
    """

    id: int
    need: Mapping[str, float]
    shape: Shape | None = None
    key: str | None = None
    tasks: bool = True
    again: bool = False


@dataclass(frozen=True)
class Reuse:
    """Hand the idle gang to the request."""

    request: Request
    gang: str


@dataclass(frozen=True)
class Start:
    """Start a gang for the request, or grant a fit its resources."""

    request: Request


@dataclass(frozen=True)
class Evict:
    """Close an idle gang to make room."""

    gang: str


@dataclass(frozen=True)
class Refuse:
    """The request is larger than the whole cluster."""

    request: Request


@dataclass(frozen=True)
class Wait:
    """Nothing can be done until something ends, or nobody is in line."""


Action = Reuse | Start | Evict | Refuse | Wait


def position(line: Sequence[Request], request: Request) -> int:
    """Return where in the line a request begins to wait: at its end, or before all who are not there again."""
    return next((i for i, waits in enumerate(line) if not waits.again), len(line)) if request.again else len(line)


def decide(
    cluster: Mapping[str, float],
    gangs: Sequence[GangState],
    granted: Sequence[Mapping[str, float]],
    line: Sequence[Request],
    room: Mapping[str, float] | None = None,
) -> Action:
    """The next thing to do. Ask again after doing it.

    The line is served strictly in order, so that no shape starves: whoever is behind a request that waits, waits too.

    Args:
        cluster: all resources there are.
        gangs: every gang that holds resources.
        granted: what running fits hold.
        line: the requests, first come first.
        room: what all gangs may hold together, where Ray counts more CPUs than there are and one more for the tasks of a fit. Then an idle
            gang, which computes nothing, lends its CPUs to a fit or to another gang, and is closed only when there is no room any more.
            None where Ray counts what there is: then gangs, and fits that run tasks, hold no more than that together.
    """
    if not line:
        return Wait()
    head = line[0]
    if not fits(head.need, cluster):
        return Refuse(head)
    idle = sorted((g for g in gangs if g.phase is Phase.IDLE), key=lambda g: g.used)
    left = minus(cluster, [*(g.shape.total for g in gangs if g.phase is Phase.BUSY), *granted])
    same = [g for g in idle if g.shape == head.shape]
    lent = room is not None or (head.shape is None and not head.tasks)  # what idle gangs hold
    if (lent or same) and not fits(head.need, left):
        return Wait()
    if lent and head.shape is None:
        return Start(head)
    if same:  # the one that has this data, else the one used last: it has the warmest caches
        return Reuse(head, max(same, key=lambda g: (head.key in g.keys, g.used)).id)
    room, tasks = (cluster, granted) if room is None else (room, [])
    if fits(head.need, minus(room, [*(g.shape.total for g in gangs), *tasks])):
        return Start(head)
    coming = minus(room, [*(g.shape.total for g in gangs if g.phase is not Phase.CLOSING), *tasks])
    short = {name for name, amount in head.need.items() if amount > coming.get(name, 0.0) + EPSILON}
    helping = [g for g in idle if any(g.shape.total.get(name) for name in short)]
    return Evict(helping[0].id) if helping else Wait()
