"""The pool's decision, played through with every kind of line: it never over-commits, never sticks, serves in order."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from sweeps.core.resources import Shape, fits
from sweeps.execution.allocation import Evict, GangState, Phase, Refuse, Request, Reuse, Start, Wait, decide, position

CLUSTER = {"CPU": 4.0, "GPU": 1.0}


def shape(workers: int, cpu: float = 1.0, gpu: float = 0.0) -> Shape:
    return Shape(workers, tuple(sorted({"CPU": cpu, **({"GPU": gpu} if gpu else {})}.items())))


SHAPES = [shape(1), shape(2), shape(4), shape(1, 2), shape(1, 1, 1), shape(2, 1, 0.5), shape(1, 0.5)]


def test_an_idle_gang_of_the_shape_is_reused():
    idle = GangState("a", shape(2), Phase.IDLE, 1)
    request = Request(0, shape(2).total, shape(2))
    assert decide({"CPU": 2.0}, [idle], [], [request]) == Reuse(request, "a")


def test_the_least_recently_used_gang_makes_room():
    gangs = [GangState("old", shape(1), Phase.IDLE, 1), GangState("new", shape(1), Phase.IDLE, 2)]
    request = Request(0, shape(2).total, shape(2))
    assert decide({"CPU": 2.0}, gangs, [], [request]) == Evict("old")


def test_nothing_more_is_evicted_than_the_head_needs():
    gangs = [GangState("closing", shape(2), Phase.CLOSING, 1), GangState("idle", shape(2), Phase.IDLE, 2)]
    request = Request(0, shape(1, 2).total, shape(1, 2))
    assert decide(CLUSTER, gangs, [], [request]) == Wait()


def test_a_fit_takes_the_place_of_an_idle_gang_but_waits_for_a_busy_one():
    fit = Request(0, {"CPU": 1.0})
    assert decide({"CPU": 2.0}, [GangState("a", shape(2), Phase.IDLE)], [], [fit]) == Evict("a")
    assert decide({"CPU": 2.0}, [GangState("a", shape(2), Phase.BUSY)], [], [fit]) == Wait()
    assert decide({"CPU": 2.0}, [GangState("a", shape(1), Phase.BUSY)], [], [fit]) == Start(fit)


def test_shapes_that_can_never_fit_are_refused():
    request = Request(0, shape(8).total, shape(8))
    assert decide(CLUSTER, [], [], [request]) == Refuse(request)


def test_a_small_request_does_not_overtake_a_large_one():
    busy = GangState("a", shape(1), Phase.BUSY)
    large, small = Request(0, shape(2).total, shape(2)), Request(1, shape(1).total, shape(1))
    assert decide({"CPU": 2.0}, [busy], [], [large, small]) == Wait()


FITS = [Request(0, {"CPU": cpus}, tasks=tasks) for cpus in (1.0, 2.0, 4.0) for tasks in (True, False)]
requests = st.lists(st.one_of(st.sampled_from(SHAPES), st.sampled_from(FITS)), min_size=1, max_size=30)


def test_with_a_spare_cpu_a_fit_borrows_from_an_idle_gang_and_gives_back():
    fit, trial = Request(0, {"CPU": 1.0}), Request(1, shape(2).total, shape(2))
    idle = GangState("a", shape(2), Phase.IDLE)
    room = {"CPU": 2.0}
    assert decide({"CPU": 2.0}, [idle], [], [fit, trial], room) == Start(fit)
    assert decide({"CPU": 2.0}, [idle], [{"CPU": 1.0}], [trial], room) == Wait()
    assert decide({"CPU": 2.0}, [idle], [], [trial], room) == Reuse(trial, "a")
    busy = GangState("a", shape(2), Phase.BUSY)
    assert decide({"CPU": 2.0}, [busy], [], [fit], room) == Wait()


def test_a_fit_without_tasks_borrows_from_an_idle_gang_on_a_foreign_ray_too():
    fit, trial, other = (
        Request(0, {"CPU": 1.0}, tasks=False),
        Request(1, shape(2).total, shape(2)),
        Request(2, shape(1, 2).total, shape(1, 2)),
    )
    idle, busy = GangState("a", shape(2), Phase.IDLE), GangState("a", shape(2), Phase.BUSY)
    assert decide({"CPU": 2.0}, [idle], [], [fit, trial]) == Start(fit)
    assert decide({"CPU": 2.0}, [idle], [{"CPU": 1.0}], [trial]) == Wait(), "it has borrowed"
    assert decide({"CPU": 2.0}, [idle], [], [trial]) == Reuse(trial, "a")
    assert decide({"CPU": 2.0}, [busy], [], [fit]) == Wait()
    assert decide({"CPU": 2.0}, [idle], [{"CPU": 1.0}], [other]) == Evict("a")


def test_an_idle_gang_stays_if_there_is_room_for_another_shape():
    one, two = Request(0, shape(1).total, shape(1)), Request(1, shape(2).total, shape(2))
    idle, busy = GangState("two", shape(2), Phase.IDLE, 1), GangState("one", shape(1), Phase.BUSY, 2)
    assert decide({"CPU": 2.0}, [idle], [], [one], {"CPU": 4.0}) == Start(one)
    assert decide({"CPU": 2.0}, [idle, busy], [], [two], {"CPU": 4.0}) == Wait()  # who computes at once has no more than there is
    assert decide({"CPU": 2.0}, [idle, GangState("one", shape(1), Phase.IDLE, 2)], [], [two], {"CPU": 4.0}) == Reuse(two, "two")
    other = Request(2, shape(1, 2).total, shape(1, 2))
    full = [idle, GangState("one", shape(1), Phase.IDLE, 2), GangState("1", shape(1), Phase.IDLE, 3)]
    assert decide({"CPU": 2.0}, full, [], [other], {"CPU": 4.0}) == Evict("two")


def test_the_gang_that_has_the_data_is_preferred():
    gangs = [GangState("a", shape(1), Phase.IDLE, 1, frozenset({"k"})), GangState("b", shape(1), Phase.IDLE, 2, frozenset({"other"}))]
    request = Request(0, shape(1).total, shape(1), "k")
    assert decide(CLUSTER, gangs, [], [request]) == Reuse(request, "a")
    assert decide(CLUSTER, gangs, [], [Request(0, shape(1).total, shape(1), "new")]).gang == "b"


@settings(max_examples=400)
@given(requests, st.randoms(use_true_random=False), st.sampled_from([None, CLUSTER, {**CLUSTER, "CPU": 7.0}]))
def test_any_line_is_served_in_order_within_the_cluster(wanted, chance, room):
    """Plays a pool: requests come, gangs work and close at random moments, and everyone is served at last."""
    line = [Request(i, w.total, w) if isinstance(w, Shape) else replace(w, id=i) for i, w in enumerate(wanted)]
    coming, waiting = list(line), []
    gangs: dict[str, GangState] = {}
    granted: dict[int, dict[str, float]] = {}
    borrowed = {request.id for request in line if request.shape is None and (room or not request.tasks)}
    served: list[int] = []
    clock = 0
    while len(served) < len(line):
        while True:
            action = decide(CLUSTER, list(gangs.values()), list(granted.values()), waiting, room)
            clock += 1
            if isinstance(action, Reuse):
                assert gangs[action.gang].phase is Phase.IDLE and gangs[action.gang].shape == action.request.shape
                gangs[action.gang] = GangState(action.gang, action.request.shape, Phase.BUSY, clock)
            elif isinstance(action, Start) and action.request.shape is None:
                granted[action.request.id] = dict(action.request.need)
            elif isinstance(action, Start):
                gangs[f"g{clock}"] = GangState(f"g{clock}", action.request.shape, Phase.BUSY, clock)
            elif isinstance(action, Evict):
                g = gangs[action.gang]
                assert g.phase is Phase.IDLE
                gangs[g.id] = GangState(g.id, g.shape, Phase.CLOSING, g.used)
                continue
            else:
                assert isinstance(action, Wait), action
                break
            assert action.request is waiting[0], "served out of order"
            served.append(waiting.pop(0).id)
            held = {name: sum(g.shape.total.get(name, 0) for g in gangs.values()) for name in CLUSTER}
            work = {name: sum(g.shape.total.get(name, 0) for g in gangs.values() if g.phase is Phase.BUSY) for name in CLUSTER}
            work["CPU"] += sum(g["CPU"] for g in granted.values())
            held["CPU"] += sum(g["CPU"] for i, g in granted.items() if i not in borrowed)
            assert fits(held, room or CLUSTER) and fits(work, CLUSTER), "over-committed"
        events = [("end", g) for g in gangs.values() if g.phase is not Phase.IDLE] + [("fit", i) for i in granted]
        if coming:
            events.append(("come", None))
        if not events:
            assert len(served) == len(line), "nothing can happen any more, and someone still waits"
            break
        kind, what = chance.choice(events)
        if kind == "come":
            waiting.append(coming.pop(0))
        elif kind == "fit":
            del granted[what]
        elif what.phase is Phase.CLOSING:
            del gangs[what.id]
        else:
            gangs[what.id] = GangState(what.id, what.shape, Phase.IDLE, what.used)


def test_a_gang_that_cannot_make_room_is_not_closed():
    gangs = [GangState("cpus", shape(2), Phase.IDLE, 1), GangState("gpu", shape(1, 1, 1), Phase.BUSY, 2)]
    request = Request(0, shape(1, 1, 1).total, shape(1, 1, 1))
    assert decide(CLUSTER, gangs, [], [request]) == Wait()


@given(st.lists(st.booleans(), max_size=12))
def test_r17_retries_wait_before_new_trials_and_behind_earlier_retries(again):
    line: list[Request] = []
    for number, who in enumerate(again):
        request = Request(number, {"CPU": 1.0}, again=who)
        line.insert(position(line, request), request)
    assert [r.again for r in line] == sorted(again, reverse=True)
    for group in (True, False):
        assert [r.id for r in line if r.again is group] == [n for n, who in enumerate(again) if who is group], "first come, first served"
