"""Time limits of a search: `limits.timeout`, and `--minutes` with the time of the export."""

import math

from sweeps.evaluation.racing import CANDIDATES, MOST_CONFIRMING, round_seconds, rounds_in_time
from sweeps.space.sections.choice_rule import choice_rule

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
        self._best: tuple[int, list[float]] = (-1, [])

    def reached(self, now: float) -> str | None:
        """Return the time limit that the sweep has reached; None if it has reached none.

        Args:
            now: The current time by the monotonic clock.
        """
        ends = self._ends(now)
        if not ends:
            return None
        if choice_rule(self._policy.space, self._policy.scheduler.perturbs) == "confirmed":
            ends = {name: end - self._confirmation(end) for name, end in ends.items()}
        reason = min(ends, key=lambda name: ends[name])
        self._progress.timeout = ends[reason] - self._began
        return reason if now > ends[reason] else None

    def confirmation_ends(self, now: float) -> float:
        """Return when the training of the best trials must end, by the monotonic clock."""
        return min(self._ends(now).values(), default=math.inf)

    def _ends(self, now: float) -> dict[str, float]:
        """Return when the search and the training of the best trials must end, by the limit."""
        timeout = self._policy.space.limits.timeout
        deadline = self._deadline
        ends = {} if timeout is None else {"limits.timeout": self._began + timeout}
        if deadline is not None:
            ends["--minutes"] = deadline.end - self._reserve(deadline, now)
        return ends

    def _confirmation(self, end: float) -> float:
        """Return the seconds to leave for the training of the best trials, which ends at `end`."""
        seconds = self._best_seconds()[:CANDIDATES]
        if len(seconds) < 2:  # nothing to choose from
            return 0.0
        slots = self._progress.concurrency
        rounds = rounds_in_time(seconds, slots, MOST_CONFIRMING * (end - self._began))
        return rounds * round_seconds(seconds, slots)

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
        return self._best_seconds()[1 : count + 1]

    def _best_seconds(self) -> list[float]:
        """Return the training seconds of the best complete trials, the best first."""
        ended = len(self._progress.ends)
        if self._best[0] != ended:  # The results of many trials take a while.
            most = max(CANDIDATES, TYPICAL_MEMBERS)
            self._best = ended, self._progress.best_seconds(most)
        return self._best[1]
