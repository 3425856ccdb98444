"""Estimate how long a sweep still takes. The functions are pure: they do no I/O and read no clock.

The mean duration of a trial is misleading. Trials run in parallel, the scheduler stops most of them
early, the survivors hold their workers, and the first trials wait for processes to start. The
estimate therefore uses two sources. For trials that have not started, the source is the recent
interval between the ends of trials. For running trials, it is the pace of each trial's own reports.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# The interval is computed only if at least this many trials have ended.
MIN_ENDED = 3
# The interval is the mean over the later half of the ended trials, but over at least this many
# trials.
MIN_WINDOW = 8


@dataclass(frozen=True)
class TimeLeft:
    """Estimated time left.

    Attributes:
        seconds: Seconds until the sweep ends.
        how: Text for the user that says how the time was estimated.
        at_most: True if `seconds` is an upper bound and not an estimate.
    """

    seconds: float
    how: str
    at_most: bool = False


@dataclass(frozen=True)
class RunningTrial:
    """A running trial.

    Attributes:
        seconds: Seconds since the trial started.
        time_to_stops: Two durations in seconds: until the next step at which the trial can end, and
            until the step at which it must end. None if they are unknown.
    """

    seconds: float
    time_to_stops: tuple[float, float] | None = None

    def time_left(self, usual: float) -> float:
        """Return the estimated number of seconds until the trial ends.

        The estimate is halfway between the earliest and the latest end. If these are unknown, it is
        the rest of the usual duration.
        """
        return sum(self.time_to_stops) / 2 if self.time_to_stops else max(0.0, usual - self.seconds)


def time_to_stops(
    first: tuple[int, float], last: tuple[int, float], stops: Sequence[int], now: float
) -> tuple[float, float] | None:
    """Estimate the seconds until the next and until the last step at which a trial can end, from the pace of its reports.

    Args:
        first: Step and time of the trial's first report.
        last: Step and time of the trial's latest report.
        stops: Steps at which the trial can end, ascending. The trial must end at the last of them.
        now: Current time.

    Returns:
        The two durations, or None if the pace is unknown or no stop is left.
    """
    coming = [step for step in stops if step > last[0]]
    if not coming or last[0] <= first[0]:
        return None
    per_step = (last[1] - first[1]) / (last[0] - first[0])
    earliest, latest = (
        max(0.0, (step - last[0]) * per_step - (now - last[1])) for step in (coming[0], coming[-1])
    )
    return earliest, latest


def time_left(
    now: float,
    total: int,
    ended: Sequence[tuple[float, float]],
    running: Sequence[RunningTrial],
    concurrency: int,
    timeout: float | None,
) -> TimeLeft | None:
    """Estimate the time until a sweep ends.

    Args:
        now: Seconds since the sweep started. All other times are also in seconds since then.
        total: Number of trials in the whole sweep, including trials that have ended.
        ended: (start, end) of each ended trial, ordered by end.
        running: The running trials.
        concurrency: The largest number of trials that have run in parallel.
        timeout: When a time limit ends the search, an upper bound in seconds.

    Returns:
        The estimate, or None while it is unknown.
    """
    left = _estimate(total - len(ended), ended, running, max(1, concurrency))
    if timeout is not None and (left is None or left.seconds > timeout - now):
        return TimeLeft(max(0.0, timeout - now), "time limit", at_most=True)
    return left


def _estimate(
    unfinished: int,
    ended: Sequence[tuple[float, float]],
    running: Sequence[RunningTrial],
    concurrency: int,
) -> TimeLeft | None:
    """Estimate the time left as if there were no timeout.

    `unfinished` is the number of trials that run or have not started.
    """
    interval = mean_interval([end for _, end in ended], concurrency)
    not_started = unfinished - len(running)
    paces_known = all(r.time_to_stops for r in running)
    if not_started <= 0:
        if not running or (interval is None and not paces_known):
            return None
        seconds = max(r.time_left(interval[0] * concurrency if interval else 0.0) for r in running)
        how = (
            f"from the pace of the last {len(running)} trials"
            if len(running) > 1
            else "from the pace of the last trial"
        )
    elif interval is None:
        return None
    else:
        every, count = interval
        rests = [r.time_left(every * concurrency) for r in running]
        # At the end, one long trial may run while the other slots are idle. On average, this takes
        # half of the time by which that trial is longer than the others.
        longest = max(end - begin for begin, end in ended[-count:])
        tail = max(0.0, longest - every * concurrency) * (1 - 1 / concurrency) / 2
        seconds = max([not_started * every + sum(rests) / concurrency + tail, *rests])
        how = (
            f"{unfinished} trials left, one every {_seconds_text(every)} s (mean of the last "
            f"{count})"
        )
    if seconds < 1 and not paces_known:  # The last trial already takes longer than the usual trial.
        return None
    return TimeLeft(max(1.0, seconds), how)


def mean_interval(ends: Sequence[float], concurrency: int) -> tuple[float, int] | None:
    """Return the mean seconds between the ends of trials, and the number of ends that the mean covers.

    Trials that start together end together, so the mean covers whole rounds of `concurrency`
    trials. The first round is left out, because its trials also waited for processes to start.

    Args:
        ends: When trials ended, ascending.
        concurrency: Number of trials that run in parallel.

    Returns:
        The interval and the number of ends, or None if too few trials have ended.
    """
    if len(ends) < max(MIN_ENDED, concurrency + 1):
        return None
    count = (
        min(len(ends) - concurrency, max(MIN_WINDOW, len(ends) // 2)) // concurrency * concurrency
        or concurrency
    )
    count = min(count, len(ends) - 1)
    return (ends[-1] - ends[-1 - count]) / count, count


def _seconds_text(seconds: float) -> str:
    return f"{seconds:.2g}" if seconds < 10 else f"{seconds:.0f}"
