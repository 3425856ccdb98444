"""When a sweep is over, and who won it: pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sweeps.core.trial import Result, State

# So many failures from the start, with nothing else in between, are no accident.
ABORT_AFTER_FAILURES = 5


def should_abort(ended: Sequence[State]) -> bool:
    """Whether the first trials to end have all failed, so that the sweep had better stop and say why.

    Args:
        ended: final states in the order in which the trials ended.
    """
    return len(ended) >= ABORT_AFTER_FAILURES and all(s is State.FAIL for s in ended[:ABORT_AFTER_FAILURES])


def beats(a: float | None, b: float | None, minimize: bool) -> bool:
    """Whether value `a` is better than `b`. None and NaN never win."""
    if a is None or a != a:
        return False
    if b is None or b != b:
        return True
    return a < b if minimize else a > b


def tier(result: Result) -> int | None:
    """The rank of a trial before any value is looked at, 0 the best; None if it cannot win.

    What keeps the constraints goes before what breaks them, and what came to its end before what was stopped.
    """
    if result.given or result.state not in (State.COMPLETE, State.PRUNED):
        return None
    return 2 * (not result.feasible) + (result.state is State.PRUNED)


def ahead(a: Result, b: Result | None, minimize: bool) -> bool:
    """Whether one trial wins over another, by the first objective; None is no trial."""
    first, second = tier(a), None if b is None else tier(b)
    if first is None or a.value is None or a.value != a.value:
        return False
    if b is None or second is None or b.value is None or b.value != b.value:
        return True
    return first < second if first != second else beats(a.value, b.value, minimize)


def winner(results: Iterable[tuple[int, Result]], minimize: bool) -> int | None:
    """The number of the best trial: of the feasible ones if there are any; among these of the complete ones, and if a time limit left
    none, of the stopped ones.

    Args:
        results: trial numbers and how they ended; the lower number wins a tie.
        minimize: whether smaller is better.
    """
    best: tuple[int | None, Result | None] = None, None
    for number, result in sorted(results, key=lambda r: r[0]):
        if ahead(result, best[1], minimize):
            best = number, result
    return best[0]


def dominates(a: Sequence[float], b: Sequence[float], minimize: Sequence[bool]) -> bool:
    """Whether `a` is at least as good in every objective and better in one."""
    pairs = [(x, y) if low else (y, x) for x, y, low in zip(a, b, minimize, strict=True)]
    return all(x <= y for x, y in pairs) and any(x < y for x, y in pairs)


def front(results: Iterable[tuple[int, Result]], minimize: Sequence[bool]) -> list[int]:
    """The numbers of the trials that no other dominates, in their order: of the best rank (see `tier`) that has any with all its values.

    Args:
        results: trial numbers and how they ended. NaN is no value; infinity is one.
        minimize: for each objective whether smaller is better.
    """
    ranks: dict[int, list[tuple[int, tuple[float, ...]]]] = {}
    for number, result in results:
        values = tuple(v for v in result.values if v is not None and v == v)
        rank = tier(result)
        if rank is not None and len(values) == len(minimize):
            ranks.setdefault(rank, []).append((number, values))
    kept: list[tuple[int, tuple[float, ...]]] = []
    for number, values in sorted(ranks[min(ranks)]) if ranks else ():
        if not any(dominates(other, values, minimize) for _, other in kept):
            kept = [(n, v) for n, v in kept if not dominates(values, v, minimize)] + [(number, values)]
    return [number for number, _ in kept]


def ranked(results: Iterable[tuple[int, Result]], minimize: bool) -> list[int]:
    """The numbers of the trials that have a value and could win, the best first: by their rank (see `tier`), then by value.

    Args:
        results, minimize: as for `winner`, which is the first of these.
    """
    found: list[tuple[int, float, int]] = []
    for number, r in results:
        rank = tier(r)
        if rank is not None and r.value is not None and r.value == r.value:
            found.append((rank, r.value if minimize else -r.value, number))
    return [number for _, _, number in sorted(found)]


def best_of(values: Iterable[tuple[int, float]], minimize: bool) -> tuple[int | None, float | None]:
    """(step, value) of the best of a trial's reports; the earlier step wins a tie."""
    step: int | None = None
    value: float | None = None
    for s, v in values:
        if beats(v, value, minimize):
            step, value = s, v
    return step, value
