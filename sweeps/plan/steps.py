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

# Largest number of trials in a simulated sweep. Later trials take the average of the second half of
# these.
MAX_SIMULATED = 256
# The typical count is the median over simulated sweeps: over as many as have about `ALL_SIMULATED`
# trials together, but within these bounds.
ALL_SIMULATED = 600
MIN_SWEEPS = 5
MAX_SWEEPS = 21


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
        parts = (parts_until(scheduler, number, max_t) for number in range(trials))
        most = sum(parts) + trials * repeats * max_t
    simulated = min(trials, MAX_SIMULATED)
    sweeps = min(MAX_SWEEPS, ALL_SIMULATED // simulated) | 1  # odd, so that the median is one value
    totals = []
    for seed in range(max(MIN_SWEEPS, sweeps)):
        rng = random.Random(seed)
        values = [rng.random() for _ in range(simulated)]
        ends = simulate(scheduler, simulated, concurrency, values.__getitem__, seed)
        spent = []
        for number, end in enumerate(ends):
            steps = parts_until(scheduler, number, end, seed) if counts_rows else end
            spent.append(steps + repeats * max_t if end == max_t else steps)
        late = mean(spent[simulated // 2 :])  # the first trials are seldom stopped
        totals.append(sum(spent) + (trials - simulated) * late)
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
    value_of: Callable[[int], float],
    seed: int = 0,
) -> list[int]:
    """Simulate a sweep in which every step takes the same time.

    If the scheduler counts rows, a run takes as long as the parts of the rows that it trains on.

    Args:
        scheduler: A scheduler with a `max_t`.
        trials: Number of trials. As soon as a running trial ends or is paused, a paused trial
            continues or the next trial starts.
        concurrency: Number of concurrent trials.
        value_of: Function that returns a trial's value, given its number. The value is the same at
            every rung; smaller is better.
        seed: Seed of the simulated sweep, for schedulers that draw numbers.

    Returns:
        The last step of each trial.
    """
    assert scheduler.max_t is not None
    # The rungs of each trial, and the step at which it ends
    milestones = [
        (*scheduler.rungs(scheduler.bracket(seed, number)), scheduler.max_t)
        for number in range(trials)
    ]
    sweep = _SimulatedSweep(scheduler, concurrency, milestones, seed=seed)
    sweep.fill(0)
    while sweep.events:
        now, number = heapq.heappop(sweep.events)  # the trial that reaches its milestone next
        step = milestones[number][sweep.reached[number] - 1]
        action = Action.STOP
        if sweep.reached[number] < len(milestones[number]):
            sweep.view.report(number, {step: value_of(number)})
            action = scheduler.decide(sweep.view, number, step).action
        if action in (Action.CONTINUE, Action.EXPLOIT):
            sweep.run(number, now)
            continue
        if action is Action.PAUSE:
            sweep.view.pause(number, step)
        else:
            sweep.view.end(number)
        sweep.fill(now)
    return [milestones[number][count - 1] for number, count in enumerate(sweep.reached)]


class _SimulatedSweep:
    """The trials of a simulated sweep.

    Args:
        scheduler: The scheduler.
        concurrency: Number of concurrent trials.
        milestones: The rungs of each trial, and the step at which it ends.
        seed: Seed of the sweep.

    Attributes:
        view: The view of the scheduler.
        reached: Number of milestones that each trial has reached, or is training towards.
        events: (time, trial) for the next milestone of each running trial, a heap.
    """

    def __init__(
        self, scheduler: Scheduler, concurrency: int, milestones: list[tuple[int, ...]], seed: int
    ):
        self.scheduler = scheduler
        self.concurrency = concurrency
        self.milestones = milestones
        self.view = SimulatedStudy(seed)
        self.reached = [0] * len(milestones)
        self.events: list[tuple[int, int]] = []

    def run(self, number: int, now: int) -> None:
        """Let a trial train to its next milestone."""
        milestones = self.milestones[number]
        reached = self.reached[number]
        # If the scheduler counts rows, each run starts again.
        start = milestones[reached - 1] if reached and self.scheduler.resource != ROWS else 0
        heapq.heappush(self.events, (now + milestones[reached] - start, number))
        self.reached[number] += 1

    def fill(self, now: int) -> None:
        """Continue paused trials and start trials until no more trials fit."""
        view = self.view
        while len(self.events) < self.concurrency:
            view.all_started = len(view.trials) == len(self.milestones)
            paused = self.scheduler.next_paused(view)
            if paused is not None:
                view.resume(paused)
                self.run(paused, now)
            elif not view.all_started:
                number = len(view.trials)
                view.start(number, self.scheduler.bracket(view.seed, number))
                self.run(number, now)
            else:
                return
