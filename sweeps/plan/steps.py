"""Estimate the steps that a scheduler will spend on all trials: the least, a typical number, and the most. A step is one report."""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from sweeps.core.trial import Decision
from sweeps.search.schedulers.rules import Asha, Hyperband, Median, Scheduler

# Simulate at most this many trials. Of later trials, the share that passes a rung is taken to be the scheduler's target.
SIMULATED = 256


@dataclass(frozen=True)
class StepCount:
    """Number of steps of all trials together, if no loop ends before the scheduler ends the trial.

    Attributes:
        least: See `count_steps`.
        typical: Median over simulated sweeps, in which the trials have a random rank that is the same at every rung.
        most: The number if every trial continues to `max_t`.
        rungs: Steps at which trials are compared.
        max_t: Step at which a trial ends.
        every: Whether trials are compared at every step from `rungs[0]` on. `rungs` then has one element.
    """

    least: int
    typical: int
    most: int
    rungs: tuple[int, ...]
    max_t: int
    every: bool = False


def count_steps(scheduler: Scheduler, trials: int, at_once: int, seed: int = 0, again: int = 0) -> StepCount | None:
    """Return how many steps a scheduler spends; None if trials end only with their loops.

    Lower bound: the first value at a rung always continues, because no better value is known. So at least one trial passes every rung
    and reaches `max_t`. All others stop at the first rung if each trial is worse than the one before. The n-th trial then has n - 1
    better ones, and `ceil(n / reduction_factor) > n - 1` holds only for n = 1. (A NaN never continues, so a sweep with nothing but NaN
    takes fewer steps.)

    Upper bound: if each trial is better than all before it, no trial is stopped.

    Args:
        scheduler: The scheduler.
        trials: Number of trials.
        at_once: Number of concurrent trials.
        seed: Seed of the sweep, from which brackets are drawn.
        again: Number of repeats of each trial that reaches `max_t`.
    """
    if scheduler.max_t is None:
        return None
    rungs, max_t, most = scheduler.rungs, scheduler.max_t, trials * scheduler.max_t * (1 + again)
    ending = min_complete_trials(scheduler, trials, seed)
    if isinstance(scheduler, Hyperband) and rungs:
        sizes = Counter(scheduler.bracket(seed, number) for number in range(trials))
        least = sum(max_t + (n - 1) * scheduler.grace_periods[bracket] for bracket, n in sizes.items())
    elif isinstance(scheduler, (Asha, Median)) and rungs:
        least = ending * max_t + (trials - ending) * rungs[0]
    else:
        return StepCount(most, most, most, (), max_t)
    least += again * ending * max_t
    between = min(max(typical_steps(scheduler, trials, at_once, again), least), most)
    if isinstance(rungs, range):
        return StepCount(least, between, most, (rungs[0],), max_t, every=True)
    return StepCount(least, between, most, tuple(rungs), max_t)


def min_complete_trials(scheduler: Scheduler, trials: int, seed: int = 0) -> int:
    """Return the least number of trials that reach `max_t`; see the lower bound of `count_steps`."""
    if not scheduler.rungs:
        return trials
    if isinstance(scheduler, Hyperband):
        return len({scheduler.bracket(seed, number) for number in range(trials)})
    if isinstance(scheduler, Median):
        return min(trials, scheduler.min_trials)
    return 1 if isinstance(scheduler, Asha) else trials


def typical_steps(scheduler: Asha | Median, trials: int, at_once: int, again: int = 0) -> int:
    """Return the median number of steps over simulated sweeps.

    Trials beyond `SIMULATED` are extrapolated. Under ASHA they pass each rung with its target probability. Under other schedulers they
    take as many steps as the simulated trials.
    """
    few = min(trials, SIMULATED)
    assert scheduler.max_t is not None
    last = again * scheduler.max_t
    sweeps = (trial_lengths(scheduler, few, at_once, seed) for seed in range(max(5, min(41, 1000 // few) | 1)))
    totals = [sum(length + last * (length == scheduler.max_t) for length in taken) for taken in sweeps]
    if not isinstance(scheduler, Asha) or isinstance(scheduler, Hyperband):
        return round(median(totals) * trials / few)
    ends = (*scheduler.rungs, scheduler.max_t)
    late = ends[0] + sum((b - a) / scheduler.reduction_factor ** (i + 1) for i, (a, b) in enumerate(itertools.pairwise(ends)))
    late += last / scheduler.reduction_factor ** len(scheduler.rungs)
    return round(median(totals) + (trials - few) * late)


def trial_lengths(scheduler: Scheduler, trials: int, at_once: int, seed: int = 0) -> list[int]:
    """Return the number of steps of the first `SIMULATED` trials in a simulated sweep, whose trials have a random rank."""
    few = min(trials, SIMULATED)
    if scheduler.max_t is None:
        return [1] * few
    rng = random.Random(seed)
    return simulate(scheduler, few, at_once, [rng.random() for _ in range(few)].__getitem__)


def simulate(scheduler: Scheduler, trials: int, at_once: int, quality: Callable[[int], float]) -> list[int]:
    """Return the number of steps of each trial, if every step takes the same time.

    Args:
        scheduler: A scheduler with a `max_t`.
        trials: Number of trials. A trial starts as soon as another ends.
        at_once: Number of concurrent trials.
        quality: Returns the value of a trial at every rung, by its number; smaller is better.
    """
    assert scheduler.max_t is not None
    ends = (*scheduler.rungs, scheduler.max_t)
    values: defaultdict[tuple[int, int], list[float]] = defaultdict(list)  # by bracket and rung
    bracket = [scheduler.bracket(0, number) for number in range(trials)]
    taken = [0] * trials
    begun = min(at_once, trials)
    events = [(ends[0], number, 0) for number in range(begun)]  # (time, trial, index in `ends`)
    while events:
        now, number, i = heapq.heappop(events)
        taken[number] = ends[i]
        if i < len(scheduler.rungs):
            others = values[bracket[number], i]
            verdict = scheduler.verdict(others, quality(number), True, ends[i], bracket[number])
            others.append(quality(number))
            if verdict is Decision.CONTINUE:
                heapq.heappush(events, (now + ends[i + 1] - ends[i], number, i + 1))
                continue
        if begun < trials:
            heapq.heappush(events, (now + ends[0], begun, 0))
            begun += 1
    return taken
