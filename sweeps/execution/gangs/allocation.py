"""Decide which workers form the next gang, which workers start, and which workers close.

The functions are pure.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from sweeps.core.resources import EPSILON, Shape

from .cluster_state import Cluster, Phase, Resources, WorkerState
from .placement import (
    Grant,
    Place,
    Request,
    cluster_after,
    fits_when_empty,
    place,
    place_most,
)


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


def queue_position(queue: Sequence[Request], request: Request) -> int:
    """Return the index at which a request enters the queue.

    A retry enters before the first request that is no retry.
    """
    if not request.is_retry:
        return len(queue)
    return next((i for i, other in enumerate(queue) if not other.is_retry), len(queue))


def queue_after(queue: Sequence[Request], request: Request) -> list[Request]:
    """Return the queue after a request was served.

    The requests before this one are marked as overtaken.
    """
    position = queue.index(request)
    overtaken = [replace(other, overtaken=True) for other in queue[:position]]
    return [*overtaken, *queue[position + 1 :]]


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
    kinds = _first_of_each_kind(queue)
    fitting = {request.kind for request in kinds if fits_when_empty(request, cluster)}
    too_large = tuple(request for request in queue if request.kind not in fitting)
    servable = [request for request in queue if request.kind in fitting]
    if not servable:
        return KeepWaiting(too_large)
    request, *others = servable
    if action := _serve(request, cluster, others):
        return action
    if action := _overtake(request, others, cluster):
        return action
    staying = [worker for worker in cluster.workers if worker.phase is not Phase.CLOSING]
    after_closing = replace(cluster, workers=staying)
    if len(staying) < len(cluster.workers) and place(request, after_closing):
        return KeepWaiting(too_large)  # The workers that are closing free enough resources.
    worker_to_close = _choose_worker_to_close(request, after_closing)
    return KeepWaiting(too_large) if worker_to_close is None else CloseWorker(worker_to_close.id)


def _choose_worker_to_close(request: Request, cluster: Cluster) -> WorkerState | None:
    """Return the idle worker to close first, so that a request can be served later.

    Return None if it could not be served even if all idle workers that it cannot use were closed.
    """
    shape = request.shape
    closable = [
        worker
        for worker in cluster.workers
        if worker.phase is Phase.IDLE and (shape is None or worker.resources != shape.per_worker)
    ]
    rest = [worker for worker in cluster.workers if worker not in closable]
    action = place(request, replace(cluster, workers=rest)) if closable else None
    if action is None:
        return None
    nodes = action.start_on if isinstance(action, Place) else (action.node,)
    need = dict(shape.per_worker) if shape else request.need
    # Under a limit, a worker on another node may have to be closed.
    candidates = [worker for worker in closable if worker.node in nodes] or closable
    return min(
        candidates,
        key=lambda worker: (not _frees_needed(worker, need, cluster), worker.used, worker.id),
    )


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
    return place_most(_unqueued(shape), cluster, shape.sizes[-1] - size, near=nodes)


def largest_gang(shape: Shape, cluster: Cluster) -> int:
    """Return how many workers of an elastic shape fit on the empty cluster.

    The result is within the bounds of the shape.
    """
    empty = replace(cluster, workers=(), grants=())
    placed = place_most(_unqueued(shape), empty, shape.sizes[-1])
    return max(shape.workers, len(placed.start_on) if placed else 0)


def _unqueued(shape: Shape) -> Request:
    """Return a request that is in no queue. Only its shape is read, not its number and needs."""
    return Request(-1, {}, shape)


def _serve(request: Request, cluster: Cluster, others: Sequence[Request]) -> Place | Grant | None:
    """Return the action that serves a request now; None if the request cannot be served.

    An elastic trial gets all workers that it may get.

    Args:
        request: The trial or the fit.
        cluster: State of the cluster.
        others: The other requests in the queue. An elastic trial leaves enough resources to serve
            these requests now.
    """
    placed = place(request, cluster)
    if placed is None or request.shape is None or request.shape.most is None:
        return placed
    after = cluster_after(placed, cluster)
    for other in others:
        if (action := place(other, after)) is None:
            break
        after = cluster_after(action, after)
    size = request.shape.workers
    if added := place_most(request, after, request.shape.sizes[-1] - size):
        size += len(added.workers) + len(added.start_on)
    return place_most(request, cluster, size)


def _overtake(
    request: Request, others: Sequence[Request], cluster: Cluster
) -> Place | Grant | None:
    """Return the action that serves another trial before a request that must wait.

    Return None if no other trial fits now, or if the request must not be overtaken.
    """
    if request.overtaken or request.is_retry:
        return None
    for other in _first_of_each_kind(others):
        # A trial of the same shape does not fit either.
        if other.shape not in (None, request.shape) and (placed := place(other, cluster)):
            return placed
    return None


def _first_of_each_kind(queue: Sequence[Request]) -> list[Request]:
    """Return the first request of each kind, in the order of the queue."""
    first: dict[object, Request] = {}
    for request in queue:
        first.setdefault(request.kind, request)
    return list(first.values())


def _frees_needed(worker: WorkerState, need: Resources, cluster: Cluster) -> bool:
    """Return whether a worker holds a needed resource that its node lacks."""
    free = cluster.free_to_hold(worker.node)
    return any(
        amount > free.get(name, 0.0) + EPSILON and dict(worker.resources).get(name)
        for name, amount in need.items()
    )
