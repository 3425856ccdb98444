"""Compute the regret: the distance between the best value so far and the best known value.

Regret is computed after some trials, seconds or core seconds.
"""

import bisect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sweeps.core.trial import Result, State
from sweeps.study import ranking
from sweeps.study.record_reader import Record
from sweeps.study.repeats import merge
from sweeps.study.states import TrialState

# What a sweep spends until a trial has ended: names of attributes of `Moment`.
BUDGETS = ("trials", "seconds", "cpu_seconds", "gpu_seconds")
# No sweep spends as much of a budget. A larger amount comes from a damaged study.
MOST_SPENT = 1e12


@dataclass(frozen=True)
class Moment:
    """Budget that a sweep had spent, and its best value, at the end of a trial.

    Attributes:
        trials: Number of ended trials.
        seconds: Seconds since the first trial started. Time in which the sweep was interrupted does
            not count.
        cpu_seconds: Core seconds of the ended trials.
        gpu_seconds: GPU seconds of the ended trials.
        best: Value of the best trial; None while no trial had a value of the tier of the final best
            trial.
    """

    trials: float
    seconds: float
    cpu_seconds: float
    gpu_seconds: float
    best: float | None


def best_after(progress: Sequence[Moment], budget: str, amount: float) -> float | None:
    """Return the best value after an amount of a budget.

    None if there was no value yet, or if the sweep never spent the amount.
    """
    amounts = [getattr(moment, budget) for moment in progress]
    if not amounts or amount > amounts[-1]:
        return None
    reached = bisect.bisect_right(amounts, amount)
    return progress[reached - 1].best if reached else None


def progress_of(record: Record, pauses: Sequence[tuple[float, float]] = ()) -> tuple[Moment, ...]:
    """Return the moment at which each trial of a sweep ended, in the order of the ends.

    A trial that was stopped early never wins against a trial that ran to its end. So the best value
    is None until a trial of the final best trial's tier (see `ranking.tier`) has ended: a complete
    trial, if the final best trial is complete.

    Args:
        record: The content of the study. With several objectives, the best value is always None.
        pauses: (start, end) of the times in which nobody ran the sweep, in seconds since the epoch.
    """
    ended = sorted((t for t in record.ran if t.result.state is not State.RUNNING), key=_end_of)
    final = record.best_result
    tier = None if final is None else ranking.tier(final)
    began = min((t.started.time for t in record.ran), default=0.0)
    costs = {"cpu_seconds": 0.0, "gpu_seconds": 0.0}
    moments: list[Moment] = []
    for trial, best in zip(ended, _best_so_far(ended, record), strict=True):
        end = max(_end_of(trial)[0], began)
        for name in costs:
            costs[name] += trial.result.metrics.get(name, 0.0)
        moment = Moment(
            trials=len(moments) + 1,
            seconds=end - began - _paused_seconds(pauses, began, end),
            best=None if best is None or ranking.tier(best) != tier else best.value,
            **costs,
        )
        moments.append(moment)
    return tuple(moments)


def _best_so_far(ended: Iterable[TrialState], record: Record) -> Iterator[Result | None]:
    """Yield the result of the best configuration after each trial ended."""
    minimize = record.goal == "minimize"
    repeats = record.repeats
    trials: dict[int, list[Result]] = {}
    results: dict[int, Result] = {}
    best: Result | None = None
    leader: int | None = None  # number of the first trial of the best configuration
    for trial in ended:
        first = trial.trial.first_trial
        repeated = trials.setdefault(first, [])
        repeated.append(trial.result)
        results[first] = merge(repeated, repeats)
        if ranking.ahead(results[first], best, minimize):
            leader = first
        elif first == leader:  # A repeat can make the value of its configuration worse.
            leader = ranking.winner(results.items(), minimize)
        best = None if leader is None else results[leader]
        yield best


def _end_of(trial: TrialState) -> tuple[float, int]:
    """Return the sort key of trials: their end in seconds since the epoch, and their number."""
    return trial.started.time if trial.ended_at is None else trial.ended_at, trial.number


def _paused_seconds(pauses: Iterable[tuple[float, float]], start: float, end: float) -> float:
    """Return how many seconds between `start` and `end` belong to pauses."""
    return sum(max(0.0, min(end, until) - max(start, since)) for since, until in pauses)


def pauses_of(record: Record, drivers: Sequence[float]) -> list[tuple[float, float]]:
    """Return (start, end) of the times in which nobody ran the sweep, as the record shows them.

    A pause lasts from the last end of a trial before a resume to the resume.

    Args:
        record: The content of the study.
        drivers: When the sweep was started and each time resumed, in seconds since the epoch.
    """
    ends = [t.ended_at for t in record.ran if t.ended_at is not None]
    pauses = []
    for resumed in sorted(drivers)[1:]:
        before = [end for end in ends if end <= resumed]
        if before:
            pauses.append((max(before), resumed))
    return pauses


def steps_of(largest: float) -> list[int]:
    """Return the amounts of a budget at which regret is shown.

    These are 1, 2, 5, 10, 20, 50, ... and the largest amount, rounded down. Return [] for an amount
    that no sweep can have spent, which only a damaged study has.

    >>> steps_of(64.5)
    [1, 2, 5, 10, 20, 50, 64]
    """
    if not 0 <= largest < MOST_SPENT:
        return []
    top = int(largest)
    amounts = [m * 10**k for k in range(len(str(top))) for m in (1, 2, 5)]
    return [amount for amount in amounts if amount < top] + ([top] if top else [])
