"""Estimate how long a sweep still takes. The functions are pure: they do no I/O and read no clock.

The mean duration of a trial is misleading. Trials run in parallel, the scheduler stops most of them
early, and the first trials wait for processes to start. So the estimate uses the recent interval
between the ends of trials.
"""

from collections.abc import Sequence
from dataclasses import dataclass

# The interval is computed only if at least this many trials have ended.
MIN_ENDED = 3


@dataclass(frozen=True)
class TimeLeft:
    """Estimated time left.

    Attributes:
        seconds: Seconds until the sweep ends.
        at_most: True if `seconds` is an upper bound and not an estimate.
    """

    seconds: float
    at_most: bool = False


def time_left(
    now: float, unfinished: int, ends: Sequence[float], concurrency: int, timeout: float | None
) -> TimeLeft | None:
    """Estimate the time until a sweep ends.

    Args:
        now: Seconds since the sweep started. All other times are also in seconds since then.
        unfinished: Number of trials that run or have not started.
        ends: When trials ended, ascending.
        concurrency: The largest number of trials that have run in parallel.
        timeout: When a time limit ends the search; None without a time limit.

    Returns:
        The estimate, or None while it is unknown.
    """
    left = None
    interval = mean_interval(ends, max(1, concurrency))
    if interval is not None:
        seconds = ends[-1] + unfinished * interval - now
        if seconds > 0:
            left = TimeLeft(max(1.0, seconds))
    if timeout is not None and (left is None or left.seconds > timeout - now):
        return TimeLeft(max(0.0, timeout - now), at_most=True)
    return left


def mean_interval(ends: Sequence[float], concurrency: int) -> float | None:
    """Return the mean seconds between the ends of the later half of the trials.

    Trials that start together end together, so the mean covers whole rounds of `concurrency`
    trials. The first round is left out, because its trials also waited for processes to start.

    Args:
        ends: When trials ended, ascending.
        concurrency: Number of trials that run in parallel.

    Returns:
        The interval, or None if too few trials have ended.
    """
    if len(ends) < max(MIN_ENDED, concurrency + 1):
        return None
    rounds = max(1, len(ends) // 2 // concurrency)
    count = min(rounds * concurrency, len(ends) - 1)
    return (ends[-1] - ends[-1 - count]) / count
