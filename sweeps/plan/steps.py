"""Steps, which are reports of the loop, that a scheduler will spend on all trials: at least, typically and at most."""

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
        every: trials are compared at every step from the first of `rungs` on, which has no more.
    """

    least: int
    typical: int
    most: int
    rungs: tuple[int, ...]
    max_t: int
    every: bool = False


def steps(scheduler: Scheduler, trials: int, at_once: int, seed: int = 0, again: int = 0) -> Steps | None:
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
        seed: the sweep's, of which brackets are drawn.
        again: how often each trial that comes to `max_t` is repeated, to the same end.
    """
    if scheduler.max_t is None:
        return None
    rungs, max_t, most = scheduler.rungs, scheduler.max_t, trials * scheduler.max_t * (1 + again)
    ending = whole(scheduler, trials, seed)
    if isinstance(scheduler, Hyperband) and rungs:
        sizes = Counter(scheduler.bracket(seed, number) for number in range(trials))
        least = sum(max_t + (n - 1) * scheduler.grace_periods[bracket] for bracket, n in sizes.items())
    elif isinstance(scheduler, (Asha, Median)) and rungs:
        least = ending * max_t + (trials - ending) * rungs[0]
    else:
        return Steps(most, most, most, (), max_t)
    least += again * ending * max_t
    between = min(max(typical(scheduler, trials, at_once, again), least), most)
    if isinstance(rungs, range):
        return Steps(least, between, most, (rungs[0],), max_t, every=True)
    return Steps(least, between, most, tuple(rungs), max_t)


def whole(scheduler: Scheduler, trials: int, seed: int = 0) -> int:
    """How many trials come to their end at least: the first that comes to a rung goes on. See `steps`."""
    if not scheduler.rungs:
        return trials
    if isinstance(scheduler, Hyperband):
        return len({scheduler.bracket(seed, number) for number in range(trials)})
    if isinstance(scheduler, Median):
        return min(trials, scheduler.min_trials)
    return 1 if isinstance(scheduler, Asha) else trials


def typical(scheduler: Asha | Median, trials: int, at_once: int, again: int = 0) -> int:
    """The median of simulated sweeps. Of many trials the later ones are taken to pass each rung as seldom as ASHA means them to, and under
    another scheduler to take as long as the others."""
    few = min(trials, SIMULATED)
    assert scheduler.max_t is not None
    last = again * scheduler.max_t
    sweeps = (lengths(scheduler, few, at_once, seed) for seed in range(max(5, min(41, 1000 // few) | 1)))
    totals = [sum(length + last * (length == scheduler.max_t) for length in taken) for taken in sweeps]
    if not isinstance(scheduler, Asha) or isinstance(scheduler, Hyperband):
        return round(median(totals) * trials / few)
    ends = (*scheduler.rungs, scheduler.max_t)
    late = ends[0] + sum((b - a) / scheduler.reduction_factor ** (i + 1) for i, (a, b) in enumerate(itertools.pairwise(ends)))
    late += last / scheduler.reduction_factor ** len(scheduler.rungs)
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
    known: defaultdict[tuple[int, int], list[float]] = defaultdict(list)  # by bracket and rung
    bracket = [scheduler.bracket(0, number) for number in range(trials)]
    taken = [0] * trials
    begun = min(at_once, trials)
    coming = [(ends[0], number, 0) for number in range(begun)]  # when, which trial, to which of the ends
    while coming:
        now, number, i = heapq.heappop(coming)
        taken[number] = ends[i]
        if i < len(scheduler.rungs):
            others = known[bracket[number], i]
            verdict = scheduler.verdict(others, quality(number), True, ends[i], bracket[number])
            others.append(quality(number))
            if verdict is Decision.CONTINUE:
                heapq.heappush(coming, (now + ends[i + 1] - ends[i], number, i + 1))
                continue
        if begun < trials:
            heapq.heappush(coming, (now + ends[0], begun, 0))
            begun += 1
    return taken
