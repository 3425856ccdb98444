"""Decide which workers form the next gang, which workers start, and which close: pure functions of a small state."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sweeps.core.resources import EPSILON, Shape, fits, minus

Resources = Mapping[str, float]


class Phase(enum.Enum):
    """State of a worker. A worker holds its resources in every phase. A worker that starts for a trial is BUSY."""

    IDLE = "IDLE"
    BUSY = "BUSY"
    CLOSING = "CLOSING"


@dataclass(frozen=True)
class WorkerState:
    """What the decision needs to know of a worker.

    Attributes:
        id: Id of the worker.
        node: Id of the node that it runs on.
        resources: Name and amount of each resource that it holds.
        phase: State of the worker.
        used: Number that grows with each use; the smallest number is the least recently used worker.
        keys: Keys of the prepared data that it caches.
        gang: Id of the gang that it belongs to; None if it belongs to none.
        rank: Its rank in that gang.
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
class Request:
    """A trial that waits for workers, or a fit that waits for resources.

    Attributes:
        id: Number of the request.
        need: Resources of all workers together, or of the fit.
        shape: Shape of the trial; None for a fit.
        key: Key of the trial's prepared data; workers that cache it are preferred.
        tasks: Whether the fit runs Ray tasks. Ray finds no CPU for a task that an idle worker holds.
        again: Whether the trial was started before. It comes before trials that have not started.
    """

    id: int
    need: Resources
    shape: Shape | None = None
    key: str | None = None
    tasks: bool = True
    again: bool = False


@dataclass(frozen=True)
class Place:
    """Form a gang of idle workers and new workers.

    Attributes:
        request: Request of the trial.
        workers: Ids of idle workers.
        start: Node of each worker to start.
    """

    request: Request
    workers: tuple[str, ...]
    start: tuple[str, ...] = ()


@dataclass(frozen=True)
class Grant:
    """Let a fit have its resources on a node."""

    request: Request
    node: str


@dataclass(frozen=True)
class Close:
    """Close an idle worker to make room."""

    worker: str


@dataclass(frozen=True)
class Wait:
    """Nothing can happen until something ends, or no request waits.

    Attributes:
        too_large: Requests that do not fit on the whole cluster. They wait for nodes that join, and nobody waits for them.
    """

    too_large: tuple[Request, ...] = ()


Action = Place | Grant | Close | Wait


@dataclass(frozen=True)
class Cluster:
    """State of the cluster at a moment.

    Attributes:
        nodes: Resources of each node, by node id.
        workers: All workers that hold resources.
        grants: Node and resources of each running fit.
        parked: CPUs that idle workers of the only node may hold beyond those of the machine; None if Ray counts the machine's CPUs only.
            With parked CPUs, idle workers lend their CPUs: only busy workers and fits count against the CPUs of the node.
    """

    nodes: Mapping[str, Resources]
    workers: Sequence[WorkerState]
    grants: Sequence[tuple[str, Resources]] = ()
    parked: int | None = None


def queue_position(queue: Sequence[Request], request: Request) -> int:
    """Return where a request enters the queue: at its end, or before all trials that have not started yet."""
    return next((i for i, other in enumerate(queue) if not other.again), len(queue)) if request.again else len(queue)


def decide(cluster: Cluster, queue: Sequence[Request], reuse_larger: bool = False) -> Action:
    """Return the next action. Carry it out, then ask again.

    The queue is served in order, so no shape starves: nobody overtakes a request that fits on the cluster.

    A gang gets workers of one node if any node has enough idle workers and free resources now; only otherwise it spreads. Among such
    nodes the best one needs the fewest new workers. Then come workers that cache the trial's data, a gang that exists already, and the
    node that is left with the least room, so that room for large gangs stays in one piece.

    Args:
        cluster: The state of the cluster.
        queue: All requests in their order.
        reuse_larger: Give a worker with a larger fraction of a GPU to a trial rather than close it.
    """
    too_large = tuple(request for request in queue if not _fits_when_empty(request, cluster))
    request = next((request for request in queue if request not in too_large), None)
    if request is None:
        return Wait(too_large)
    if placed := _place(request, cluster) or (reuse_larger and _place(request, cluster, larger=True)):
        return placed
    without_closing = [worker for worker in cluster.workers if worker.phase is not Phase.CLOSING]
    later = replace(cluster, workers=without_closing)
    if _place(request, later):
        return Wait(too_large)  # What closes now is enough.
    need = dict(request.shape.per_worker) if request.shape else request.need
    closable = [worker for worker in without_closing if worker.phase is Phase.IDLE and not (request.shape and _serves(worker, need))]
    if at_last := _place(request, replace(cluster, workers=[w for w in without_closing if w not in closable])):
        nodes = at_last.start if isinstance(at_last, Place) else (at_last.node,)
        closable = [worker for worker in closable if worker.node in nodes]
        return Close(min(closable, key=lambda w: (not _holds_what_is_short(w, need, later), w.used, w.id)).id)
    return Wait(too_large)


def _fits_when_empty(request: Request, cluster: Cluster) -> bool:
    return _place(request, Cluster(cluster.nodes, ())) is not None


def _holds_what_is_short(worker: WorkerState, need: Resources, cluster: Cluster) -> bool:
    free = _free_to_hold(cluster, worker.node)
    return any(amount > free.get(name, 0.0) + EPSILON and dict(worker.resources).get(name) for name, amount in need.items())


@dataclass(frozen=True)
class _Offer:
    """What one node has for a request.

    Attributes:
        node: Id of the node.
        idle: Idle workers that can serve, in the order of preference.
        new: Number of workers that can start.
        most: Number of workers that may be busy in addition to those that are.
    """

    node: str
    idle: tuple[WorkerState, ...]
    new: int
    most: int

    @property
    def size(self) -> int:
        """Number of ranks that the node can take."""
        return min(self.most, len(self.idle) + self.new)


def _count(need: Resources, have: Resources, most: int = 1_000_000) -> int:
    """Return how many workers with these resources fit into `have`."""
    counts = [int((have.get(name, 0.0) + EPSILON) // amount) for name, amount in need.items() if amount > 0]
    part = need.get("GPU", 0.0)
    if 0 < part < 1:  # The fraction of one worker must be on one GPU.
        counts.append(int(have.get("GPU", 0.0) + EPSILON) * int((1 + EPSILON) // part) + int(have.get("GPU", 0.0) % 1 // part))
    return max(0, min([most, *counts]))


def _held(cluster: Cluster, node: str, phases: Sequence[Phase]) -> list[Resources]:
    return [dict(worker.resources) for worker in cluster.workers if worker.node == node and worker.phase in phases]


def _free_for_work(cluster: Cluster, node: str) -> dict[str, float]:
    """Return what neither busy workers nor fits of a node use. Idle workers hold some of it."""
    grants = [resources for where, resources in cluster.grants if where == node]
    return minus(cluster.nodes[node], [*_held(cluster, node, [Phase.BUSY]), *grants])


def _free_to_hold(cluster: Cluster, node: str) -> dict[str, float]:
    """Return what no worker, and no fit whose tasks Ray must place, holds on a node."""
    room = dict(cluster.nodes[node])
    if cluster.parked is not None:
        room["CPU"] = room.get("CPU", 0.0) + cluster.parked
    grants = [resources for where, resources in cluster.grants if where == node] if cluster.parked is None else []
    return minus(room, [*_held(cluster, node, list(Phase)), *grants])


def _serves(worker: WorkerState, need: Resources, larger: bool = False) -> bool:
    """Return whether a worker can run a rank that needs these resources; with `larger`, with a larger fraction of a GPU as well."""
    has = dict(worker.resources)
    if larger and 0 < need.get("GPU", 0.0) <= has.get("GPU", 0.0) <= 1:
        return {**has, "GPU": 0.0} == {**need, "GPU": 0.0}
    return has == dict(need)


def _place(request: Request, cluster: Cluster, larger: bool = False) -> Place | Grant | None:
    """Return how the request can be served in this state; None if it cannot."""
    if request.shape is None:
        return _grant(request, cluster)
    size = request.shape.workers
    offers = _offers(request, request.shape, cluster, larger)

    def cost(offer: _Offer) -> tuple[int, int, bool, int, int]:
        taken = offer.idle[:size]
        exists = len(taken) == size and taken[0].gang is not None and len({worker.gang for worker in taken}) == 1
        cached = sum(request.key in worker.keys for worker in taken)
        return (size - len(taken), -cached, not exists, len(offer.idle) + offer.new, min((w.used for w in taken), default=0))

    if sum(offer.size for offer in offers) < size:
        return None
    whole = [offer for offer in offers if offer.size >= size]
    chosen = [min(whole, key=cost)] if whole else sorted(offers, key=lambda offer: -offer.size)
    workers: list[str] = []
    start: list[str] = []
    for offer in chosen:
        count = min(offer.size, size - len(workers) - len(start))
        taken = offer.idle[:count]
        workers += [worker.id for worker in taken]
        start += [offer.node] * (count - len(taken))
    return Place(request, tuple(workers), tuple(start))


def _offers(request: Request, shape: Shape, cluster: Cluster, larger: bool) -> list[_Offer]:
    need, size = dict(shape.per_worker), shape.workers
    idle_members = Counter(worker.gang for worker in cluster.workers if worker.phase is Phase.IDLE)

    def preference(worker: WorkerState) -> tuple[bool, bool, int, str, int]:
        is_whole_gang = worker.gang is not None and idle_members[worker.gang] == size
        return (request.key not in worker.keys, not is_whole_gang, worker.used, worker.gang or "", worker.rank)

    offers = []
    for node in cluster.nodes:
        idle = [w for w in cluster.workers if w.node == node and w.phase is Phase.IDLE and _serves(w, need, larger)]
        new = _count(need, _free_to_hold(cluster, node), size)
        offers.append(_Offer(node, tuple(sorted(idle, key=preference)), new, _count(need, _free_for_work(cluster, node), size)))
    return offers


def _grant(request: Request, cluster: Cluster) -> Grant | None:
    borrows = cluster.parked is not None or not request.tasks
    for node in cluster.nodes:
        if fits(request.need, _free_for_work(cluster, node)) and (borrows or fits(request.need, _free_to_hold(cluster, node))):
            return Grant(request, node)
    return None
