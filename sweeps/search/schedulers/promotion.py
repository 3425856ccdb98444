"""Decide which paused trial continues, for schedulers that pause trials at rungs.

Pure functions of the study.
"""

import heapq
import math
from collections.abc import Callable, Iterable, Mapping

from .view import StudyView

# A rung of a bracket: (step, number of the bracket)
Rung = tuple[int, int]


def next_promoted(
    view: StudyView,
    waiting: Mapping[int, int],
    rungs: Iterable[Rung],
    passing: Callable[[int], int],
) -> int | None:
    """Return the number of the trial to promote now, or None if there is none.

    A promoted trial continues beyond its rung. A trial can be promoted if it is among the best
    trials that have reached its rung and have not failed. Higher rungs come first. Within a rung,
    the best trial comes first.

    Args:
        view: The trials so far.
        waiting: Rung at which each paused trial waits, by the number of the trial.
        rungs: The rungs from which trials may be promoted, the highest first.
        passing: Function that returns how many of the best trials of a rung can be promoted, given
            the number of trials that have reached the rung.
    """
    for step, bracket in rungs:
        reached = view.at_rung(step, bracket)
        sign = 1 if view.minimize else -1
        values = [(sign * t.value_at(step), t.number) for t in reached if not t.failed]
        ranked = [(value, number) for value, number in values if not math.isnan(value)]
        for _, number in heapq.nsmallest(passing(len(reached)), ranked):
            if waiting.get(number) == step:
                return number
    return None


def is_closing(view: StudyView, waiting: Mapping[int, int]) -> bool:
    """Return True if every trial has started, and each one has ended or is paused.

    Only a promotion can then add values.

    Args:
        view: The trials so far.
        waiting: Rung at which each paused trial waits, by the number of the trial.
    """
    return view.all_started and all(
        number in waiting or not trial.running for number, trial in view.trials.items()
    )
