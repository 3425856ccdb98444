"""When a sweep is over, and who won it: pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sweeps.trial import Result, State

# So many failures from the start, with nothing else in between, are no accident.
FAILING_FROM_THE_START = 5


def hopeless(ended: Sequence[State]) -> bool:
    """Whether the first trials to end have all failed, so that the sweep had better stop and say why.

    Args:
        ended: final states in the order in which the trials ended.
    """
    return len(ended) >= FAILING_FROM_THE_START and all(s is State.FAIL for s in ended[:FAILING_FROM_THE_START])


def beats(a: float | None, b: float | None, minimize: bool) -> bool:
    """Whether value `a` is better than `b`. None and NaN never win."""
    if a is None or a != a:
        return False
    if b is None or b != b:
        return True
    return a < b if minimize else a > b


def winner(results: Iterable[tuple[int, Result]], minimize: bool) -> int | None:
    """The number of the best trial: among the complete ones; if a time limit left none, among the stopped ones.

    Args:
        results: trial numbers and how they ended; the lower number wins a tie.
        minimize: whether smaller is better.
    """
    best: dict[State, tuple[int, float | None]] = {}
    for number, result in sorted(results, key=lambda r: r[0]):
        current = best.get(result.state)
        if beats(result.value, current[1] if current else None, minimize):
            best[result.state] = (number, result.value)
    for state in (State.COMPLETE, State.PRUNED):
        if state in best:
            return best[state][0]
    return None


def ranked(results: Iterable[tuple[int, Result]], minimize: bool) -> list[int]:
    """The numbers of the trials that could win, the best first: the complete ones with a value, or else the stopped ones.

    Args:
        results, minimize: as for `winner`, which is the first of these.
    """
    rows = [(number, r) for number, r in results if r.value is not None and r.value == r.value]
    for state in (State.COMPLETE, State.PRUNED):
        of_state = [(r.value if minimize else -r.value, number) for number, r in rows if r.state is state and r.value is not None]
        if of_state:
            return [number for _, number in sorted(of_state)]
    return []


def best_of(values: Iterable[tuple[int, float]], minimize: bool) -> tuple[int | None, float | None]:
    """(step, value) of the best of a trial's reports; the earlier step wins a tie."""
    step: int | None = None
    value: float | None = None
    for s, v in values:
        if beats(v, value, minimize):
            step, value = s, v
    return step, value
