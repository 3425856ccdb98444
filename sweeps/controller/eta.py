"""How long a sweep will still take: pure.

The mean time of a trial misleads: trials run side by side, a scheduler ends most of them early, those that it lets live hold their
workers, and the first wait for processes to start. So what is yet to begin goes by how often a trial has ended of late, and what runs by
its own pace to the steps at which it can end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# Before so many trials have ended, a pace means nothing.
ENOUGH = 3
# The pace is that of the later half of what has ended, and of no fewer than this.
WINDOW = 8


@dataclass(frozen=True)
class Left:
    """The time left.

    Attributes:
        seconds: from now on.
        how: how that was reckoned, for people.
        at_most: it is a bound, and no estimate.
    """

    seconds: float
    how: str
    at_most: bool = False


@dataclass(frozen=True)
class Going:
    """A running trial.

    Attributes:
        seconds: since it was begun.
        ahead: seconds to the next step at which it can be ended, and to the one that ends it for sure; None if that is not known.
    """

    seconds: float
    ahead: tuple[float, float] | None = None

    def rest(self, usual: float) -> float:
        """Seconds it will still take: half way between the soonest and the latest; else what is left of the time trials take."""
        return sum(self.ahead) / 2 if self.ahead else max(0.0, usual - self.seconds)


def ahead(first: tuple[int, float], last: tuple[int, float], stops: Sequence[int], now: float) -> tuple[float, float] | None:
    """Seconds to the next of a trial's milestones and to the last of them, by the pace of its reports.

    Args:
        first, last: (step, time) of its first report and of its latest.
        stops: the steps at which it can be ended, ascending; the last of them always ends it.
        now: the time.
    """
    coming = [step for step in stops if step > last[0]]
    if not coming or last[0] <= first[0]:
        return None
    each = (last[1] - first[1]) / (last[0] - first[0])
    soonest, latest = (max(0.0, (step - last[0]) * each - (now - last[1])) for step in (coming[0], coming[-1]))
    return soonest, latest


def time_left(
    now: float, total: int, ended: Sequence[tuple[float, float]], running: Sequence[Going], at_once: int, timeout: float | None
) -> Left | None:
    """The time left of a sweep; None as long as nobody can tell.

    Args:
        now: seconds since the sweep began, as all times here.
        total: trials, those that have ended included.
        ended: (begin, end) of each trial that has ended, in that order.
        running: those that run.
        at_once: the most that have run side by side.
        timeout: `limits.timeout`; nothing goes on beyond it.
    """
    left = _reckon(total - len(ended), ended, running, max(1, at_once))
    if timeout is not None and (left is None or left.seconds > timeout - now):
        return Left(max(0.0, timeout - now), "limits.timeout", at_most=True)
    return left


def _reckon(to_go: int, ended: Sequence[tuple[float, float]], running: Sequence[Going], at_once: int) -> Left | None:
    known = pace([end for _, end in ended], at_once)
    to_begin = to_go - len(running)
    if to_begin <= 0:
        if not running or (known is None and not all(r.ahead for r in running)):
            return None
        seconds = max(r.rest(known[0] * at_once if known else 0.0) for r in running)
        how = f"the last {len(running)} trials at their own pace" if len(running) > 1 else "the last trial at its own pace"
    elif known is None:
        return None
    else:
        every, count = known
        rests = [r.rest(every * at_once) for r in running]
        # At the very end one long trial is at work and the rest of the machine is idle: half of the time on average.
        longest = max(end - begin for begin, end in ended[-count:])
        alone = max(0.0, longest - every * at_once) * (1 - 1 / at_once) / 2
        seconds = max([to_begin * every + sum(rests) / at_once + alone, *rests])
        how = f"{to_go} trials to go, one every {_say(every)} s (the last {count})"
    if seconds < 1 and not all(r.ahead for r in running):  # the last one takes longer than the others did: who knows
        return None
    return Left(max(1.0, seconds), how)


def pace(ends: Sequence[float], at_once: int) -> tuple[float, int] | None:
    """Seconds from one trial's end to the next, and over how many ends that was taken; None before there are enough.

    Trials that began together end together, so the window is one of whole rounds of `at_once`. It begins with the end of a trial
    that is not of the first round, or with the last of that, which leaves the start of processes out.
    """
    if len(ends) < max(ENOUGH, at_once + 1):
        return None
    count = min(len(ends) - at_once, max(WINDOW, len(ends) // 2)) // at_once * at_once or at_once
    count = min(count, len(ends) - 1)
    return (ends[-1] - ends[-1 - count]) / count, count


def _say(seconds: float) -> str:
    return f"{seconds:.2g}" if seconds < 10 else f"{seconds:.0f}"
