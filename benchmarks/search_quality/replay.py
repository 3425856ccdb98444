"""Replay a sweep under a simulated clock. Suggestions take no time.

A step of a trial takes one unit of time on a worker, or the seconds that the task states for it.
"""

from __future__ import annotations

import heapq
import math
from typing import Any, Protocol

import numpy as np

from benchmarks.search_quality.tasks import Task

WORKERS = 4
BUDGETS = (10, 25, 50, 100)  # numbers of trials of full length


class Searcher(Protocol):
    """Interface of a searcher: sweeps or another tool.

    A searcher may also have a method `pay(trial, seconds)`. It is called before each report, with
    the cost of the step.
    """

    def begin(self) -> tuple[int, dict[str, Any]] | None:
        """Start a trial or continue a paused trial.

        Returns:
            The trial's number and configuration. None if no trial can run now.
        """

    def report(self, trial: int, step: int, value: float) -> bool:
        """Take the value of a trial, and return whether the trial continues."""

    def end(self, trial: int) -> None:
        """Learn that a trial has reached the last step."""

    def fail(self, trial: int) -> None:
        """Learn that a trial has failed before it reported the next step."""


class _Trial:
    """A trial's true values, the values that the searcher sees, and the seconds of each step."""

    def __init__(self, task: Task, config: dict[str, Any], by_cost: bool):
        self.true = task.curve(config)
        self.seen = self.true + task.noise_of(config)
        self.seconds = task.cost_of(config) if by_cost else np.ones(task.steps)
        self.done = 0


def replay(
    task: Task,
    searcher: Searcher,
    budgets: tuple[float, ...] = BUDGETS,
    workers: int = WORKERS,
    *,
    by_cost: bool = False,
) -> list[float]:
    """Return the regret of the best reported value, after each budget is used.

    A budget of 1 is the time of a trial of full length. The best value is the one that the searcher
    saw, with noise; its regret is computed from the true value. A paused trial continues at the
    step at which it was paused. If a searcher has no trial to run, it is asked again after each
    report. If all configurations of a finite space were tried, the best value stays the same.

    Args:
        task: Task to search.
        searcher: Searcher that starts and stops trials.
        budgets: Budgets at which the regret is returned.
        workers: Number of trials that run at once.
        by_cost: True if a step takes the seconds that the task states, and a budget of 1 is a
            median random configuration's.
    """
    marks = [budget * (task.typical_cost if by_cost else task.steps) for budget in budgets]
    regrets: list[float] = []
    best, regret, spent = math.inf, math.inf, 0.0
    trials: dict[int, _Trial] = {}
    order, idle = 0, workers
    coming: list[tuple[float, int, int]] = []
    pay = getattr(searcher, "pay", None)

    def schedule(now: float, number: int) -> None:
        nonlocal order
        order += 1
        heapq.heappush(
            coming, (now + float(trials[number].seconds[trials[number].done]), order, number)
        )

    def begin(now: float) -> None:
        nonlocal idle
        while idle and (next_one := searcher.begin()):
            number, config = next_one
            if number not in trials:
                trials[number] = _Trial(task, config, by_cost)
            idle -= 1
            schedule(now, number)

    begin(0)
    while coming and len(regrets) < len(marks):
        now, _, number = heapq.heappop(coming)
        trial = trials[number]
        seconds, value = float(trial.seconds[trial.done]), float(trial.seen[trial.done])
        trial.done += 1
        spent += seconds
        if value < best:
            best, regret = value, task.regret(float(trial.true[trial.done - 1]))
        while len(regrets) < len(marks) and spent >= marks[len(regrets)]:
            regrets.append(regret)
        if pay is not None:
            pay(number, seconds)
        if math.isnan(value):
            searcher.fail(number)
            goes_on = False
        else:
            goes_on = searcher.report(number, trial.done, value)
            if trial.done == task.steps:
                searcher.end(number)
                goes_on = False
        if goes_on:
            schedule(now, number)
        else:
            idle += 1
        begin(now)
    return regrets + [regret] * (len(marks) - len(regrets))
