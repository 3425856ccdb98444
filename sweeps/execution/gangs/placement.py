"""Find workers for a gang, or resources for a fit, on the nodes of a cluster. Pure functions."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property

from sweeps.core.resources import Shape, count_fitting_workers, fits_into

from .cluster_state import Cluster, Phase, Resources, WorkerState


@dataclass(frozen=True)
class Request:
    """A trial that waits for workers, or a fit of a preprocessing chain that waits for resources.

    Attributes:
        id: Number of the request.
        need: Resources that the fit needs, or that all workers of the trial need together.
        shape: Number of workers of the trial and resources of each worker; None for a fit.
        key: Key of the trial's prepared data. Workers that cache this data are preferred. With
            None, no worker is preferred.
        tasks: True if the fit runs Ray tasks. Ray gives a task only CPUs that no worker holds, not
            even an idle worker.
        is_retry: True if an earlier attempt of the trial has failed. Such trials are served before
            other trials.
        overtaken: True if a later request was served before this one. A request is overtaken at
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
        start_on: One entry for each new worker: the id of the node on which this worker starts.
    """

    request: Request
    workers: tuple[str, ...]
    start_on: tuple[str, ...] = ()


@dataclass(frozen=True)
class Grant:
    """Action: let the fit of a preprocessing chain use resources of a node.

    Attributes:
        request: Request of the fit.
        node: Id of the node.
    """

    request: Request
    node: str


def place_most(
    request: Request, cluster: Cluster, most: int, near: Collection[str] = ()
) -> Place | None:
    """Return the action that forms a request's largest possible gang of at most `most` workers.

    Return None if no worker can be placed.
    """
    for size in range(most, 0, -1):
        if isinstance(placed := place(request, cluster, size, near), Place):
            return placed
    return None


def cluster_after(action: Place | Grant, cluster: Cluster) -> Cluster:
    """Return the state of the cluster after an action has been carried out."""
    if isinstance(action, Grant):
        return replace(cluster, grants=[*cluster.grants, (action.node, action.request.need)])
    assert action.request.shape is not None
    per_worker = action.request.shape.per_worker
    new = [
        WorkerState(f"new-{action.request.id}-{i}", node, per_worker, Phase.BUSY)
        for i, node in enumerate(action.start_on)
    ]
    old = [
        replace(worker, phase=Phase.BUSY) if worker.id in action.workers else worker
        for worker in cluster.workers
    ]
    return replace(cluster, workers=[*old, *new])


def fits_when_empty(request: Request, cluster: Cluster) -> bool:
    """Return whether a request fits on the cluster without any workers and fits."""
    empty = Cluster(cluster.nodes, (), limit=cluster.limit)
    if request.shape is None:
        return _grant(request, empty) is not None
    need = dict(request.shape.per_worker)
    missing = request.shape.workers
    if _count_within_limit(need, cluster.limit, missing) < missing:
        return False
    for node in cluster.nodes:
        missing -= count_fitting_workers(need, empty.free_to_hold(node), missing)
        if missing <= 0:
            return True
    return False


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


def place(
    request: Request, cluster: Cluster, size: int | None = None, near: Collection[str] = ()
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
        """Return the key that sorts nodes by the criteria of `allocation.decide`."""
        taken = offer.idle[:size]
        gangs = {worker.gang for worker in taken}
        is_whole_gang = len(taken) == size and len(gangs) == 1 and None not in gangs
        cached = sum(request.key in worker.keys for worker in taken)
        return (
            size - len(taken),
            -cached,
            not is_whole_gang,
            len(offer.idle) + offer.new,
            min((worker.used for worker in taken), default=0),
        )

    need = dict(request.shape.per_worker)
    # The sweep's limit for all nodes together
    most_new = _count_within_limit(need, cluster.unused_limit(busy=False), size)
    most_busy = _count_within_limit(need, cluster.unused_limit(busy=True), size)
    if min(most_busy, sum(offer.size for offer in offers)) < size:
        return None
    chosen = sorted(offers, key=lambda offer: (offer.node not in near, -offer.size))
    whole = [offer for offer in offers if offer.size >= size]
    if whole and not near:
        chosen = [min(whole, key=cost)]
    workers: list[str] = []
    start: list[str] = []
    for offer in chosen:
        missing = size - len(workers) - len(start)
        within_limit = len(offer.idle) + most_new - len(start)
        count = min(offer.size, missing, within_limit)
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
    limited = {name: need[name] for name in need.keys() & unused.keys()}
    return count_fitting_workers(limited, unused, most)


def _offers(request: Request, shape: Shape, cluster: Cluster) -> list[_Offer]:
    """Return the workers that each node can provide for a trial of this shape."""
    need = dict(shape.per_worker)
    size = shape.sizes[-1]
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
        idle = [w for w in cluster.node_uses[node].idle if w.resources == shape.per_worker]
        offer = _Offer(
            node,
            tuple(sorted(idle, key=preference)),
            new=count_fitting_workers(need, cluster.free_to_hold(node), size),
            most=count_fitting_workers(need, cluster.free_for_work(node), size),
        )
        offers.append(offer)
    return offers


def _grant(request: Request, cluster: Cluster) -> Grant | None:
    """Return the action that serves a fit now; None if no node has enough free resources."""
    # A fit without Ray tasks, or on a spare CPU of Ray, may use the CPUs that idle workers hold.
    uses_held = cluster.parked is not None or not request.tasks
    for node in cluster.nodes:
        if not fits_into(request.need, cluster.free_for_work(node)):
            continue
        if uses_held or fits_into(request.need, cluster.free_to_hold(node)):
            return Grant(request, node)
    return None
