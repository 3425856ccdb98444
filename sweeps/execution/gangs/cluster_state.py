"""State of the cluster: nodes, workers, running fits, and the resources that they leave."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from sweeps.core.resources import subtract

Resources = Mapping[str, float]


class Phase(enum.Enum):
    """Phase of a worker. A worker holds its resources in all phases.

    A worker that is starting for a trial is BUSY.
    """

    IDLE = "IDLE"
    BUSY = "BUSY"
    CLOSING = "CLOSING"


@dataclass(frozen=True)
class WorkerState:
    """The facts about a worker on which the functions of this module depend.

    Attributes:
        id: Id of the worker.
        node: Id of the worker's node.
        resources: Name and amount of each resource that the worker holds.
        phase: Phase of the worker.
        used: Number that grows with each use: of two workers, the one with the larger number was
            used more recently.
        keys: Keys of the prepared data that the worker caches.
        gang: Id of the worker's gang; None if it belongs to no gang.
        rank: Rank of the worker in its gang; 0 if it belongs to no gang.
    """

    id: str
    node: str
    resources: tuple[tuple[str, float], ...]
    phase: Phase
    used: int = 0
    keys: frozenset[str] = frozenset()
    gang: str | None = None
    rank: int = 0


@dataclass(frozen=True)
class Cluster:
    """State of the cluster at one moment.

    Attributes:
        nodes: Resources of each node, by node id.
        workers: All workers that hold resources.
        grants: Node id and resources of each running fit.
        parked: Number of additional CPUs that Ray counts for idle workers (see
            `ray_cluster.RayConnection`), so that idle workers need not be closed. Busy workers
            and fits together use at most the CPUs of `nodes`. None if Ray was not started for the
            sweep.
        limit: Largest amount of each limited resource that the sweep may hold on all nodes
            together.
    """

    nodes: Mapping[str, Resources]
    workers: Sequence[WorkerState]
    grants: Sequence[tuple[str, Resources]] = ()
    parked: int | None = None
    limit: Resources = field(default_factory=dict)

    @cached_property
    def node_uses(self) -> Mapping[str, NodeUse]:
        """The use of each node, by node id."""
        uses = {node: NodeUse() for node in self.nodes}
        for worker in self.workers:
            use = uses.setdefault(worker.node, NodeUse())
            _add(worker.resources, use.held)
            if worker.phase is Phase.BUSY:
                _add(worker.resources, use.busy)
            elif worker.phase is Phase.IDLE:
                use.idle.append(worker)
        for node, resources in self.grants:
            use = uses.setdefault(node, NodeUse())
            _add(resources.items(), use.busy)
            if self.parked is None:
                _add(resources.items(), use.held)
        return uses

    def unused_limit(self, busy: bool) -> dict[str, float]:
        """Return the part of the sweep's limit that workers and fits do not use.

        If `busy` is True, only busy workers count.
        """
        if not self.limit:
            return {}
        used = [use.busy if busy else use.held for use in self.node_uses.values()]
        unused = subtract(self.limit, used)
        return {name: unused[name] for name in self.limit}

    def free_for_work(self, node: str) -> dict[str, float]:
        """Return the resources of a node that neither busy workers nor fits use.

        Idle workers may hold some of these resources.
        """
        free = subtract(self.nodes[node], [self.node_uses[node].busy])
        return _capped(free, self.unused_limit(busy=True))

    def free_to_hold(self, node: str) -> dict[str, float]:
        """Return the resources of a node that no worker or fit holds, so a new worker can."""
        counted = dict(self.nodes[node])
        if self.parked is not None:
            counted["CPU"] = counted.get("CPU", 0.0) + self.parked
        free = subtract(counted, [self.node_uses[node].held])
        return _capped(free, self.unused_limit(busy=False))


@dataclass(frozen=True)
class NodeUse:
    """The use of a node.

    Attributes:
        idle: The idle workers.
        held: Resources that the workers and the fits hold. The fits are left out if
            `Cluster.parked` is not None, because they then run on a spare CPU of Ray.
        busy: Resources that the busy workers and the fits use.
    """

    idle: list[WorkerState] = field(default_factory=list)
    held: dict[str, float] = field(default_factory=dict)
    busy: dict[str, float] = field(default_factory=dict)


def _add(resources: Iterable[tuple[str, float]], total: dict[str, float]) -> None:
    for name, amount in resources:
        total[name] = total.get(name, 0.0) + amount


def _capped(free: dict[str, float], unused: Resources) -> dict[str, float]:
    """Return free resources, but at most the unused part of the sweep's limit."""
    return {name: min(amount, unused.get(name, amount)) for name, amount in free.items()}
