"""Estimate the number of steps of all trials under a scheduler: the smallest, a typical and the largest number. A step is one report.

If the scheduler counts rows, a step is a part of the train split, and a trial trains on all parts
up to its step at each rung. The estimate is then the number of parts that all these runs train on.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from sweeps.core.trial import Action
from sweeps.search.schedulers.base import Scheduler, all_rungs
from sweeps.search.schedulers.view import StudyView, TrialView
from sweeps.space.section_models import ROWS

# Largest number of trials to simulate. For later trials, `Scheduler.late_trial_steps` estimates the
# number of steps.
SIMULATED = 256


@dataclass(frozen=True)
class StepCount:
    """Number of steps of all trials together.

    The estimate assumes that no training loop returns before the scheduler ends the trial.

    Attributes:
        least: Lower bound; see `count_steps`.
        typical: Median over simulated sweeps. In the simulation, each trial has a random value,
            which is the same at every rung.
        most: Number of steps if every trial continues to `max_t`.
        rungs: Steps at which trials are compared; empty if the scheduler does not stop trials.
        max_t: Step at which a trial ends.
        every: True if trials are compared at every step from `rungs[0]` on. In this case, `rungs`
            has one element.
        counts_rows: True if steps are parts of the train split. `least`, `typical` and `most` then
            count the parts of all runs.
    """

    least: int
    typical: int
    most: int
    rungs: tuple[int, ...]
    max_t: int
    every: bool = False
    counts_rows: bool = False


def count_steps(
    scheduler: Scheduler, trials: int, concurrency: int, seed: int = 0, repeats: int = 0
) -> StepCount | None:
    """Estimate the number of steps of all trials under a scheduler.

    Return None if the scheduler has no `max_t`.

    The lower bound assumes that each trial is worse than all earlier trials, so that the scheduler
    stops as many trials as possible (see `Scheduler.min_steps`). If all values are NaN, the sweep
    takes fewer steps than this bound, because a trial with NaN never continues. The upper bound
    assumes that each trial is better than all earlier trials, so that no trial is stopped.

    Args:
        scheduler: Scheduler that decides which trials stop early.
        trials: Number of trials.
        concurrency: Number of concurrent trials.
        seed: Seed of the sweep, from which brackets are drawn.
        repeats: Number of repeats of each trial that reaches `max_t`.
    """
    if scheduler.max_t is None:
        return None
    rungs, max_t, most = (
        all_rungs(scheduler),
        scheduler.max_t,
        trials * scheduler.max_t * (1 + repeats),
    )
    if not scheduler.stops or not rungs:
        return StepCount(most, most, most, (), max_t)
    if scheduler.resource == ROWS:
        least, between, most = _count_parts(scheduler, trials, concurrency, seed, repeats)
        return StepCount(least, between, most, tuple(rungs), max_t, counts_rows=True)
    least = (
        scheduler.min_steps(trials, seed) + repeats * scheduler.min_complete(trials, seed) * max_t
    )
    between = min(max(typical_steps(scheduler, trials, concurrency, repeats), least), most)
    if isinstance(rungs, range) and rungs.step == 1:
        return StepCount(least, between, most, (rungs[0],), max_t, every=True)
    return StepCount(least, between, most, tuple(rungs), max_t)


def _count_parts(
    scheduler: Scheduler, trials: int, concurrency: int, seed: int, repeats: int
) -> tuple[int, int, int]:
    """Return the least, a typical and the largest number of parts of the train split that all runs of all trials train on.

    The arguments are those of `count_steps`. A repeat trains only on all rows.
    """
    max_t = scheduler.max_t
    assert max_t is not None
    ends = [(*scheduler.rungs(scheduler.bracket(seed, number)), max_t) for number in range(trials)]
    first, whole = [own[0] for own in ends], [sum(own) for own in ends]
    complete = scheduler.min_complete(trials, seed)
    least = (
        sum(first)
        + sum(sorted(w - f for w, f in zip(whole, first, strict=True))[:complete])
        + complete * repeats * max_t
    )
    most = sum(whole) + trials * repeats * max_t
    few = min(trials, SIMULATED)
    totals = []
    for simulated in range(max(5, min(41, 1000 // few) | 1)):
        rng = random.Random(simulated)
        lengths = simulate(
            scheduler, few, concurrency, [rng.random() for _ in range(few)].__getitem__, simulated
        )
        parts = sum(
            parts_until(scheduler, number, length, simulated)
            for number, length in enumerate(lengths)
        )
        totals.append(parts + repeats * max_t * lengths.count(max_t))
    return least, min(max(round(median(totals) * trials / few), least), most), most


def parts_until(scheduler: Scheduler, trial: int, step: int, seed: int = 0) -> int:
    """Return the number of parts of the train split that the runs of a trial train on until it ends at a step.

    Args:
        scheduler: A scheduler that counts rows, with a `max_t`.
        trial: Number of the trial.
        step: The last step of the trial.
        seed: Seed of the sweep.
    """
    ends = (*scheduler.rungs(scheduler.bracket(seed, trial)), step)
    return sum(itertools.takewhile(lambda end: end < step, ends), step)


def typical_steps(scheduler: Scheduler, trials: int, concurrency: int, repeats: int = 0) -> int:
    """Return the median number of steps over simulated sweeps.

    At most `SIMULATED` trials are simulated. Each further trial is counted with the steps that
    `Scheduler.late_trial_steps` returns. If that method returns None, each further trial is counted
    with the average of the simulated trials.

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
        lengths = simulate(
            scheduler, few, concurrency, [rng.random() for _ in range(few)].__getitem__, seed
        )
        totals.append(sum(length + last * (length == scheduler.max_t) for length in lengths))
    if (late := scheduler.late_trial_steps(repeats)) is None:
        return round(median(totals) * trials / few)
    return round(median(totals) + (trials - few) * late)


def simulate(
    scheduler: Scheduler,
    trials: int,
    concurrency: int,
    quality: Callable[[int], float],
    seed: int = 0,
) -> list[int]:
    """Simulate a sweep in which every step takes the same time, and return the last step of each trial.

    If the scheduler counts rows, a run takes as long as the parts of the rows that it trains on.

    Args:
        scheduler: A scheduler with a `max_t`.
        trials: Number of trials. As soon as a running trial ends or is paused, a paused trial
            continues or the next trial starts.
        concurrency: Number of concurrent trials.
        quality: Function that returns a trial's value, given its number. The value is the same at
            every rung; smaller is better.
        seed: Seed of the simulated sweep, for schedulers that draw numbers.
    """
    assert scheduler.max_t is not None
    view = StudyView(seed=seed)
    ends = [
        (*scheduler.rungs(scheduler.bracket(seed, number)), scheduler.max_t)
        for number in range(trials)
    ]
    reached = [0] * trials  # number of the steps in `ends` that each trial has reached
    events: list[tuple[int, int]] = []  # (time, trial), a heap

    def run(number: int, now: int) -> None:
        """Let a trial train to its next rung, or to its end."""
        before = (
            ends[number][reached[number] - 1]
            if reached[number] and scheduler.resource != ROWS
            else 0
        )
        heapq.heappush(events, (now + ends[number][reached[number]] - before, number))
        reached[number] += 1

    def fill(now: int) -> None:
        """Continue paused trials and start trials until no more trials fit."""
        while len(events) < concurrency:
            view.all_started = len(view.trials) == trials
            if (paused := scheduler.next_paused(view)) is not None:
                view.trials[paused].paused_at = None
                run(paused, now)
            elif not view.all_started:
                number = len(view.trials)
                view.trials[number] = TrialView(number, scheduler.bracket(seed, number))
                run(number, now)
            else:
                return

    fill(0)
    while events:
        now, number = heapq.heappop(events)
        trial, step = view.trials[number], ends[number][reached[number] - 1]
        action = Action.STOP
        if reached[number] < len(ends[number]):
            trial.values[step] = quality(number)
            action = scheduler.decide(view, number, step).action
        if action in (Action.CONTINUE, Action.EXPLOIT):
            run(number, now)
            continue
        trial.running, trial.paused_at = (
            action is Action.PAUSE,
            step if action is Action.PAUSE else None,
        )
        fill(now)
    return [ends[number][count - 1] for number, count in enumerate(reached)]
