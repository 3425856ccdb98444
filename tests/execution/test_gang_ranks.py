"""Ranks are ordered by node and GPU, as Ray Train orders them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sweeps.execution.worker.gang_ranks import in_rank_order, ranks_on, visible_gpus


def member(node: str, gpu: int, number: int) -> SimpleNamespace:
    return SimpleNamespace(node=node, gpus=(str(gpu),), number=number)


def test_ranks_follow_nodes_and_gpus() -> None:
    workers = [member("n2", 10, 4), member("n2", 2, 3), member("n1", 1, 2), member("n2", 0, 5)]
    assert [worker.number for worker in in_rank_order(workers)] == [5, 3, 4, 2], (
        "the node with most workers first, and GPU 10 after GPU 2"
    )
    assert visible_gpus(workers) == ["0,2,10", "0,2,10", "1", "0,2,10"]
    assert [
        (r.rank, r.world_size, r.local_rank, r.local_world_size, r.node_rank)
        for r in ranks_on(["n2", "n2", "n2", "n1"])
    ] == [
        (0, 4, 0, 3, 0),
        (1, 4, 1, 3, 0),
        (2, 4, 2, 3, 0),
        (3, 4, 0, 1, 1),
    ]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 7)), min_size=1, max_size=12))
def test_the_workers_of_a_node_have_consecutive_ranks_and_all_local_ranks(places: Any) -> None:
    workers = [member(node, gpu, number) for number, (node, gpu) in enumerate(places)]
    nodes = [worker.node for worker in in_rank_order(workers)]
    ranks = ranks_on(nodes)
    assert sorted(nodes, key=nodes.index) == nodes
    for node in set(nodes):
        local = [rank.local_rank for rank, other in zip(ranks, nodes, strict=True) if other == node]
        assert local == list(range(len(local)))
