"""Steps, which are reports of the loop, that a scheduler will spend on all trials: at least, typically and at most."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from sweeps.search.verdicts import Asha, Scheduler
from sweeps.trial import Verdict

# Trials that are simulated at most; of those after them as many pass a rung as should, within a tenth.
SIMULATED = 256


@dataclass(frozen=True)
class Steps:
    """Steps of all trials together, if no loop ends before the scheduler ends it.

    Attributes:
        least: see `steps`.
        typical: the median over simulated sweeps whose trials come in random order of quality, and keep that order at every rung.
        most: every trial goes on to `max_t`.
        rungs: the steps at which trials are compared.
        max_t: the step at which a trial ends.
    """

    least: int
    typical: int
    most: int
    rungs: tuple[int, ...]
    max_t: int


def steps(scheduler: Scheduler, trials: int, at_once: int) -> Steps | None:
    """The bounds of what a scheduler spends; None where nothing but the loop ends a trial.

    At least: of all values at a rung the first goes on, as there is none better on record. So one trial at least comes to every
    rung, and to `max_t`. Every other may be stopped at the first rung, and is where each trial is worse than the one before: the n-th
    has n - 1 better ones, and is let go on by more than that, ceil(n / reduction_factor) > n - 1, for n = 1 alone. (A NaN never goes
    on: a sweep of nothing but NaN takes less.)

    At most: where each trial is better than all before, none is stopped.

    Args:
        scheduler: what stops trials.
        trials: how many begin.
        at_once: how many run side by side.
    """
    if scheduler.max_t is None:
        return None
    rungs, most = scheduler.rungs, trials * scheduler.max_t
    if not rungs or not isinstance(scheduler, Asha):
        return Steps(most, most, most, rungs, scheduler.max_t)
    least = scheduler.max_t + (trials - 1) * rungs[0]
    return Steps(least, min(max(typical(scheduler, trials, at_once), least), most), most, rungs, scheduler.max_t)


def typical(scheduler: Asha, trials: int, at_once: int) -> int:
    """The median of simulated sweeps. Of many trials the later ones are taken to pass each rung as seldom as ASHA means them to."""
    few = min(trials, SIMULATED)
    totals = [sum(lengths(scheduler, few, at_once, seed)) for seed in range(max(5, min(41, 1000 // few) | 1))]
    ends = (*scheduler.rungs, scheduler.max_t)
    late = ends[0] + sum((b - a) / scheduler.reduction_factor ** (i + 1) for i, (a, b) in enumerate(itertools.pairwise(ends)))
    return round(median(totals) + (trials - few) * late)


def lengths(scheduler: Scheduler, trials: int, at_once: int, seed: int = 0) -> list[int]:
    """The steps of each trial in a simulated sweep, in a random order of quality; of the first `SIMULATED` trials alone."""
    few = min(trials, SIMULATED)
    if scheduler.max_t is None:
        return [1] * few
    rng = random.Random(seed)
    return simulate(scheduler, few, at_once, [rng.random() for _ in range(few)].__getitem__)


def simulate(scheduler: Scheduler, trials: int, at_once: int, quality: Callable[[int], float]) -> list[int]:
    """The steps that each trial takes where every step takes the same time.

    Args:
        scheduler: with a `max_t`.
        trials: how many begin, one as soon as another ends.
        at_once: how many run side by side.
        quality: a trial's value at every rung; smaller is better.
    """
    assert scheduler.max_t is not None
    ends = (*scheduler.rungs, scheduler.max_t)
    known: list[list[float]] = [[] for _ in scheduler.rungs]
    taken = [0] * trials
    begun = min(at_once, trials)
    coming = [(ends[0], number, 0) for number in range(begun)]  # when, which trial, to which of the ends
    while coming:
        now, number, i = heapq.heappop(coming)
        taken[number] = ends[i]
        if i < len(known):
            verdict = scheduler.verdict(known[i], quality(number), minimize=True)
            known[i].append(quality(number))
            if verdict is Verdict.CONTINUE:
                heapq.heappush(coming, (now + ends[i + 1] - ends[i], number, i + 1))
                continue
        if begun < trials:
            heapq.heappush(coming, (now + ends[0], begun, 0))
            begun += 1
    return taken
