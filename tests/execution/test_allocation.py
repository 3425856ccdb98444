"""The allocation never over-commits, never sticks, serves in order, and packs gangs on nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sweeps.core.resources import Shape, fits_into, missing_resources
from sweeps.execution.gangs.allocation import (
    CloseWorker,
    KeepWaiting,
    decide,
    growth,
    queue_after,
    queue_position,
)
from sweeps.execution.gangs.cluster_state import Cluster, Phase, WorkerState
from sweeps.execution.gangs.placement import Grant, Place, Request

CPU = (("CPU", 1.0),)
TWO_NODES = {"a": {"CPU": 2.0}, "b": {"CPU": 2.0}}


def shape(workers: int, cpu: float = 1.0, gpu: float = 0.0) -> Shape:
    return Shape(workers, tuple(sorted({"CPU": cpu, **({"GPU": gpu} if gpu else {})}.items())))


def request(
    number: int, workers: int = 1, cpu: float = 1.0, gpu: float = 0.0, key: str | None = None
) -> Request:
    wanted = shape(workers, cpu, gpu)
    return Request(number, wanted.total, wanted, key)


def idle(
    name: str,
    node: str = "a",
    used: int = 0,
    resources: Any = CPU,
    keys: Any = (),
    gang: str | None = None,
    rank: int = 0,
) -> WorkerState:
    return WorkerState(name, node, resources, Phase.IDLE, used, frozenset(keys), gang, rank)


def busy(name: str, node: str = "a", resources: Any = CPU) -> WorkerState:
    return WorkerState(name, node, resources, Phase.BUSY)


def placed_first(cluster: Cluster, queue: list[Request]) -> Place:
    """Return where the next trial of the queue is placed."""
    action = decide(cluster, queue)
    assert isinstance(action, Place)
    return action


def test_a_gang_of_the_right_size_is_preferred_to_a_new_one() -> None:
    wanted = request(0, 2)
    workers = [
        idle("w1", used=1),
        idle("w2", gang="g", used=2),
        idle("w3", gang="g", used=2, rank=1),
    ]
    assert decide(Cluster({"a": {"CPU": 4.0}}, workers), [wanted]) == Place(wanted, ("w2", "w3"))


def test_one_node_is_preferred_even_if_workers_must_start_there() -> None:
    wanted = request(0, 2)
    workers = [idle("w1", "a"), busy("w2", "a"), idle("w3", "b")]
    assert decide(Cluster(TWO_NODES, workers), [wanted]) == Place(wanted, ("w3",), ("b",))


def test_small_gang_takes_fuller_node() -> None:
    workers = [idle("w1", "a"), idle("w2", "a"), idle("w3", "b"), busy("w4", "b")]
    wanted = request(0, 1)
    assert decide(Cluster(TWO_NODES, workers), [wanted]) == Place(wanted, ("w3",))


def test_workers_that_cache_the_data_come_before_the_least_recently_used() -> None:
    workers = [idle("w1", used=1), idle("w2", used=3, keys={"k"}), idle("w3", used=2)]
    cluster = Cluster({"a": {"CPU": 3.0}}, workers)
    assert placed_first(cluster, [request(0, key="k")]).workers == ("w2",)
    assert placed_first(cluster, [request(0, key="other")]).workers == ("w1",)


def test_idle_worker_closes_only_if_there_is_no_room() -> None:
    large = (("CPU", 2.0),)
    wanted = request(0, 1)
    assert decide(Cluster({"a": {"CPU": 3.0}}, [idle("w1", resources=large)]), [wanted]) == Place(
        wanted, (), ("a",)
    )
    assert decide(
        Cluster({"a": {"CPU": 2.0}}, [idle("w1", resources=large)]), [wanted]
    ) == CloseWorker("w1")
    closing = replace(idle("w1", resources=large), phase=Phase.CLOSING)
    assert decide(Cluster({"a": {"CPU": 2.0}}, [closing]), [wanted]) == KeepWaiting()


def test_a_small_trial_overtakes_a_large_one_once() -> None:
    cluster, large, small, fit = (
        Cluster({"a": {"CPU": 2.0}}, [busy("w1")]),
        request(0, 2),
        request(1, 1),
        Request(2, {"CPU": 1.0}),
    )
    assert decide(cluster, [large, small]) == Place(small, (), ("a",))
    queue = queue_after([large, small, request(3, 1)], small)
    assert [r.id for r in queue] == [0, 3] and [r.overtaken for r in queue] == [True, False]
    assert decide(cluster, queue) == KeepWaiting()
    assert decide(cluster, [replace(large, is_retry=True), small]) == KeepWaiting(), (
        "a trial that was started before is not overtaken"
    )
    assert decide(cluster, [large, fit]) == KeepWaiting(), "a fit does not overtake"


def test_with_parked_cpus_idle_workers_lend_theirs() -> None:
    fit = Request(0, {"CPU": 1.0})
    large = (("CPU", 2.0),)
    node = {"a": {"CPU": 2.0}}
    assert decide(Cluster(node, [idle("w1", resources=large)], parked=2), [fit]) == Grant(fit, "a")
    assert decide(Cluster(node, [busy("w1", resources=large)], parked=2), [fit]) == KeepWaiting()
    two = request(1, 1, 2)
    assert (
        decide(Cluster(node, [idle("w1", resources=large)], [("a", {"CPU": 1.0})], 2), [two])
        == KeepWaiting()
    ), "the fit uses one CPU"
    small = request(2, 1)
    assert decide(Cluster(node, [idle("w1", resources=large)], parked=2), [small]) == Place(
        small, (), ("a",)
    ), "it stays"


def test_a_limit_counts_the_workers_of_all_nodes() -> None:
    wanted = request(0, 2)
    cluster = Cluster(TWO_NODES, [busy("w1", "a")], limit={"CPU": 2.0})
    assert decide(cluster, [wanted]) == KeepWaiting()
    assert decide(replace(cluster, limit={"CPU": 3.0}), [wanted]) == Place(wanted, (), ("b", "b"))
    assert decide(replace(cluster, limit={"CPU": 1.0}), [wanted]) == KeepWaiting((wanted,)), (
        "it never fits"
    )


def elastic(number: int, least: int, most: int) -> Request:
    wanted = Shape(least, CPU, most=most)
    return Request(number, wanted.total, wanted)


def test_an_elastic_trial_gets_all_that_is_free_up_to_its_upper_bound() -> None:
    four = {"a": {"CPU": 4.0}}
    assert placed_first(Cluster(four, []), [elastic(0, 1, 3)]).start_on == ("a", "a", "a")
    assert decide(Cluster(four, [busy("w1"), idle("w2")]), [elastic(0, 1, 4)]) == Place(
        elastic(0, 1, 4), ("w2",), ("a", "a")
    )
    assert (
        decide(Cluster(four, [busy("w1"), busy("w2"), busy("w3")]), [elastic(0, 2, 4)])
        == KeepWaiting()
    ), "two are needed"
    assert len(placed_first(Cluster(TWO_NODES, []), [elastic(0, 1, 9)]).start_on) == 4, (
        "of all nodes"
    )


def test_an_elastic_trial_leaves_the_waiting_trials_what_they_need() -> None:
    four = {"a": {"CPU": 4.0}}
    assert len(placed_first(Cluster(four, []), [elastic(0, 1, 4), request(1, 2)]).start_on) == 2
    three = [elastic(0, 1, 4), elastic(1, 1, 4), elastic(2, 1, 4)]
    assert len(placed_first(Cluster(four, []), three).start_on) == 2
    assert len(placed_first(Cluster(four, []), [elastic(0, 1, 4), request(1, 4)]).start_on) == 4, (
        "it cannot start now anyway"
    )
    assert len(placed_first(Cluster(four, []), [elastic(0, 1, 4), request(1, 9)]).start_on) == 4, (
        "it never fits"
    )


def test_a_gang_grows_only_if_no_other_trial_needs_the_resources() -> None:
    shape_ = Shape(1, CPU, most=3)
    cluster = Cluster(TWO_NODES, [busy("w1", "b"), idle("w2", "a"), idle("w3", "b")])
    by_two = growth(cluster, [], shape_, 1, {"b"}, trials_pending=False)
    assert by_two is not None and by_two.workers == ("w3", "w2")
    by_one = growth(cluster, [], shape_, 2, {"b"}, trials_pending=False)
    assert by_one is not None and by_one.workers == ("w3",)
    assert growth(cluster, [], shape_, 3, {"b"}, trials_pending=False) is None
    assert growth(cluster, [], shape_, 1, {"b"}, trials_pending=True) is None
    assert growth(cluster, [request(0, 4)], shape_, 1, {"b"}, trials_pending=False) is None
    assert (
        growth(
            Cluster({"a": {"CPU": 1.0}}, [busy("w1")]), [], shape_, 1, {"a"}, trials_pending=False
        )
        is None
    )


ELASTIC = [
    Shape(1, CPU, most=4),
    Shape(2, CPU, most=3),
    Shape(1, (("CPU", 1.0), ("GPU", 0.5)), most=2),
]
SHAPES = [
    shape(1),
    shape(2),
    shape(4),
    shape(3),
    shape(1, 2),
    shape(1, 1, 1),
    shape(2, 1, 0.5),
    shape(1, 1, 0.5),
    shape(2, 2),
]
FITS = [Request(0, {"CPU": cpus}, tasks=tasks) for cpus in (1.0, 2.0) for tasks in (True, False)]
CLUSTERS = [
    ({"a": {"CPU": 4.0, "GPU": 1.0}}, None, None),
    ({"a": {"CPU": 4.0, "GPU": 1.0}}, 3, None),
    ({"a": {"CPU": 2.0}, "b": {"CPU": 2.0, "GPU": 2.0}}, None, None),
    ({"a": {"CPU": 2.0, "GPU": 1.0}, "b": {"CPU": 2.0, "GPU": 1.0}, "c": {"CPU": 3.0}}, None, None),
    (
        {"a": {"CPU": 2.0, "GPU": 1.0}, "b": {"CPU": 2.0, "GPU": 1.0}, "c": {"CPU": 3.0}},
        None,
        {"CPU": 3.0},
    ),
    ({"a": {"CPU": 4.0}, "b": {"CPU": 4.0, "GPU": 2.0}}, None, {"CPU": 2.0, "GPU": 1.0}),
    ({"a": {"CPU": 4.0, "GPU": 2.0}, "b": {"CPU": 4.0, "GPU": 2.0}}, None, {"GPU": 1.0}),
]


@settings(max_examples=500, deadline=None)
@given(
    st.lists(
        st.one_of(st.sampled_from(SHAPES), st.sampled_from(ELASTIC), st.sampled_from(FITS)),
        min_size=1,
        max_size=25,
    ),
    st.randoms(use_true_random=False),
    st.sampled_from(CLUSTERS),
)
def test_any_queue_is_served_in_order_within_each_node(
    wanted: Any, chance: Any, where: Any
) -> None:
    """Simulate a pool: requests come, gangs and fits end and workers close at random moments; every
    request is served at last.

    Gangs of elastic trials lose workers and grow at random moments too.
    """
    nodes, parked, limit = where

    def fits_somewhere(need: Mapping[str, float]) -> bool:
        return any(fits_into(need, node) for node in nodes.values()) and _under(need, limit)

    coming = [
        Request(i, w.total, w, f"k{i % 2}") if isinstance(w, Shape) else replace(w, id=i)
        for i, w in enumerate(wanted)
    ]
    queue: list[Request] = []
    workers: dict[str, WorkerState] = {}
    running: dict[int, list[str]] = {}
    grants: dict[int, tuple[str, dict[str, float]]] = {}
    borrowed = {r.id for r in coming if r.shape is None and (parked is not None or not r.tasks)}
    trials = {r.id: r for r in coming if r.shape is not None}
    shapes = {r.id: r.shape for r in coming if r.shape is not None}
    clock, left, losses = 0, {r.id for r in coming}, 5

    def check_room() -> None:
        for node, resources in nodes.items():
            there = [w for w in workers.values() if w.node == node]
            taken = [g for i, (n, g) in grants.items() if n == node]
            tasks = [g for i, (n, g) in grants.items() if n == node and i not in borrowed]
            room = {**resources, "CPU": resources["CPU"] + (parked or 0)}
            assert fits_into(_sum([dict(w.resources) for w in there] + tasks), room), (
                "over-committed"
            )
            assert fits_into(
                _sum([dict(w.resources) for w in there if w.phase is Phase.BUSY] + taken), resources
            ), "too much work"
        held = [dict(w.resources) for w in workers.values()] + [
            g for i, (_, g) in grants.items() if i not in borrowed
        ]
        assert _under(_sum(held), limit), "over the limit"

    while left:
        while True:
            clock += 1
            cluster = Cluster(
                nodes, list(workers.values()), list(grants.values()), parked, limit or {}
            )
            action = decide(cluster, queue)
            if isinstance(action, KeepWaiting):
                for refused in action.too_large:
                    assert not fits_somewhere(refused.need)
                    queue.remove(refused)
                    left.discard(refused.id)
                break
            if isinstance(action, CloseWorker):
                assert workers[action.worker].phase is Phase.IDLE
                workers[action.worker] = replace(workers[action.worker], phase=Phase.CLOSING)
                continue
            large = [r for r in queue[: queue.index(action.request)] if fits_somewhere(r.need)]
            assert not any(r.overtaken or r.is_retry for r in large[:1]), "overtaken again"
            queue = queue_after(queue, action.request)
            left.discard(action.request.id)
            if isinstance(action, Grant):
                grants[action.request.id] = (action.node, dict(action.request.need))
            else:
                shape_ = shapes[action.request.id]
                members = list(action.workers)
                for number, node in enumerate(action.start_on):
                    members.append(f"w{clock}-{number}")
                    workers[members[-1]] = WorkerState(
                        members[-1], node, shape_.per_worker, Phase.IDLE
                    )
                assert len(set(members)) in shape_.sizes
                assert action.request.key is not None
                keys = frozenset({action.request.key})
                for rank, name in enumerate(members):
                    assert workers[name].phase is Phase.IDLE
                    workers[name] = replace(
                        workers[name],
                        phase=Phase.BUSY,
                        used=clock,
                        gang=f"g{clock}",
                        rank=rank,
                        keys=keys,
                    )
                running[action.request.id] = members
            check_room()
        closing = [w.id for w in workers.values() if w.phase is Phase.CLOSING]
        events: list[tuple[str, int | str | None]] = [("trial", i) for i in running]
        events += [("fit", i) for i in grants]
        events += [("close", i) for i in closing]
        events += [("come", None)] if coming else []
        changing = [i for i in running if shapes[i].most is not None]
        events += (
            [(kind, i) for i in changing for kind in (("lose", "grow") if losses else ("grow",))]
            if events
            else []
        )
        if not events:
            assert not left, "nothing can happen any more, and someone still waits"
            break
        kind, what = chance.choice(events)
        if kind == "come":
            queue.append(coming.pop(0))
        elif kind == "lose":
            losses -= 1
            lost, *running[what] = chance.sample(running[what], len(running[what]))
            del workers[lost]
            if len(running[what]) < shapes[what].workers:
                for name in running.pop(what):
                    workers[name] = replace(workers[name], phase=Phase.IDLE)
                again = replace(trials[what], is_retry=True)
                queue.insert(queue_position(queue, again), again)
                left.add(what)
        elif kind == "grow":
            cluster = Cluster(
                nodes, list(workers.values()), list(grants.values()), parked, limit or {}
            )
            placed = growth(
                cluster,
                queue,
                shapes[what],
                len(running[what]),
                {workers[n].node for n in running[what]},
                bool(coming),
            )
            assert placed is None or not (queue or coming), "another trial needs the resources"
            for number, node in enumerate(placed.start_on if placed else ()):
                workers[f"g{clock}-{number}"] = WorkerState(
                    f"g{clock}-{number}", node, shapes[what].per_worker, Phase.IDLE
                )
            check_room()
            for name in placed.workers if placed else ():
                assert workers[name].phase is Phase.IDLE
                workers[name] = replace(workers[name], phase=Phase.BUSY)
                running[what] = [*running[what], name]
            clock += 1
            check_room()
            assert len(running[what]) in shapes[what].sizes
        elif kind == "fit":
            del grants[what]
        elif kind == "close":
            del workers[what]
        else:
            for name in running.pop(what):
                workers[name] = replace(workers[name], phase=Phase.IDLE)


def _under(need: Mapping[str, float], limit: dict[str, float] | None) -> bool:
    return limit is None or fits_into({name: need.get(name, 0.0) for name in limit}, limit)


def _sum(amounts: list[dict[str, float]]) -> dict[str, float]:
    names = {name for amount in amounts for name in amount}
    return {name: sum(amount.get(name, 0.0) for amount in amounts) for name in names}


@settings(max_examples=300)
@given(
    nodes=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2)), min_size=1, max_size=3),
    workers=st.integers(1, 4),
    cpu=st.sampled_from([0.5, 1.0, 2.0]),
    gpu=st.sampled_from([0.0, 0.3, 0.5, 0.6, 1.0, 2.0]),
)
def test_a_trial_that_does_not_fit_lacks_something(
    nodes: Any, workers: Any, cpu: Any, gpu: Any
) -> None:
    cluster = {
        str(i): {"CPU": float(cpus), "GPU": float(gpus)} for i, (cpus, gpus) in enumerate(nodes)
    }
    total = {name: sum(node[name] for node in cluster.values()) for name in ("CPU", "GPU")}
    wanted = request(0, workers, cpu, gpu)
    assert wanted.shape is not None
    waits = decide(Cluster(cluster, []), [wanted])
    too_large = isinstance(waits, KeepWaiting) and wanted in waits.too_large
    assert too_large is (missing_resources(wanted.shape, total, list(cluster.values())) is not None)
