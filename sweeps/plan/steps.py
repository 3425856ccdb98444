"""Estimate the number of steps of all trials under a scheduler: the smallest, a typical and the largest number. A step is one report."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from sweeps.core.trial import Action
from sweeps.search.schedulers.base import Scheduler, all_rungs
from sweeps.search.schedulers.view import StudyView, TrialView

# Largest number of trials to simulate. For later trials, `Scheduler.late_trial_steps` estimates the number of steps.
SIMULATED = 256


@dataclass(frozen=True)
class StepCount:
    """Number of steps of all trials together. The estimate assumes that no training loop returns before the scheduler ends the trial.

    Attributes:
        least: Lower bound; see `count_steps`.
        typical: Median over simulated sweeps. In the simulation, each trial has a random value, which is the same at every rung.
        most: Number of steps if every trial continues to `max_t`.
        rungs: Steps at which trials are compared; empty if the scheduler does not stop trials.
        max_t: Step at which a trial ends.
        every: True if trials are compared at every step from `rungs[0]` on. In this case, `rungs` has one element.
    """

    least: int
    typical: int
    most: int
    rungs: tuple[int, ...]
    max_t: int
    every: bool = False


def count_steps(scheduler: Scheduler, trials: int, concurrency: int, seed: int = 0, repeats: int = 0) -> StepCount | None:
    """Estimate the number of steps of all trials under a scheduler. Return None if the scheduler has no `max_t`.

    The lower bound assumes that each trial is worse than all earlier trials, so that the scheduler stops as many trials as possible (see
    `Scheduler.min_steps`). If all values are NaN, the sweep takes fewer steps than this bound, because a trial with NaN never continues.
    The upper bound assumes that each trial is better than all earlier trials, so that no trial is stopped.

    Args:
        scheduler: Scheduler that decides which trials stop early.
        trials: Number of trials.
        concurrency: Number of concurrent trials.
        seed: Seed of the sweep, from which brackets are drawn.
        repeats: Number of repeats of each trial that reaches `max_t`.
    """
    if scheduler.max_t is None:
        return None
    rungs, max_t, most = all_rungs(scheduler), scheduler.max_t, trials * scheduler.max_t * (1 + repeats)
    if not scheduler.stops or not rungs:
        return StepCount(most, most, most, (), max_t)
    least = scheduler.min_steps(trials, seed) + repeats * scheduler.min_complete(trials, seed) * max_t
    between = min(max(typical_steps(scheduler, trials, concurrency, repeats), least), most)
    if isinstance(rungs, range) and rungs.step == 1:
        return StepCount(least, between, most, (rungs[0],), max_t, every=True)
    return StepCount(least, between, most, tuple(rungs), max_t)


def typical_steps(scheduler: Scheduler, trials: int, concurrency: int, repeats: int = 0) -> int:
    """Return the median number of steps over simulated sweeps.

    At most `SIMULATED` trials are simulated. Each further trial is counted with the steps that `Scheduler.late_trial_steps` returns. If
    that method returns None, each further trial is counted with the average of the simulated trials.

    Args:
        scheduler: A scheduler with a `max_t`.
        trials: Number of trials.
        concurrency: Number of concurrent trials.
        repeats: Number of repeats of each trial that reaches `max_t`.
    """
    few = min(trials, SIMULATED)
    assert scheduler.max_t is not None
    last = repeats * scheduler.max_t
    totals = []
    for seed in range(max(5, min(41, 1000 // few) | 1)):
        rng = random.Random(seed)
        lengths = simulate(scheduler, few, concurrency, [rng.random() for _ in range(few)].__getitem__, seed)
        totals.append(sum(length + last * (length == scheduler.max_t) for length in lengths))
    if (late := scheduler.late_trial_steps(repeats)) is None:
        return round(median(totals) * trials / few)
    return round(median(totals) + (trials - few) * late)


def simulate(scheduler: Scheduler, trials: int, concurrency: int, quality: Callable[[int], float], seed: int = 0) -> list[int]:
    """Simulate a sweep in which every step takes the same time, and return the number of steps of each trial.

    Args:
        scheduler: A scheduler with a `max_t`. A trial that the scheduler pauses is not continued.
        trials: Number of trials. The next trial starts as soon as a running trial ends.
        concurrency: Number of concurrent trials.
        quality: Function that returns a trial's value, given its number. The value is the same at every rung; smaller is better.
        seed: Seed of the simulated sweep, for schedulers that draw numbers.
    """
    assert scheduler.max_t is not None
    view, started, taken = StudyView(seed=seed), 0, [0] * trials
    ends: dict[int, tuple[int, ...]] = {}  # steps at which a trial waits or ends, by trial number
    events: list[tuple[int, int, int]] = []  # (time, trial, index in its `ends`), a heap

    def start(now: int) -> None:
        nonlocal started
        bracket = scheduler.bracket(seed, started)
        assert scheduler.max_t is not None
        view.trials[started] = TrialView(started, bracket)
        ends[started] = (*scheduler.rungs(bracket), scheduler.max_t)
        heapq.heappush(events, (now + ends[started][0], started, 0))
        started += 1

    for _ in range(min(concurrency, trials)):
        start(0)
    while events:
        now, number, i = heapq.heappop(events)
        taken[number] = step = ends[number][i]
        if i + 1 < len(ends[number]):
            view.trials[number].values[step] = quality(number)
            if scheduler.decide(view, number, step).action in (Action.CONTINUE, Action.EXPLOIT):
                heapq.heappush(events, (now + ends[number][i + 1] - step, number, i + 1))
                continue
        view.trials[number].running = False
        if started < trials:
            start(now)
    return taken
