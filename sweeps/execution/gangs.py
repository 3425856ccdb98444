"""Order the workers of a gang by rank. The functions are pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

from sweeps.execution.messages import Ranks

W = TypeVar("W")

# With these backends, a gang is connected again for each trial. LightGBM cannot reuse a port while
# a model of the last trial exists, and during the minute after that model was deleted.
RENEWED_FOR_EACH_TRIAL = ("lightgbm",)
# With these backends, a rank can leave the gang while a peer still works. Only a peer that waits
# for the rank then fails.
LEFT_SAFELY = ("torch",)


def in_rank_order(workers: Sequence[tuple[W, str, tuple[str, ...], int]]) -> list[W]:
    """Return workers in the order of their ranks: node by node, and on each node by GPU id.

    Ray Train uses the same order.

    The node with the most workers comes first. Among nodes with equally many workers, the node with
    the oldest worker comes first.

    Args:
        workers: Tuples of the worker, the id of its node, the ids of its GPUs, and a number that is
            smaller for older workers.

    >>> in_rank_order([("c", "n2", (), 3), ("b", "n1", ("1",), 1), ("a", "n1", ("0",), 2)])
    ['a', 'b', 'c']
    """
    counts = Counter(node for _, node, _, _ in workers)
    oldest = {node: min(age for _, other, _, age in workers if other == node) for node in counts}

    def position(
        worker: tuple[W, str, tuple[str, ...], int],
    ) -> tuple[int, int, list[tuple[int, str]], int]:
        _, node, gpus, age = worker
        return (
            -counts[node],
            oldest[node],
            [(int(gpu) if gpu.isdigit() else 0, gpu) for gpu in gpus],
            age,
        )

    return [worker for worker, *_ in sorted(workers, key=position)]


def ranks_on(nodes: Sequence[str]) -> tuple[Ranks, ...]:
    """Return the world, local and node ranks of a gang's workers, in the order of world ranks.

    Args:
        nodes: Id of each worker's node, in the order of ranks. The workers of one node must be next
            to each other.

    >>> [(r.rank, r.local_rank, r.local_world_size, r.node_rank) for r in ranks_on(["a", "a", "b"])]
    [(0, 0, 2, 0), (1, 1, 2, 0), (2, 0, 1, 1)]
    """
    order = list(dict.fromkeys(nodes))
    return tuple(
        Ranks(rank, len(nodes), nodes[:rank].count(node), nodes.count(node), order.index(node))
        for rank, node in enumerate(nodes)
    )


def visible_gpus(nodes: Sequence[str], gpus: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the value of `CUDA_VISIBLE_DEVICES` for each worker of a gang.

    It names the GPUs of all workers of the gang on the worker's node.

    Args:
        nodes: Id of each worker's node.
        gpus: Ids of each worker's GPUs, in the order of `nodes`.

    >>> visible_gpus(["a", "a", "b"], [("1",), ("0",), ("0",)])
    ('0,1', '0,1', '0')
    """
    return tuple(
        ",".join(
            sorted(
                {
                    gpu
                    for other, ids in zip(nodes, gpus, strict=True)
                    if other == node
                    for gpu in ids
                },
                key=lambda g: (len(g), g),
            )
        )
        for node in nodes
    )
