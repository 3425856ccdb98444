"""Predict when a search must end, so that the whole command ends in time (`--minutes`).

Pure: nothing here reads a clock.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# Seconds of the start of Ray on an idle machine with two cores. A longer start shows a slower or
# busier machine.
START = 2.5
# Seconds from the end of the search to the end of the command on this machine: export, check,
# report and shutdown.
CLOSING = 4.0
# A start that takes many times as long had other causes, such as a machine that was busy for a
# moment.
MOST_SLOWNESS = 5.0
# The part of `CLOSING` that remains after the trackers are closed.
EXIT = 0.5
# Seconds in which a training that has to end makes its last report, and in which its worker is
# ready for the final training.
READY = 0.5
# The final training may end so many seconds after its time, rather than be in vain.
LATE = 1.0


@dataclass(frozen=True)
class Deadline:
    """When a command must end, and what the command does after the search.

    Attributes:
        end: When the command must end, by the monotonic clock.
        start: Seconds that the start of Ray took in this command.
        growth: Time of the final training, divided by that of a trial. None without a final
            training.
    """

    end: float
    start: float
    growth: float | None = None

    @property
    def slowness(self) -> float:
        """Factor by which this machine is slower than the one on which the constants were measured.

        It is at least 1 and at most `MOST_SLOWNESS`.
        """
        return min(max(1.0, self.start / START), MOST_SLOWNESS)

    @property
    def closing(self) -> float:
        """Predicted seconds of export, check, report and shutdown."""
        return CLOSING * self.slowness

    @property
    def training_ends(self) -> float:
        """When the final training must have ended, by the monotonic clock."""
        return self.end - self.closing + LATE

    def training(self, seconds: float) -> float:
        """Return the predicted seconds of the final training of a trial that ran for `seconds`."""
        return 0.0 if self.growth is None else seconds * self.growth + READY * self.slowness

    def fits(self, seconds: float, now: float) -> bool:
        """Return whether the final training could end in time if the search ended now.

        Args:
            seconds: how long the trial ran on its workers.
            now: the current time by the monotonic clock.
        """
        return now + self.training(seconds) + self.closing <= self.end

    def reserve(self, seconds: float | None, trains: bool) -> float:
        """Return the seconds to leave after the search.

        While there is nothing to export, the search gets as much time as possible.

        Args:
            seconds: how long the best trial ran on its workers. None while no trial has a value.
            trains: whether this time includes the final training.
        """
        if seconds is None:
            return CLOSING
        return self.closing + (self.training(seconds) if trains else 0.0)


def speedup(threads: float, before: float) -> float:
    """Return by how much a training is faster with more threads.

    Boosting on few rows hardly uses more than a few threads, so this is the square root.

    >>> speedup(4, 1), speedup(1, 2)
    (2.0, 1.0)
    """
    return math.sqrt(max(1.0, threads / before))


def row_growth(rows: Mapping[str, int], splits: Sequence[str], folds: int) -> float:
    """Return the rows of the final training, divided by the rows on which a trial has trained.

    Args:
        rows: Number of rows by split. In a cross-validation, `train` has the rows of all folds.
        splits: See `Space.refit_splits`.
        folds: Number of folds of a cross-validation, each of which a trial leaves out once. 0
            without a cross-validation.
    """
    if not folds:
        return sum(rows[name] for name in splits) / rows["train"]
    test = rows["test"] if "test" in splits else 0
    # With test, the winner is trained without test first, to score it.
    final = 2 * rows["train"] + test if test else rows["train"]
    return final / (rows["train"] * (folds - 1))
