"""Time limits of a search: `limits.timeout`, and `--minutes` with the time of the export."""

from .deadline import TYPICAL_MEMBERS, Deadline
from .driver_state import Policy
from .progress import SweepProgress


class TimeLimits:
    """Time limits of a search.

    Args:
        progress: The progress of the sweep, which shows the earlier limit.
        policy: Settings that stay the same while the driver runs.
        began: See `SweepController`.
        deadline: When the whole command must end. None if the user gave no `--minutes`.
    """

    def __init__(
        self, progress: SweepProgress, policy: Policy, began: float, deadline: Deadline | None
    ):
        self._progress = progress
        self._policy = policy
        self._began = began
        self._deadline = deadline
        # Id of the best trial, and whether the trial could be trained again in time when it became
        # the best. This is not computed again, so that the end of the search does not move.
        self._leader: tuple[str, bool] | None = None
        # The number of ended trials, and the training seconds of the best of them
        self._next_best: tuple[int, list[float]] = (-1, [])

    def reached(self, now: float) -> str | None:
        """Return the time limit that the sweep has reached; None if it has reached none.

        Args:
            now: The current time by the monotonic clock.
        """
        timeout = self._policy.space.limits.timeout
        deadline = self._deadline
        ends = {} if timeout is None else {"limits.timeout": self._began + timeout}
        if deadline is not None:
            ends["--minutes"] = deadline.end - self._reserve(deadline, now)
        if not ends:
            return None
        reason = min(ends, key=lambda name: ends[name])
        self._progress.timeout = ends[reason] - self._began
        return reason if now > ends[reason] else None

    def _reserve(self, deadline: Deadline, now: float) -> float:
        """Return the seconds that the command needs after the search; see `Deadline.reserve`."""
        leader = self._progress.leader(self._policy.can_win)
        if leader is None:
            return deadline.reserve(None, trains=False)
        trial, seconds = leader
        if self._leader is None or self._leader[0] != trial:
            self._leader = trial, deadline.fits(seconds, now)
        return deadline.reserve(seconds, self._leader[1], self._seconds_of_members(deadline))

    def _seconds_of_members(self, deadline: Deadline) -> list[float]:
        """Return the training seconds of the trials that may be members besides the best one."""
        count = min(deadline.members, TYPICAL_MEMBERS) - 1
        if deadline.growth is None or count < 1:
            return []
        ended = len(self._progress.ends)
        if self._next_best[0] != ended:  # The results of many trials take a while.
            self._next_best = ended, self._progress.best_seconds(count + 1)[1:]
        return self._next_best[1]
