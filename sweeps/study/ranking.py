"""Rank trials, and find the best trial and the Pareto front. Pure functions, no I/O."""

import math
from collections.abc import Iterable, Sequence

from sweeps.core.trial import Result, State

# A sweep stops if the first trials that end all fail, and there are this many of them. The trials
# then most likely share one problem.
ABORT_AFTER_FAILURES = 5


def should_abort(ended: Sequence[State], trainers: int = 1) -> bool:
    """Return True if the first `ABORT_AFTER_FAILURES` trials that ended have all failed.

    The sweep should then stop. If there are several trainers, more trials must have failed, because
    the other trainers may work.

    Args:
        ended: Final states, in the order in which the trials ended.
        trainers: Number of trainers.
    """
    first = ended[: ABORT_AFTER_FAILURES * trainers]
    return len(first) == ABORT_AFTER_FAILURES * trainers and set(first) == {State.FAIL}


def beats(a: float | None, b: float | None, minimize: bool) -> bool:
    """Return True if value `a` is better than value `b`. None and NaN are worse than any number.

    Args:
        a: The first value.
        b: The second value.
        minimize: True if smaller values are better.
    """
    if a is None or math.isnan(a):
        return False
    if b is None or math.isnan(b):
        return True
    return a < b if minimize else a > b


def tier(result: Result) -> int | None:
    """Return the tier of a trial. Trials are ranked by tier first and by value second.

    Returns:
        0 for feasible COMPLETE trials (the best), 1 for feasible PRUNED ones, 2 for infeasible
        COMPLETE ones, 3 for infeasible PRUNED ones.
        A trial that was only ended by time counts like a COMPLETE one. None for trials that are not
        ranked: failed trials, running trials, and initial points with known results.
    """
    if result.given or result.state not in (State.COMPLETE, State.PRUNED):
        return None
    pruned = result.state is State.PRUNED and not result.ended_by_time
    if result.feasible:
        return 1 if pruned else 0
    return 3 if pruned else 2


def ahead(a: Result, b: Result | None, minimize: bool) -> bool:
    """Return True if trial `a` is better than trial `b`.

    Trials are compared by tier first and by the first objective's value second.

    Args:
        a: Result of the first trial.
        b: Result of the second trial, or None. Any trial with a tier and a value is better than
            None.
        minimize: True if smaller values are better.
    """
    first = rank(a, minimize)
    second = None if b is None else rank(b, minimize)
    return first is not None and (second is None or first < second)


def rank(result: Result, minimize: bool) -> tuple[int, float] | None:
    """Return (tier, value) of a trial, or (tier, -value) if larger values are better.

    The best trial has the smallest pair.

    Return None if the trial lacks a tier or a finite value.
    """
    own_tier = tier(result)
    if own_tier is None or result.value is None or not math.isfinite(result.value):
        return None
    return own_tier, result.value if minimize else -result.value


def winner(results: Iterable[tuple[int, Result]], minimize: bool) -> int | None:
    """Return the number of the best trial; None if no trial has both a tier and a finite value.

    Args:
        results: (trial number, result) pairs. If several trials are equally good, the trial with
            the lowest number is the best.
        minimize: True if smaller values are better.
    """
    return next(iter(ranked(results, minimize)), None)


def dominates(a: Sequence[float], b: Sequence[float], minimize: Sequence[bool]) -> bool:
    """Return True if `a` is at least as good as `b` in every objective and better in at least one.

    Args:
        a: Values of the first trial, one for each objective.
        b: Values of the second trial.
        minimize: One boolean for each objective: True if smaller values are better.
    """
    # Larger values are swapped, so that the smaller value of each pair is always the better one.
    pairs = [(x, y) if small else (y, x) for x, y, small in zip(a, b, minimize, strict=True)]
    return all(x <= y for x, y in pairs) and any(x < y for x, y in pairs)


def front(results: Iterable[tuple[int, Result]], minimize: Sequence[bool]) -> list[int]:
    """Return the numbers of the trials on the Pareto front, sorted.

    A trial needs a tier and a value for every objective. Among the trials that have both, only the
    trials of the best tier are considered.

    Args:
        results: (trial number, result) pairs. NaN and infinity are treated as missing values.
        minimize: One boolean for each objective: True if smaller values are better.
    """
    # (number, values) pairs of the trials, by tier
    tiers: dict[int, list[tuple[int, tuple[float, ...]]]] = {}
    for number, result in results:
        values = tuple(v for v in result.values if v is not None and math.isfinite(v))
        own_tier = tier(result)
        if own_tier is not None and len(values) == len(minimize):
            tiers.setdefault(own_tier, []).append((number, values))
    if not tiers:
        return []
    best: list[tuple[int, tuple[float, ...]]] = []
    for number, values in sorted(tiers[min(tiers)]):
        if not any(dominates(other, values, minimize) for _, other in best):
            best = [(n, v) for n, v in best if not dominates(values, v, minimize)]
            best.append((number, values))
    return [number for number, _ in best]


def ranked(results: Iterable[tuple[int, Result]], minimize: bool) -> list[int]:
    """Return the numbers of the trials that have a tier and a finite value, the best first.

    Trials are sorted by tier, then value, then number.

    Args:
        results: (trial number, result) pairs.
        minimize: True if smaller values are better.
    """
    pairs = []
    for number, result in results:
        key = rank(result, minimize)
        if key is not None:
            pairs.append((key, number))
    return [number for _, number in sorted(pairs)]
