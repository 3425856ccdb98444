"""Order the workers of a gang by rank. The functions are pure."""

from collections.abc import Sequence
from typing import Protocol, TypeVar

from sweeps.execution.messages import Ranks


class GangMember(Protocol):
    """A worker of a gang.

    Attributes:
        node: Id of the worker's node.
        gpus: Ids of the worker's GPUs.
        number: Number that is smaller for older workers.
    """

    node: str
    number: int

    @property
    def gpus(self) -> tuple[str, ...]:
        """Ids of the worker's GPUs."""


W = TypeVar("W", bound=GangMember)

# With these backends, a gang is connected again for each trial. LightGBM cannot reuse a port while
# a model of the last trial exists, and during the minute after that model was deleted.
RECONNECTED_FOR_EACH_TRIAL = ("lightgbm",)
# With these backends, a rank can leave the gang while a peer still works. Only a peer that waits
# for the rank then fails.
LEFT_SAFELY = ("torch",)


def in_rank_order(workers: Sequence[W]) -> list[W]:
    """Return workers in the order of their ranks: node by node, and on each node by GPU id.

    Ray Train uses the same order.

    The node with the most workers comes first. Among nodes with equally many workers, the node with
    the oldest worker comes first.
    """
    on_node: dict[str, list[W]] = {}
    for worker in workers:
        on_node.setdefault(worker.node, []).append(worker)

    def position(worker: W) -> tuple[int, int, list[tuple[int, str]], int]:
        peers = on_node[worker.node]
        gpus = [(int(gpu) if gpu.isdigit() else 0, gpu) for gpu in worker.gpus]
        return -len(peers), min(peer.number for peer in peers), gpus, worker.number

    return sorted(workers, key=position)


def ranks_on(nodes: Sequence[str]) -> tuple[Ranks, ...]:
    """Return the world, local and node ranks of a gang's workers, in the order of world ranks.

    Args:
        nodes: Id of each worker's node, in the order of ranks. The workers of one node must be next
            to each other.

    >>> [(r.rank, r.local_rank, r.local_world_size, r.node_rank) for r in ranks_on(["a", "a", "b"])]
    [(0, 0, 2, 0), (1, 1, 2, 0), (2, 0, 1, 1)]
    """
    distinct_nodes = list(dict.fromkeys(nodes))
    return tuple(
        Ranks(
            rank,
            world_size=len(nodes),
            local_rank=nodes[:rank].count(node),
            local_world_size=nodes.count(node),
            node_rank=distinct_nodes.index(node),
        )
        for rank, node in enumerate(nodes)
    )


def visible_gpus(workers: Sequence[GangMember]) -> list[str]:
    """Return the value of `CUDA_VISIBLE_DEVICES` for each worker of a gang.

    It names the GPUs of all workers of the gang on the worker's node.
    """
    on_node: dict[str, set[str]] = {}
    for worker in workers:
        on_node.setdefault(worker.node, set()).update(worker.gpus)
    names = {
        node: ",".join(sorted(gpus, key=lambda gpu: (len(gpu), gpu)))
        for node, gpus in on_node.items()
    }
    return [names[worker.node] for worker in workers]
