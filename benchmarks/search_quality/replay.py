"""Replay a sweep under a simulated clock. A step of a trial takes one unit of time on a worker, and suggestions take no time."""

from __future__ import annotations

import heapq
from typing import Any, Protocol

from benchmarks.search_quality.tasks import STEPS, Task

WORKERS = 4
BUDGETS = (10, 25, 50, 100)  # numbers of trials of full length


class Searcher(Protocol):
    """Interface of a searcher: sweeps or another tool."""

    def begin(self) -> tuple[int, dict[str, Any]] | None:
        """Start a trial or continue a paused trial.

        Returns:
            The trial's number and configuration. None if no trial can run now.
        """

    def report(self, trial: int, step: int, value: float) -> bool:
        """Take the value of a trial, and return whether the trial continues."""

    def end(self, trial: int) -> None:
        """Learn that a trial has reached the last step."""


def replay(task: Task, searcher: Searcher, budgets: tuple[float, ...] = BUDGETS, workers: int = WORKERS) -> list[float]:
    """Return the regret of the best reported value, after each budget of steps is used.

    A paused trial continues at the step at which it was paused. If a searcher has no trial to run, it is asked again after each report. If
    all configurations of a finite space were tried, the best value stays the same.
    """
    marks = [budget * STEPS for budget in budgets]
    found: list[float] = []
    best, spent = float("inf"), 0
    done: dict[int, int] = {}
    curves: dict[int, Any] = {}
    order, idle = 0, workers
    coming: list[tuple[int, int, int]] = []

    def begin(now: int) -> None:
        nonlocal order, idle
        while idle and (next_one := searcher.begin()):
            trial, config = next_one
            if trial not in curves:
                curves[trial], done[trial] = task.curve(config), 0
            order, idle = order + 1, idle - 1
            heapq.heappush(coming, (now + 1, order, trial))

    begin(0)
    while coming and len(found) < len(marks):
        now, _, trial = heapq.heappop(coming)
        done[trial] += 1
        spent += 1
        step = done[trial]
        value = float(curves[trial][step - 1])
        best = min(best, value)
        while len(found) < len(marks) and spent >= marks[len(found)]:
            found.append(task.regret(best))
        goes_on = searcher.report(trial, step, value)
        if step == STEPS:
            searcher.end(trial)
            goes_on = False
        if goes_on:
            order += 1
            heapq.heappush(coming, (now + 1, order, trial))
        else:
            idle += 1
        begin(now)
    return found + [task.regret(best)] * (len(marks) - len(found))
