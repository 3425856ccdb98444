"""Decide which workers form the next gang, which workers start, and which workers close.

The functions are pure.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from sweeps.core.resources import EPSILON, Shape, fits_into, subtract

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
class Request:
    """A trial that waits for workers, or a fit of a preprocessing chain that waits for resources.

    Attributes:
        id: Number of the request.
        need: Resources that the fit needs, or that all workers of the trial need together.
        shape: Number of workers of the trial and resources of each worker; None for a fit.
        key: Key of the trial's prepared data. Workers that cache this data are preferred. With
            None, no worker is preferred.
        tasks: Whether the fit runs Ray tasks. Ray gives a task only CPUs that no worker holds, not
            even an idle worker.
        is_retry: Whether an earlier attempt of the trial has failed. Such trials are served before
            other trials.
        overtaken: Whether a later request was served before this one. A request is overtaken at
            most once.
    """

    id: int
    need: Resources
    shape: Shape | None = None
    key: str | None = None
    tasks: bool = True
    is_retry: bool = False
    overtaken: bool = False

    @cached_property
    def kind(self) -> tuple[object, ...]:
        """The needs of the request. Requests of one kind can be served alike."""
        return self.shape, tuple(sorted(self.need.items())), self.tasks


@dataclass(frozen=True)
class Place:
    """Action: form the gang of a trial from idle workers and new workers.

    Attributes:
        request: Request of the trial.
        workers: Ids of the idle workers.
        start: One entry for each new worker: the id of the node on which this worker starts.
    """

    request: Request
    workers: tuple[str, ...]
    start: tuple[str, ...] = ()


@dataclass(frozen=True)
class Grant:
    """Action: let the fit of a preprocessing chain use resources of a node.

    Attributes:
        request: Request of the fit.
        node: Id of the node.
    """

    request: Request
    node: str


@dataclass(frozen=True)
class CloseWorker:
    """Action: close an idle worker to free its resources.

    Attributes:
        worker: Id of the worker.
    """

    worker: str


@dataclass(frozen=True)
class KeepWaiting:
    """Action: wait, because no request can be served now.

    Decide again when a trial, a fit or a worker ends, or when a new request comes.

    Attributes:
        too_large: Requests that would not fit even on the empty cluster. They wait for new nodes,
            and do not delay other requests.
    """

    too_large: tuple[Request, ...] = ()


Action = Place | Grant | CloseWorker | KeepWaiting


@dataclass(frozen=True)
class Cluster:
    """State of the cluster at one moment.

    Attributes:
        nodes: Resources of each node, by node id.
        workers: All workers that hold resources.
        grants: Node id and resources of each running fit.
        parked: Number of additional CPUs that Ray counts for idle workers (see
            `cluster.RayConnection`), so that idle workers need not be closed. Busy workers and fits
            together use at most the CPUs of `nodes`. None if Ray was not started for the sweep.
        limit: Largest amount of each limited resource that the sweep may hold on all nodes
            together.
    """

    nodes: Mapping[str, Resources]
    workers: Sequence[WorkerState]
    grants: Sequence[tuple[str, Resources]] = ()
    parked: int | None = None
    limit: Resources = field(default_factory=dict)

    @cached_property
    def on(self) -> Mapping[str, NodeUse]:
        """The use of each node, by node id."""
        found = {node: NodeUse([], {}, {}) for node in self.nodes}
        for worker in self.workers:
            use = found.setdefault(worker.node, NodeUse([], {}, {}))
            _add(worker.resources, use.held)
            if worker.phase is Phase.BUSY:
                _add(worker.resources, use.busy)
            elif worker.phase is Phase.IDLE:
                use.idle.append(worker)
        for node, resources in self.grants:
            use = found.setdefault(node, NodeUse([], {}, {}))
            _add(resources.items(), use.busy)
            if self.parked is None:
                _add(resources.items(), use.held)
        return found


@dataclass(frozen=True)
class NodeUse:
    """The use of a node.

    Attributes:
        idle: The idle workers.
        held: Resources that the workers and the fits hold. The fits are left out if
            `Cluster.parked` is not None, because they then run on a spare CPU of Ray.
        busy: Resources that the busy workers and the fits use.
    """

    idle: list[WorkerState]
    held: dict[str, float]
    busy: dict[str, float]


def _add(resources: Iterable[tuple[str, float]], total: dict[str, float]) -> None:
    for name, amount in resources:
        total[name] = total.get(name, 0.0) + amount


def queue_position(queue: Sequence[Request], request: Request) -> int:
    """Return the index at which a request enters the queue.

    A retry enters before the first request that is no retry.
    """
    if not request.is_retry:
        return len(queue)
    return next((i for i, other in enumerate(queue) if not other.is_retry), len(queue))


def served(queue: Sequence[Request], request: Request) -> list[Request]:
    """Return the queue after a request was served.

    The requests before this one are marked as overtaken.
    """
    position = queue.index(request)
    return [replace(other, overtaken=True) for other in queue[:position]] + list(
        queue[position + 1 :]
    )


def decide(cluster: Cluster, queue: Sequence[Request]) -> Action:
    """Return the next action. The caller carries the action out and then calls this function again.

    The queue is served in order, with one exception: while the first request waits for running
    trials, a trial that fits now is served. Each request is overtaken at most once, so every
    request is served eventually. Retries are not overtaken.

    If any node has enough idle workers and free resources now, the whole gang is on one node.
    Otherwise the gang spreads over several nodes. Among the nodes with enough room, the node is
    chosen by these criteria, the most important first:

    1. the node on which the fewest new workers must start;
    2. the node on which the most workers cache the trial's data;
    3. a node whose idle workers already form a whole gang;
    4. the node with the least room, so that large gangs find room on other nodes.

    An elastic trial gets all workers that are free, up to its upper bound, except workers that the
    other requests in the queue need.

    Args:
        cluster: State of the cluster.
        queue: All requests, in the order of the queue.
    """
    fits = {request.kind: _fits_when_empty(request, cluster) for request in _one_of_each(queue)}
    too_large = tuple(request for request in queue if not fits[request.kind])
    servable = [request for request in queue if fits[request.kind]]
    if not servable:
        return KeepWaiting(too_large)
    request, *others = servable
    if placed := _start(request, cluster, others):
        return placed
    if overtaking := _overtaking(request, others, cluster):
        return overtaking
    without_closing = [worker for worker in cluster.workers if worker.phase is not Phase.CLOSING]
    later = replace(cluster, workers=without_closing)
    if len(without_closing) < len(cluster.workers) and _place(request, later):
        return KeepWaiting(too_large)  # The workers that are closing free enough resources.
    closable = [
        worker
        for worker in without_closing
        if worker.phase is Phase.IDLE
        and (request.shape is None or worker.resources != request.shape.per_worker)
    ]
    rest = [worker for worker in without_closing if worker not in closable]
    if closable and (at_last := _place(request, replace(cluster, workers=rest))):
        nodes = at_last.start if isinstance(at_last, Place) else (at_last.node,)
        # Under a limit, a worker on another node may have to be closed.
        best = [worker for worker in closable if worker.node in nodes] or closable
        need = dict(request.shape.per_worker) if request.shape else request.need
        return CloseWorker(
            min(best, key=lambda w: (not _holds_what_is_short(w, need, later), w.used, w.id)).id
        )
    return KeepWaiting(too_large)


def growth(
    cluster: Cluster,
    queue: Sequence[Request],
    shape: Shape,
    size: int,
    nodes: Collection[str],
    trials_pending: bool,
) -> Place | None:
    """Return the workers by which the gang of an elastic trial can grow.

    Return None if the gang must not or cannot grow.

    A gang does not grow while another trial may need the resources.

    Args:
        cluster: State of the cluster. The workers of the gang are busy.
        queue: All requests.
        shape: Shape of the trial.
        size: Current number of workers of the gang.
        nodes: Ids of the nodes on which the gang has workers. They are preferred.
        trials_pending: True if the sweep will start more trials, or if a started trial has not
            requested workers yet. The gang then does not grow.
    """
    if queue or trials_pending:
        return None
    return _place_most(Request(-1, {}, shape), cluster, shape.sizes[-1] - size, near=nodes)


def largest_gang(shape: Shape, cluster: Cluster) -> int:
    """Return how many workers of an elastic shape fit on the empty cluster.

    The result is within the bounds of the shape.
    """
    placed = _place_most(
        Request(-1, {}, shape), replace(cluster, workers=(), grants=()), shape.sizes[-1]
    )
    return max(shape.workers, len(placed.start) if placed else 0)


def _start(request: Request, cluster: Cluster, others: Sequence[Request]) -> Place | Grant | None:
    """Return the action that serves a request now; None if the request cannot be served.

    An elastic trial gets all workers that it may get.

    Args:
        request: The trial or the fit.
        cluster: State of the cluster.
        others: The other requests in the queue. An elastic trial leaves enough resources to serve
            these requests now.
    """
    placed = _place(request, cluster)
    if placed is None or request.shape is None or request.shape.most is None:
        return placed
    after = _carried_out(placed, cluster)
    for other in others:
        if (action := _place(other, after)) is None:
            break
        after = _carried_out(action, after)
    more = _place_most(request, after, request.shape.most - request.shape.workers)
    size = request.shape.workers + (len(more.workers) + len(more.start) if more else 0)
    return _place_most(request, cluster, size)


def _place_most(
    request: Request, cluster: Cluster, most: int, near: Collection[str] = ()
) -> Place | None:
    """Return the action that forms a request's largest possible gang of at most `most` workers.

    Return None if no worker can be placed.
    """
    for size in range(most, 0, -1):
        if isinstance(placed := _place(request, cluster, size, near), Place):
            return placed
    return None


def _carried_out(action: Place | Grant, cluster: Cluster) -> Cluster:
    """Return the state of the cluster after an action has been carried out."""
    if isinstance(action, Grant):
        return replace(cluster, grants=[*cluster.grants, (action.node, action.request.need)])
    assert action.request.shape is not None
    per_worker = action.request.shape.per_worker
    new = [
        WorkerState(f"new-{action.request.id}-{i}", node, per_worker, Phase.BUSY)
        for i, node in enumerate(action.start)
    ]
    old = [
        replace(worker, phase=Phase.BUSY) if worker.id in action.workers else worker
        for worker in cluster.workers
    ]
    return replace(cluster, workers=[*old, *new])


def _overtaking(
    request: Request, others: Sequence[Request], cluster: Cluster
) -> Place | Grant | None:
    """Return the action that serves a trial before the first request, which must wait."""
    if request.overtaken or request.is_retry:
        return None
    for other in _one_of_each(others):
        # A trial of the same shape does not fit either.
        if other.shape not in (None, request.shape) and (placed := _place(other, cluster)):
            return placed
    return None


def _one_of_each(queue: Sequence[Request]) -> list[Request]:
    """Return the first request of each kind."""
    return list({request.kind: request for request in reversed(queue)}.values())[::-1]


def _fits_when_empty(request: Request, cluster: Cluster) -> bool:
    empty = Cluster(cluster.nodes, (), limit=cluster.limit)
    if request.shape is None:
        return _grant(request, empty) is not None
    need, missing = dict(request.shape.per_worker), request.shape.workers
    if _count_within_limit(need, cluster.limit, missing) < missing:
        return False
    for node in cluster.nodes:
        missing -= _count(need, _free_to_hold(empty, node), missing)
        if missing <= 0:
            return True
    return False


def _holds_what_is_short(worker: WorkerState, need: Resources, cluster: Cluster) -> bool:
    free = _free_to_hold(cluster, worker.node)
    return any(
        amount > free.get(name, 0.0) + EPSILON and dict(worker.resources).get(name)
        for name, amount in need.items()
    )


@dataclass(frozen=True)
class _Offer:
    """Workers that one node can provide for a request.

    Attributes:
        node: Id of the node.
        idle: Idle workers that have the right resources, the preferred ones first.
        new: Number of new workers that can start on the node now, according to the resources that
            no worker holds.
        most: Number of workers that may become busy on the node now, according to the resources
            that busy workers and fits leave.
    """

    node: str
    idle: tuple[WorkerState, ...]
    new: int
    most: int

    @property
    def size(self) -> int:
        """Number of idle and new workers together that can become busy on the node now."""
        return min(self.most, len(self.idle) + self.new)


def _count(need: Resources, have: Resources, most: int = 1_000_000) -> int:
    """Return how many workers fit into the resources `have`, but not more than `most`.

    Each worker needs the resources `need`.
    """
    counts = [
        int((have.get(name, 0.0) + EPSILON) // amount)
        for name, amount in need.items()
        if amount > 0
    ]
    part = need.get("GPU", 0.0)
    if 0 < part < 1:  # A worker's fraction of a GPU cannot be split over two GPUs.
        counts.append(
            int(have.get("GPU", 0.0) + EPSILON) * int((1 + EPSILON) // part)
            + int(have.get("GPU", 0.0) % 1 // part)
        )
    return max(0, min([most, *counts]))


def _unused_limit(cluster: Cluster, busy: bool) -> dict[str, float]:
    """Return the part of the sweep's limit that workers and fits do not use.

    If `busy` is True, only busy workers count.
    """
    if not cluster.limit:
        return {}
    used = [use.busy if busy else use.held for use in cluster.on.values()]
    unused = subtract(cluster.limit, used)
    return {name: unused[name] for name in cluster.limit}


def _capped(free: dict[str, float], unused: Resources) -> dict[str, float]:
    if not unused:
        return free
    return {name: min(amount, unused.get(name, amount)) for name, amount in free.items()}


def _free_for_work(cluster: Cluster, node: str) -> dict[str, float]:
    """Return the resources of a node that neither busy workers nor fits use.

    Idle workers may hold some of these resources.
    """
    free = subtract(cluster.nodes[node], [cluster.on[node].busy])
    return _capped(free, _unused_limit(cluster, busy=True))


def _free_to_hold(cluster: Cluster, node: str) -> dict[str, float]:
    """Return the resources of a node that a new worker can hold."""
    room = dict(cluster.nodes[node])
    if cluster.parked is not None:
        room["CPU"] = room.get("CPU", 0.0) + cluster.parked
    free = subtract(room, [cluster.on[node].held])
    return _capped(free, _unused_limit(cluster, busy=False))


def _place(
    request: Request,
    cluster: Cluster,
    size: int | None = None,
    near: Collection[str] = (),
) -> Place | Grant | None:
    """Return the action that serves a request now; None if the request cannot be served.

    A trial gets exactly `size` workers.

    Args:
        request: The trial or the fit.
        cluster: State of the cluster.
        size: Number of workers. None for the smallest number that the shape of the request allows.
        near: Ids of nodes that get workers first. If empty, all workers are placed on one node if
            possible.
    """
    if request.shape is None:
        return _grant(request, cluster)
    size = size or request.shape.workers
    offers = _offers(request, request.shape, cluster)

    def cost(offer: _Offer) -> tuple[int, int, bool, int, int]:
        taken = offer.idle[:size]
        exists = (
            len(taken) == size
            and taken[0].gang is not None
            and len({worker.gang for worker in taken}) == 1
        )
        cached = sum(request.key in worker.keys for worker in taken)
        return (
            size - len(taken),
            -cached,
            not exists,
            len(offer.idle) + offer.new,
            min((w.used for w in taken), default=0),
        )

    need = dict(request.shape.per_worker)
    new = _count_within_limit(need, _unused_limit(cluster, busy=False), size)
    if (
        sum(offer.size for offer in offers) < size
        or _count_within_limit(need, _unused_limit(cluster, busy=True), size) < size
    ):
        return None
    whole = [offer for offer in offers if offer.size >= size and not near]
    chosen = (
        [min(whole, key=cost)]
        if whole
        else sorted(offers, key=lambda offer: (offer.node not in near, -offer.size))
    )
    workers: list[str] = []
    start: list[str] = []
    for offer in chosen:
        count = min(
            offer.size, size - len(workers) - len(start), len(offer.idle) + new - len(start)
        )
        taken = offer.idle[:count]
        workers += [worker.id for worker in taken]
        start += [offer.node] * (count - len(taken))
    if len(workers) + len(start) < size:
        return None
    return Place(request, tuple(workers), tuple(start))


def _count_within_limit(need: Resources, unused: Resources, most: int) -> int:
    """Return how many workers fit into `unused`, the rest of the limit, but at most `most`.

    Each worker needs the resources `need`.
    """
    return _count({name: need[name] for name in need.keys() & unused.keys()}, unused, most)


def _offers(request: Request, shape: Shape, cluster: Cluster) -> list[_Offer]:
    need, size = dict(shape.per_worker), shape.sizes[-1]
    idle_members = Counter(worker.gang for worker in cluster.workers if worker.phase is Phase.IDLE)

    def preference(worker: WorkerState) -> tuple[bool, bool, int, str, int]:
        is_whole_gang = worker.gang is not None and idle_members[worker.gang] == size
        return (
            request.key not in worker.keys,
            not is_whole_gang,
            worker.used,
            worker.gang or "",
            worker.rank,
        )

    offers = []
    for node in cluster.nodes:
        idle = [one for one in cluster.on[node].idle if one.resources == shape.per_worker]
        new = _count(need, _free_to_hold(cluster, node), size)
        offers.append(
            _Offer(
                node,
                tuple(sorted(idle, key=preference)),
                new,
                _count(need, _free_for_work(cluster, node), size),
            )
        )
    return offers


def _grant(request: Request, cluster: Cluster) -> Grant | None:
    borrows = cluster.parked is not None or not request.tasks
    for node in cluster.nodes:
        if fits_into(request.need, _free_for_work(cluster, node)) and (
            borrows or fits_into(request.need, _free_to_hold(cluster, node))
        ):
            return Grant(request, node)
    return None
