"""The allocation never over-commits, never sticks, serves in order, and packs gangs on nodes."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from sweeps.core.resources import Shape, fits_into, missing_resources
from sweeps.execution.allocation import (
    Close,
    Cluster,
    Grant,
    Phase,
    Place,
    Request,
    Wait,
    WorkerState,
    decide,
    growth,
    queue_position,
    served,
    without_reserve,
)

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
    resources=CPU,
    keys=(),
    gang: str | None = None,
    rank: int = 0,
) -> WorkerState:
    return WorkerState(name, node, resources, Phase.IDLE, used, frozenset(keys), gang, rank)


def busy(name: str, node: str = "a", resources=CPU) -> WorkerState:
    return WorkerState(name, node, resources, Phase.BUSY)


def test_two_gangs_of_one_become_a_gang_of_two_without_a_new_process():
    wanted = request(0, 2)
    assert decide(
        Cluster({"a": {"CPU": 2.0}}, [idle("w1", gang="g1"), idle("w2", gang="g2")]), [wanted]
    ) == Place(wanted, ("w1", "w2"))


def test_a_gang_of_two_gives_a_worker_to_a_trial_with_one():
    wanted = request(0, 1)
    workers = [idle("w1", gang="g", used=1), idle("w2", gang="g", used=1, rank=1)]
    assert decide(Cluster({"a": {"CPU": 2.0}}, workers), [wanted]) == Place(wanted, ("w1",))


def test_a_gang_of_the_right_size_is_preferred_to_a_new_one():
    wanted = request(0, 2)
    workers = [
        idle("w1", used=1),
        idle("w2", gang="g", used=2),
        idle("w3", gang="g", used=2, rank=1),
    ]
    assert decide(Cluster({"a": {"CPU": 4.0}}, workers), [wanted]) == Place(wanted, ("w2", "w3"))


def test_one_node_is_preferred_even_if_workers_must_start_there():
    wanted = request(0, 2)
    workers = [idle("w1", "a"), busy("w2", "a"), idle("w3", "b")]
    assert decide(Cluster(TWO_NODES, workers), [wanted]) == Place(wanted, ("w3",), ("b",))


def test_a_gang_spreads_if_no_node_has_room_now():
    wanted = request(0, 2)
    workers = [idle("w1", "a"), busy("w2", "a"), idle("w3", "b"), busy("w4", "b")]
    assert decide(Cluster(TWO_NODES, workers), [wanted]) == Place(wanted, ("w1", "w3"))


def test_a_small_gang_takes_the_fuller_node_so_that_a_large_one_finds_a_node():
    workers = [idle("w1", "a"), idle("w2", "a"), idle("w3", "b"), busy("w4", "b")]
    wanted = request(0, 1)
    assert decide(Cluster(TWO_NODES, workers), [wanted]) == Place(wanted, ("w3",))


def test_workers_that_cache_the_data_come_before_the_least_recently_used():
    workers = [idle("w1", used=1), idle("w2", used=3, keys={"k"}), idle("w3", used=2)]
    cluster = Cluster({"a": {"CPU": 3.0}}, workers)
    assert decide(cluster, [request(0, key="k")]).workers == ("w2",)
    assert decide(cluster, [request(0, key="other")]).workers == ("w1",)


def test_an_idle_worker_with_other_resources_closes_only_if_there_is_no_room():
    large = (("CPU", 2.0),)
    wanted = request(0, 1)
    assert decide(Cluster({"a": {"CPU": 3.0}}, [idle("w1", resources=large)]), [wanted]) == Place(
        wanted, (), ("a",)
    )
    assert decide(Cluster({"a": {"CPU": 2.0}}, [idle("w1", resources=large)]), [wanted]) == Close(
        "w1"
    )
    closing = replace(idle("w1", resources=large), phase=Phase.CLOSING)
    assert decide(Cluster({"a": {"CPU": 2.0}}, [closing]), [wanted]) == Wait()


def test_only_a_worker_that_holds_what_is_short_closes():
    workers = [
        idle("cpu", used=1, resources=(("CPU", 2.0),)),
        idle("gpu", used=2, resources=(("CPU", 1.0), ("GPU", 1.0))),
    ]
    assert decide(
        Cluster({"a": {"CPU": 8.0, "GPU": 1.0}}, workers), [request(0, 1, 2, 0.5)]
    ) == Close("gpu")


def test_a_worker_with_a_larger_part_of_a_gpu_serves_if_that_is_wanted():
    cluster = Cluster(
        {"a": {"CPU": 2.0, "GPU": 1.0}}, [idle("w1", resources=(("CPU", 1.0), ("GPU", 1.0)))]
    )
    half = request(0, 1, 1, 0.5)
    assert decide(cluster, [half]) == Close("w1")
    assert decide(cluster, [half], reuse_larger=True) == Place(half, ("w1",))


def test_a_trial_waits_for_larger_workers_that_are_busy_and_closes_none_that_it_can_use():
    whole = (("CPU", 1.0), ("GPU", 1.0))
    workers = [idle("w1", resources=whole), replace(idle("w2", resources=whole), phase=Phase.BUSY)]
    cluster = Cluster({"a": {"CPU": 4.0, "GPU": 2.0}}, workers)
    assert decide(cluster, [request(0, 2, 1, 0.5)]) == Close("w1")
    assert decide(cluster, [request(0, 2, 1, 0.5)], reuse_larger=True) == Wait()
    assert decide(cluster, [request(0, 4, 1, 0.5)], reuse_larger=True) == Wait(), (
        "w2 must end first, because both must close for four halves"
    )
    resting = replace(cluster, workers=[idle("w1", resources=whole), idle("w2", resources=whole)])
    assert decide(resting, [request(0, 4, 1, 0.5)], reuse_larger=True) == Close("w1")


def test_parts_of_one_gpu_are_not_put_together_from_two():
    cluster = Cluster({"a": {"CPU": 8.0, "GPU": 2.0}}, [])
    assert decide(cluster, [request(0, 3, 1, 0.6)]) == Wait((request(0, 3, 1, 0.6),))
    assert decide(cluster, [request(0, 2, 1, 0.6)]) == Place(request(0, 2, 1, 0.6), (), ("a", "a"))


def test_what_never_fits_waits_and_nobody_waits_for_it():
    large, small = request(0, 8), request(1, 1)
    cluster = Cluster({"a": {"CPU": 2.0}}, [])
    assert decide(cluster, [large]) == Wait((large,))
    assert decide(cluster, [large, small]) == Place(small, (), ("a",))


def test_a_small_trial_overtakes_a_large_one_once():
    cluster, large, small, fit = (
        Cluster({"a": {"CPU": 2.0}}, [busy("w1")]),
        request(0, 2),
        request(1, 1),
        Request(2, {"CPU": 1.0}),
    )
    assert decide(cluster, [large, small]) == Place(small, (), ("a",))
    queue = served([large, small, request(3, 1)], small)
    assert [r.id for r in queue] == [0, 3] and [r.overtaken for r in queue] == [True, False]
    assert decide(cluster, queue) == Wait()
    assert decide(cluster, [replace(large, is_retry=True), small]) == Wait(), (
        "a trial that was started before is not overtaken"
    )
    assert decide(cluster, [large, fit]) == Wait(), "a fit does not overtake"


def test_with_parked_cpus_idle_workers_lend_theirs():
    fit = Request(0, {"CPU": 1.0})
    large = (("CPU", 2.0),)
    node = {"a": {"CPU": 2.0}}
    assert decide(Cluster(node, [idle("w1", resources=large)], parked=2), [fit]) == Grant(fit, "a")
    assert decide(Cluster(node, [busy("w1", resources=large)], parked=2), [fit]) == Wait()
    two = request(1, 1, 2)
    assert (
        decide(Cluster(node, [idle("w1", resources=large)], [("a", {"CPU": 1.0})], 2), [two])
        == Wait()
    ), "the fit uses one CPU"
    small = request(2, 1)
    assert decide(Cluster(node, [idle("w1", resources=large)], parked=2), [small]) == Place(
        small, (), ("a",)
    ), "it stays"


def test_without_parked_cpus_a_fit_with_tasks_closes_an_idle_worker():
    fit, light = Request(0, {"CPU": 1.0}), Request(1, {"CPU": 1.0}, tasks=False)
    cluster = Cluster({"a": {"CPU": 1.0}}, [idle("w1")])
    assert decide(cluster, [fit]) == Close("w1")
    assert decide(cluster, [light]) == Grant(light, "a")


def test_a_limit_counts_the_workers_of_all_nodes():
    wanted = request(0, 2)
    cluster = Cluster(TWO_NODES, [busy("w1", "a")], limit={"CPU": 2.0})
    assert decide(cluster, [wanted]) == Wait()
    assert decide(replace(cluster, limit={"CPU": 3.0}), [wanted]) == Place(wanted, (), ("b", "b"))
    assert decide(replace(cluster, limit={"CPU": 1.0}), [wanted]) == Wait((wanted,)), (
        "it never fits"
    )


def test_a_gang_that_spreads_stays_under_the_limit():
    wanted, workers = request(0, 2), [busy("w1", "a"), busy("w2", "b")]
    assert decide(Cluster(TWO_NODES, workers, limit={"CPU": 4.0}), [wanted]) == Place(
        wanted, (), ("a", "b")
    )
    assert decide(Cluster(TWO_NODES, workers, limit={"CPU": 3.0}), [wanted]) == Wait()


def test_under_a_limit_an_idle_worker_of_another_node_makes_room():
    large = (("CPU", 2.0),)
    wanted = request(0, 1)
    cluster = Cluster(TWO_NODES, [idle("w1", "a", resources=large)], limit={"CPU": 2.0})
    assert decide(cluster, [wanted]) == Close("w1")
    assert decide(replace(cluster, limit=None), [wanted]) == Place(wanted, (), ("b",))


def elastic(number: int, least: int, most: int) -> Request:
    wanted = Shape(least, CPU, most=most)
    return Request(number, wanted.total, wanted)


def test_an_elastic_trial_gets_all_that_is_free_up_to_its_upper_bound():
    four = {"a": {"CPU": 4.0}}
    assert decide(Cluster(four, []), [elastic(0, 1, 3)]).start == ("a", "a", "a")
    assert decide(Cluster(four, [busy("w1"), idle("w2")]), [elastic(0, 1, 4)]) == Place(
        elastic(0, 1, 4), ("w2",), ("a", "a")
    )
    assert (
        decide(Cluster(four, [busy("w1"), busy("w2"), busy("w3")]), [elastic(0, 2, 4)]) == Wait()
    ), "two are needed"
    assert len(decide(Cluster(TWO_NODES, []), [elastic(0, 1, 9)]).start) == 4, "of all nodes"


def test_an_elastic_trial_leaves_the_waiting_trials_what_they_need():
    four = {"a": {"CPU": 4.0}}
    assert len(decide(Cluster(four, []), [elastic(0, 1, 4), request(1, 2)]).start) == 2
    assert (
        len(decide(Cluster(four, []), [elastic(0, 1, 4), elastic(1, 1, 4), elastic(2, 1, 4)]).start)
        == 2
    )
    assert len(decide(Cluster(four, []), [elastic(0, 1, 4), request(1, 4)]).start) == 4, (
        "it cannot start now anyway"
    )
    assert len(decide(Cluster(four, []), [elastic(0, 1, 4), request(1, 9)]).start) == 4, (
        "it never fits"
    )


def test_a_gang_grows_only_if_no_other_trial_needs_the_resources():
    shape_ = Shape(1, CPU, most=3)
    cluster = Cluster(TWO_NODES, [busy("w1", "b"), idle("w2", "a"), idle("w3", "b")])
    assert growth(cluster, [], shape_, 1, {"b"}, trials_pending=False).workers == ("w3", "w2"), (
        "first on its own node"
    )
    assert growth(cluster, [], shape_, 2, {"b"}, trials_pending=False).workers == ("w3",)
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
    st.booleans(),
)
def test_any_queue_is_served_in_order_within_each_node(wanted, chance, where, reuse_larger):
    """Simulate a pool: requests come, gangs and fits end and workers close at random moments; every
    request is served at last.

    Gangs of elastic trials lose workers and grow at random moments too.
    """
    nodes, parked, limit = where

    def fits_somewhere(need: dict[str, float]) -> bool:
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
            cluster = Cluster(nodes, list(workers.values()), list(grants.values()), parked, limit)
            action = decide(cluster, queue, reuse_larger)
            if isinstance(action, Wait):
                for refused in action.too_large:
                    assert not fits_somewhere(refused.need)
                    queue.remove(refused)
                    left.discard(refused.id)
                break
            if isinstance(action, Close):
                assert workers[action.worker].phase is Phase.IDLE
                workers[action.worker] = replace(workers[action.worker], phase=Phase.CLOSING)
                continue
            large = [r for r in queue[: queue.index(action.request)] if fits_somewhere(r.need)]
            assert not any(r.overtaken or r.is_retry for r in large[:1]), "overtaken again"
            queue = served(queue, action.request)
            left.discard(action.request.id)
            if isinstance(action, Grant):
                grants[action.request.id] = (action.node, dict(action.request.need))
            else:
                members = list(action.workers)
                for number, node in enumerate(action.start):
                    members.append(f"w{clock}-{number}")
                    workers[members[-1]] = WorkerState(
                        members[-1], node, action.request.shape.per_worker, Phase.IDLE
                    )
                assert len(set(members)) in action.request.shape.sizes
                for rank, name in enumerate(members):
                    assert workers[name].phase is Phase.IDLE
                    keys = frozenset({action.request.key})
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
        events = (
            [("trial", i) for i in running]
            + [("fit", i) for i in grants]
            + [("close", i) for i in closing]
        )
        events += [("come", None)] if coming else []
        changing = [i for i in running if trials[i].shape.most is not None]
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
            if len(running[what]) < trials[what].shape.workers:
                for name in running.pop(what):
                    workers[name] = replace(workers[name], phase=Phase.IDLE)
                again = replace(trials[what], is_retry=True)
                queue.insert(queue_position(queue, again), again)
                left.add(what)
        elif kind == "grow":
            cluster = Cluster(nodes, list(workers.values()), list(grants.values()), parked, limit)
            placed = growth(
                cluster,
                queue,
                trials[what].shape,
                len(running[what]),
                {workers[n].node for n in running[what]},
                bool(coming),
            )
            assert placed is None or not (queue or coming), "another trial needs the resources"
            for number, node in enumerate(placed.start if placed else ()):
                workers[f"g{clock}-{number}"] = WorkerState(
                    f"g{clock}-{number}", node, trials[what].shape.per_worker, Phase.IDLE
                )
            check_room()
            for name in placed.workers if placed else ():
                assert workers[name].phase is Phase.IDLE
                workers[name] = replace(workers[name], phase=Phase.BUSY)
                running[what] = [*running[what], name]
            clock += 1
            check_room()
            assert len(running[what]) in trials[what].shape.sizes
        elif kind == "fit":
            del grants[what]
        elif kind == "close":
            del workers[what]
        else:
            for name in running.pop(what):
                workers[name] = replace(workers[name], phase=Phase.IDLE)


def _under(need: dict[str, float], limit: dict[str, float] | None) -> bool:
    return limit is None or fits_into({name: need.get(name, 0.0) for name in limit}, limit)


def _sum(amounts: list[dict[str, float]]) -> dict[str, float]:
    names = {name for amount in amounts for name in amount}
    return {name: sum(amount.get(name, 0.0) for amount in amounts) for name in names}


@given(st.lists(st.booleans(), max_size=12))
def test_a_trial_that_started_before_comes_before_all_that_have_not(again):
    queue: list[Request] = []
    for number, started in enumerate(again):
        entering = Request(number, {"CPU": 1.0}, is_retry=started)
        queue.insert(queue_position(queue, entering), entering)
    assert [r.is_retry for r in queue] == sorted(again, reverse=True)
    for group in (True, False):
        assert [r.id for r in queue if r.is_retry is group] == [
            n for n, s in enumerate(again) if s is group
        ], "first come, first served"


@settings(max_examples=300)
@given(
    nodes=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2)), min_size=1, max_size=3),
    workers=st.integers(1, 4),
    cpu=st.sampled_from([0.5, 1.0, 2.0]),
    gpu=st.sampled_from([0.0, 0.3, 0.5, 0.6, 1.0, 2.0]),
)
def test_a_trial_that_does_not_fit_lacks_something(nodes, workers, cpu, gpu):
    cluster = {
        str(i): {"CPU": float(cpus), "GPU": float(gpus)} for i, (cpus, gpus) in enumerate(nodes)
    }
    total = {name: sum(node[name] for node in cluster.values()) for name in ("CPU", "GPU")}
    waits = decide(Cluster(cluster, []), [wanted := request(0, workers, cpu, gpu)])
    too_large = isinstance(waits, Wait) and wanted in waits.too_large
    assert too_large is (missing_resources(wanted.shape, total, list(cluster.values())) is not None)


@given(st.floats(0, 64), st.none() | st.floats(0, 64))
def test_workers_leave_an_eighth_of_the_cpus_to_streams_and_at_least_one(cpus, limit):
    left = without_reserve(None if limit is None else {"CPU": limit, "GPU": 2.0}, cpus)
    most = cpus if limit is None else min(cpus, limit)
    assert left["CPU"] == max(0.0, most - max(1, most // 8))
    assert limit is None or left["GPU"] == 2.0


def test_a_gang_that_would_need_the_cpus_of_streams_waits():
    cluster = Cluster({"a": {"CPU": 2.0}}, (), limit=without_reserve(None, 2.0))
    assert isinstance(decide(cluster, [request(0, 2)]), Wait)
    assert isinstance(decide(cluster, [request(0, 1)]), Place)
