"""Ask Ray's autoscaler for the nodes that waiting trials need.

The autoscaler starts nodes for pending placement groups, so this module creates a group for each
waiting request. Ray Tune does the same for its trials. Each group belongs to the sweep's Ray job,
so Ray removes the groups when the driver dies.
"""

from collections.abc import Mapping, Sequence

import ray
from ray.autoscaler.v2.sdk import get_cluster_status
from ray.util.placement_group import (
    PlacementGroup,
    placement_group,
    placement_group_table,
    remove_placement_group,
)

from sweeps.core.resources import fits_into, subtract

from .placement import Request

# If Ray has placed the group of a request that still waits, the request gets a new group after this
# many seconds.
ASK_AGAIN_AFTER = 10.0


def bundles_of(request: Request) -> list[dict[str, float]]:
    """Return the bundles of a placement group for a request.

    A trial has one bundle for each worker, and a fit has one bundle.
    """
    if request.shape is not None:
        return [dict(request.shape.per_worker)] * request.shape.workers
    need = {name: amount for name, amount in request.need.items() if amount > 0}
    return [need] if need else []


def select_within_limit(requests: Sequence[Request], unused: Mapping[str, float]) -> list[Request]:
    """Return the requests that, taken together, fit into the rest of the sweep's limit (`unused`).

    The requests are taken in order. A request is skipped if it does not fit into the amounts that
    earlier requests leave.

    Args:
        requests: Requests that wait, in the order of the queue.
        unused: Amount of each limited resource that the sweep may still use.
    """
    selected = []
    for request in requests:
        limited = {name: request.need[name] for name in request.need.keys() & unused.keys()}
        if fits_into(limited, unused):
            selected.append(request)
            unused = subtract(unused, [limited])
    return selected


class NodeRequests:
    """Placement groups that make the autoscaler start nodes for waiting requests.

    Workers do not run inside these groups. When Ray has placed a group, the resources exist. The
    group is then removed, so that the pool can start workers with these resources.

    Attributes:
        may_grow: True if the cluster can get new nodes: the result of the function `may_grow`. None
            before the first request.
    """

    def __init__(self) -> None:
        # By the number of the request: its group, and the earliest time of a new group.
        self._groups: dict[int, PlacementGroup] = {}
        self._not_before: dict[int, float] = {}
        self.may_grow: bool | None = None

    def update(self, waiting: Sequence[Request], now: float) -> None:
        """Create a placement group for each waiting request, so that the autoscaler starts nodes.

        Remove a group when Ray has placed it, so that workers can use the resources, or when its
        request no longer waits. If a request still waits some seconds after its group was placed,
        the request gets a new group. On a cluster that cannot get new nodes, this method does
        nothing.

        Args:
            waiting: Requests that wait for workers or resources.
            now: Current time of a monotonic clock.
        """
        if self.may_grow is None and waiting:
            self.may_grow = may_grow()
        if not self.may_grow:
            return
        numbers = {request.id for request in waiting}
        states = placement_group_table() if self._groups else {}
        for number, group in list(self._groups.items()):
            placed = states.get(group.id.hex(), {}).get("state") == "CREATED"
            if placed or number not in numbers:
                remove_placement_group(self._groups.pop(number))
                self._not_before[number] = now + ASK_AGAIN_AFTER
        self._not_before = {
            number: time for number, time in self._not_before.items() if number in numbers
        }
        for request in waiting:
            is_due = now >= self._not_before.get(request.id, now)
            bundles = bundles_of(request)
            if bundles and is_due and request.id not in self._groups:
                self._groups[request.id] = placement_group(bundles)


def may_grow() -> bool:
    """Return whether Ray's autoscaler (version 2, the default) can manage the cluster.

    The autoscaler recognizes a node by its instance id. KubeRay and `ray up` give each node such
    an id, but `ray start` does not.
    """
    status = get_cluster_status(ray.get_runtime_context().gcs_address)
    return any(node.instance_id for node in (*status.active_nodes, *status.idle_nodes))
