"""The time left, reckoned from when trials began and ended."""

from __future__ import annotations

import heapq
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeps.controller.eta import RunningTrial, mean_interval, time_left, time_to_stops
from sweeps.core.trial import Action
from sweeps.search.schedulers.asha import Asha
from sweeps.search.schedulers.none import NoScheduler
from tests.search.test_schedulers import decided


def rounds(
    count: int, concurrency: int, each: float, start: float = 0.0
) -> list[tuple[float, float]]:
    """(begin, end) of trials that take equally long, but for the first, which wait for their
    workers to start.
    """
    spans: list[tuple[float, float]] = []
    for i in range(count):
        begin = spans[i - concurrency][1] if i >= concurrency else 0.0
        spans.append((begin, begin + each + (start if i < concurrency else 0.0)))
    return spans


def test_nobody_can_tell_before_some_have_ended():
    assert time_left(5.0, 16, [], [RunningTrial(5.0)], 1, None) is None
    assert time_left(9.0, 16, rounds(2, 1, 4.0), [RunningTrial(1.0)], 1, None) is None
    assert time_left(13.0, 16, rounds(3, 1, 4.0), [RunningTrial(1.0)], 1, None) is not None
    assert time_left(4.0, 16, rounds(4, 4, 4.0), [RunningTrial(0.0)] * 4, 4, None) is None, (
        "the first round ends as one"
    )


@pytest.mark.parametrize("concurrency", [1, 3, 4, 16])
def test_the_first_trials_start_up_does_not_count(concurrency):
    ended = rounds(2 * concurrency + 1, concurrency, 10.0, start=30.0)
    now = ended[-1][1]
    running = [
        RunningTrial(now - begin)
        for begin, end in rounds(3 * concurrency, concurrency, 10.0, 30.0)[2 * concurrency + 1 :]
    ]
    left = time_left(now, 5 * concurrency, ended, running, concurrency, None)
    true = rounds(5 * concurrency, concurrency, 10.0, start=30.0)[-1][1] - now
    assert left is not None and left.seconds == pytest.approx(true, rel=0.35)


def test_it_says_how_it_was_reckoned():
    left = time_left(40.0, 16, rounds(10, 1, 4.0), [RunningTrial(0.0)], 1, None)
    assert left is not None and left.seconds == pytest.approx(24.0) and not left.at_most
    assert left.how == "6 trials left, one every 4 s (mean of the last 8)"


def test_the_pace_is_that_of_late():
    slow_then_fast = [(i * 10.0, (i + 1) * 10.0) for i in range(10)] + [
        (100.0 + i, 101.0 + i) for i in range(20)
    ]
    every, count = mean_interval([end for _, end in slow_then_fast], 1) or (0, 0)
    assert every == 1.0 and count == 15


def test_the_last_trials_go_at_their_own_pace():
    ended = rounds(14, 2, 4.0)
    left = time_left(
        30.0, 16, ended, [RunningTrial(2.0, (1.0, 1.0)), RunningTrial(2.0, (10.0, 40.0))], 2, None
    )
    assert (
        left is not None
        and left.seconds == 25.0
        and left.how == "from the pace of the last 2 trials"
    )
    assert time_left(1.0, 1, [], [RunningTrial(1.0, (3.0, 3.0))], 1, None) is not None, (
        "steps tell as much as trials that have ended"
    )


def test_a_last_trial_that_takes_longer_than_all_others_leaves_one_in_the_dark():
    assert time_left(100.0, 15, rounds(14, 2, 4.0), [RunningTrial(72.0)], 2, None) is None


def test_it_promises_no_more_than_the_time_limit():
    left = time_left(40.0, 160, rounds(10, 1, 4.0), [RunningTrial(0.0)], 1, 100.0)
    assert left is not None and left.seconds == 60.0 and left.how == "time limit" and left.at_most
    early = time_left(5.0, 16, [], [RunningTrial(5.0)], 1, 100.0)
    assert early is not None and early.seconds == 95.0 and early.at_most, (
        "known before any trial has ended"
    )
    assert time_left(40.0, 16, rounds(10, 1, 4.0), [RunningTrial(0.0)], 1, 100.0) == time_left(
        40.0, 16, rounds(10, 1, 4.0), [RunningTrial(0.0)], 1, None
    )


def test_milestones_ahead():
    assert time_to_stops((1, 10.0), (3, 14.0), (9, 27), 15.0) == (11.0, 47.0)
    assert time_to_stops((1, 10.0), (10, 28.0), (9, 27), 28.0) == (34.0, 34.0)
    assert time_to_stops((3, 14.0), (3, 14.0), (9, 27), 15.0) is None, "one report has no pace"
    assert time_to_stops((1, 1.0), (2, 2.0), (), 3.0) is None, "a loop without a last step"


@given(
    st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100)), max_size=40),
    st.lists(st.floats(0, 1e4), max_size=8),
    st.integers(1, 8),
    st.integers(0, 50),
    st.none() | st.floats(0, 1e4),
)
def test_it_is_never_negative_and_never_beyond_the_limit(
    ended, running, concurrency, more, timeout
):
    ended = sorted(((b, b + e) for b, e in ended), key=lambda span: span[1])
    now = (ended[-1][1] if ended else 0.0) + 1.0
    left = time_left(
        now,
        len(ended) + len(running) + more,
        ended,
        [RunningTrial(r) for r in running],
        concurrency,
        timeout,
    )
    assert left is None or left.seconds >= 0
    assert timeout is None or (left is not None and left.seconds <= max(0.0, timeout - now))


def simulated(
    seed: int,
    total: int,
    concurrency: int,
    scheduler: Asha | NoScheduler,
    max_t: int,
    start: float = 10.0,
) -> list[float]:
    """How wrong the time left was, as a factor, at every report of a simulated sweep after a fifth
    of its trials.
    """
    draw = random.Random(seed)
    line: list[tuple[float, int]] = []
    running: dict[int, dict] = {}
    rungs: dict[int, list[float]] = {}
    ended: list[tuple[float, float]] = []
    said: list[tuple[float, float]] = []
    now, begun = 0.0, 0
    while begun < total or line:
        while begun < total and len(running) < concurrency:
            each = 0.1 * draw.lognormvariate(0, 0.4)
            running[begun] = {
                "begun": now,
                "each": each,
                "quality": draw.gauss(-begun / total, 1),
                "steps": [],
            }
            heapq.heappush(
                line, (now + each + 0.2 + (start if begun < concurrency else 0.0), begun)
            )
            begun += 1
        now, trial = heapq.heappop(line)
        run = running[trial]
        run["steps"].append((step := len(run["steps"]) + 1, now))
        stop = step == max_t
        if step in scheduler.rungs():
            value = run["quality"] + draw.gauss(0, 0.5) / step
            stop = decided(scheduler, rungs.setdefault(step, []), value) is Action.STOP
            rungs[step].append(value)
        if stop:
            ended.append((running.pop(trial)["begun"], now))
        else:
            heapq.heappush(line, (now + run["each"], trial))
        stops = (*scheduler.rungs(), max_t)
        going = [
            RunningTrial(
                now - r["begun"],
                time_to_stops(r["steps"][0], r["steps"][-1], stops, now) if r["steps"] else None,
            )
            for r in running.values()
        ]
        left = time_left(now, total, ended, going, concurrency, None)
        if left is not None and len(ended) > total / 5:
            said.append((now, left.seconds))
    return [max(s, now - at, 1.0) / max(1.0, min(s, now - at)) for at, s in said]


@pytest.mark.parametrize("concurrency", [2, 8])
@pytest.mark.parametrize("scheduler", [Asha(50, 5, 3), NoScheduler(50)], ids=["asha", "none"])
def test_a_simulated_sweep_ends_about_when_it_was_said(concurrency, scheduler):
    wrong = [
        factor for seed in range(5) for factor in simulated(seed, 48, concurrency, scheduler, 50)
    ]
    assert statistics.median(wrong) < 1.7 and sorted(wrong)[int(0.9 * len(wrong))] < 2.6
