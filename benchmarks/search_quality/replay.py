"""A sweep under a simulated clock: so many workers, a step of a trial a unit of time, no time between."""

from __future__ import annotations

import heapq
from typing import Any, Protocol

from benchmarks.search_quality.tasks import STEPS, Task

WORKERS = 4
BUDGETS = (10, 25, 50, 100)  # in trials of full length


class Searcher(Protocol):
    """What searches: ours or a peer."""

    def begin(self) -> tuple[int, dict[str, Any]] | None:
        """Begin a trial, or go on with one that was paused; its number and configuration. None where it has nothing to run now."""

    def report(self, trial: int, step: int, value: float) -> bool:
        """Take a trial's value; whether it goes on."""

    def end(self, trial: int) -> None:
        """The trial came to the last step."""


def replay(task: Task, searcher: Searcher, budgets: tuple[float, ...] = BUDGETS, workers: int = WORKERS) -> list[float]:
    """The regret of the best value reported, when so many full lengths of steps are spent.

    A trial that is begun again after a pause goes on where it was. A searcher that has nothing to run is asked again after each report;
    one that has come to the end of a finite space keeps the best it found.
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
