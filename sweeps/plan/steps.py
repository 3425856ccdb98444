"""Estimate the number of steps of all trials under a scheduler. A step is one report.

If the scheduler counts rows, a step is a part of the train split, and a trial trains on all parts
up to its step at each rung. The estimate is then the number of parts that all these runs train on.
"""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass
from statistics import mean, median

from sweeps.core.trial import Action
from sweeps.search.schedulers.scheduler import Scheduler, all_rungs
from sweeps.search.schedulers.simulated import SimulatedStudy
from sweeps.space.sections.key_types import ROWS

# Largest number of trials to simulate. Later trials take the average of the second half of these.
SIMULATED = 256
# The typical count is the median over this many simulated sweeps; over fewer if they are large.
MAX_SWEEPS = 21
MIN_SWEEPS = 5


@dataclass(frozen=True)
class StepCount:
    """Number of steps of all trials together.

    The estimate assumes that no training loop returns before the scheduler ends the trial.

    Attributes:
        typical: Median over simulated sweeps. In the simulation, each trial has a random value,
            which is the same at every rung.
        most: Number of steps if every trial continues to `max_t`.
        rungs: Steps at which trials are compared; empty if the scheduler does not stop trials.
        max_t: Step at which a trial ends.
        every: True if trials are compared at every step from `rungs[0]` on. In this case, `rungs`
            has one element.
        counts_rows: True if steps are parts of the train split. `typical` and `most` then count the
            parts of all runs.
    """

    typical: int
    most: int
    rungs: tuple[int, ...]
    max_t: int
    every: bool = False
    counts_rows: bool = False


def count_steps(
    scheduler: Scheduler, trials: int, concurrency: int, repeats: int = 0
) -> StepCount | None:
    """Estimate the number of steps of all trials. Return None if the scheduler has no `max_t`.

    Args:
        scheduler: Scheduler that decides which trials stop early.
        trials: Number of trials.
        concurrency: Number of concurrent trials.
        repeats: Number of repeats of each trial that reaches `max_t`.
    """
    if scheduler.max_t is None:
        return None
    rungs = all_rungs(scheduler)
    max_t = scheduler.max_t
    most = trials * max_t * (1 + repeats)
    if not scheduler.stops or not rungs:
        return StepCount(most, most, (), max_t)
    counts_rows = scheduler.resource == ROWS
    if counts_rows:
        whole = (parts_until(scheduler, number, max_t) for number in range(trials))
        most = sum(whole) + trials * repeats * max_t
    few = min(trials, SIMULATED)
    totals = []
    for seed in range(max(MIN_SWEEPS, min(MAX_SWEEPS, 600 // few) | 1)):
        rng = random.Random(seed)
        quality = [rng.random() for _ in range(few)].__getitem__
        ends = simulate(scheduler, few, concurrency, quality=quality, seed=seed)
        steps = ends
        if counts_rows:
            steps = [parts_until(scheduler, number, end, seed) for number, end in enumerate(ends)]
        spent = [
            step + repeats * max_t * (end == max_t) for step, end in zip(steps, ends, strict=True)
        ]
        late = mean(spent[few // 2 :])  # the first trials are seldom stopped
        totals.append(sum(spent) + (trials - few) * late)
    typical = min(round(median(totals)), most)
    every = isinstance(rungs, range) and rungs.step == 1
    return StepCount(
        typical=typical,
        most=most,
        rungs=tuple(rungs[:1] if every else rungs),
        max_t=max_t,
        every=every,
        counts_rows=counts_rows,
    )


def parts_until(scheduler: Scheduler, trial: int, step: int, seed: int = 0) -> int:
    """Return the number of parts of the train split that the runs of a trial train on.

    Args:
        scheduler: A scheduler that counts rows, with a `max_t`.
        trial: Number of the trial.
        step: The last step of the trial.
        seed: Seed of the sweep.
    """
    rungs = scheduler.rungs(scheduler.bracket(seed, trial))
    return sum(rung for rung in rungs if rung < step) + step


def simulate(
    scheduler: Scheduler,
    trials: int,
    concurrency: int,
    quality: Callable[[int], float],
    seed: int = 0,
) -> list[int]:
    """Simulate a sweep in which every step takes the same time.

    If the scheduler counts rows, a run takes as long as the parts of the rows that it trains on.

    Args:
        scheduler: A scheduler with a `max_t`.
        trials: Number of trials. As soon as a running trial ends or is paused, a paused trial
            continues or the next trial starts.
        concurrency: Number of concurrent trials.
        quality: Function that returns a trial's value, given its number. The value is the same at
            every rung; smaller is better.
        seed: Seed of the simulated sweep, for schedulers that draw numbers.

    Returns:
        The last step of each trial.
    """
    assert scheduler.max_t is not None
    ends = [
        (*scheduler.rungs(scheduler.bracket(seed, number)), scheduler.max_t)
        for number in range(trials)
    ]
    sweep = _SimulatedSweep(scheduler, concurrency, ends, seed=seed)
    sweep.fill(0)
    while sweep.events:
        now, number = heapq.heappop(sweep.events)
        step = ends[number][sweep.reached[number] - 1]
        action = Action.STOP
        if sweep.reached[number] < len(ends[number]):
            sweep.view.report(number, {step: quality(number)})
            action = scheduler.decide(sweep.view, number, step).action
        if action in (Action.CONTINUE, Action.EXPLOIT):
            sweep.run(number, now)
            continue
        if action is Action.PAUSE:
            sweep.view.pause(number, step)
        else:
            sweep.view.end(number)
        sweep.fill(now)
    return [ends[number][count - 1] for number, count in enumerate(sweep.reached)]


class _SimulatedSweep:
    """The trials of a simulated sweep.

    Args:
        scheduler: The scheduler.
        concurrency: Number of concurrent trials.
        ends: The rungs of each trial, and the step at which it ends.
        seed: Seed of the sweep.

    Attributes:
        view: The view of the scheduler.
        reached: Number of the steps in `ends` that each trial has reached.
        events: (time, trial) for the next rung or the end of each running trial, a heap.
    """

    def __init__(
        self, scheduler: Scheduler, concurrency: int, ends: list[tuple[int, ...]], seed: int
    ):
        self.scheduler = scheduler
        self.concurrency = concurrency
        self.ends = ends
        self.view = SimulatedStudy(seed)
        self.reached = [0] * len(ends)
        self.events: list[tuple[int, int]] = []

    def run(self, number: int, now: int) -> None:
        """Let a trial train to its next rung, or to its end."""
        ends = self.ends[number]
        reached = self.reached[number]
        before = ends[reached - 1] if reached and self.scheduler.resource != ROWS else 0
        heapq.heappush(self.events, (now + ends[reached] - before, number))
        self.reached[number] += 1

    def fill(self, now: int) -> None:
        """Continue paused trials and start trials until no more trials fit."""
        view = self.view
        while len(self.events) < self.concurrency:
            view.all_started = len(view.trials) == len(self.ends)
            if (paused := self.scheduler.next_paused(view)) is not None:
                view.resume(paused)
                self.run(paused, now)
            elif not view.all_started:
                number = len(view.trials)
                view.start(number, self.scheduler.bracket(view.seed, number))
                self.run(number, now)
            else:
                return
