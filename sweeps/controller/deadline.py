"""Predict when a search must end, so that the whole command ends in time (`--minutes`).

Pure: nothing here reads a clock.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# The constants in seconds were measured on an idle machine with two cores.

# The start of Ray. A longer start shows a slower or busier machine.
START_SECONDS = 2.5
# From the end of the search to the end of the command: export, check, report and shutdown.
CLOSING_SECONDS = 4.0
# The additional time of each further model in the bundle.
MODEL_SECONDS = 0.1
# Largest factor by which a machine counts as slower. A start that takes even longer had other
# causes, such as a machine that was busy for a moment.
MOST_SLOWNESS = 5.0
# The part of `CLOSING_SECONDS` that remains after the trackers are closed.
EXIT_SECONDS = 0.5
# From the end of the search until the final training begins: a trial that has to end makes its last
# report and predicts valid, and its worker becomes ready.
READY_SECONDS = 1.0
# An average has this many models in most sweeps. To train them again may take this share of the
# command's time; the other models stay those of the search.
TYPICAL_MEMBERS = 4
MOST_TRAINING = 0.25
# The final training may end this much later than planned. Otherwise it would have been in vain.
LATE_SECONDS = 1.0


@dataclass(frozen=True)
class Deadline:
    """When a command must end, and what the command does after the search.

    Attributes:
        end: When the command must end, by the monotonic clock.
        start: Seconds that the start of Ray took in this command.
        growth: Rows of the final training, divided by those of a trial. None without a final
            training.
        speedup: Factor by which the training of a single model is faster than that of a trial,
            because it has more threads.
        slots: Number of models that train side by side, each as slowly as a trial.
        members: Largest number of trials in the bundle.
        folds: Number of models of each trial; 0 without a cross-validation.
        seconds: Seconds from the end of the start to `end`.
    """

    end: float
    start: float
    growth: float | None = None
    speedup: float = 1.0
    slots: int = 1
    members: int = 1
    folds: int = 0
    seconds: float = math.inf

    @property
    def slowness(self) -> float:
        """Factor by which this machine is slower than the one on which the constants were measured.

        It is at least 1 and at most `MOST_SLOWNESS`.
        """
        return min(max(1.0, self.start / START_SECONDS), MOST_SLOWNESS)

    @property
    def closing(self) -> float:
        """Predicted seconds of export, check, report and shutdown."""
        models = min(self.members, TYPICAL_MEMBERS) * max(1, self.folds)
        return (CLOSING_SECONDS + MODEL_SECONDS * (models - 1)) * self.slowness

    @property
    def _ready(self) -> float:
        """Predicted seconds from the end of the search until the final training begins."""
        return 0.0 if self.growth is None else READY_SECONDS * self.slowness

    @property
    def training_ends(self) -> float:
        """When the final training must have ended, by the monotonic clock."""
        return self.end - self.closing + LATE_SECONDS

    def training_seconds(self, *seconds: float) -> float:
        """Return the predicted seconds of the final training of models, when workers are ready.

        Args:
            seconds: Seconds of the training of each model in the search.
        """
        if self.growth is None:
            return 0.0
        longest = max(seconds) / self.speedup
        if len(seconds) > 1:
            longest = max(max(seconds), sum(seconds) / self.slots)
        return longest * self.growth

    def members_in_time(self, seconds: Sequence[float], now: float) -> list[int]:
        """Return the indices of the models that can be trained in time, at least one.

        Args:
            seconds: Seconds of the training of each model, the most important model first.
            now: The current time by the monotonic clock.
        """
        chosen: list[int] = []
        for index in range(len(seconds)):
            together = [seconds[other] for other in (*chosen, index)]
            end = now + self.training_seconds(*together)
            if not chosen or end <= self.training_ends:
                chosen.append(index)
        return chosen

    def fits(self, seconds: float, now: float) -> bool:
        """Return whether the final training could end in time if the search ended now.

        Args:
            seconds: Seconds for which the trial ran on its workers.
            now: The current time by the monotonic clock.
        """
        return now + self.training_seconds(seconds) + self._ready + self.closing <= self.end

    def reserve(self, seconds: float | None, trains: bool, others: Sequence[float] = ()) -> float:
        """Return the seconds to leave after the search.

        While there is nothing to export, the search gets as much time as possible.

        Args:
            seconds: Seconds for which the best trial ran on its workers. None while no trial has a
                value.
            trains: True if the result includes the final training.
            others: Seconds of the next best trials, which may become members of an average.
        """
        if seconds is None:
            return CLOSING_SECONDS
        if not trains:
            return self.closing
        training = self.training_seconds(seconds)
        for count in range(1, len(others) + 1):
            longer = self.training_seconds(seconds, *others[:count])
            if longer <= MOST_TRAINING * self.seconds:
                training = max(training, longer)
        return self.closing + self._ready + training


def speedup(threads: float, before: float) -> float:
    """Return the factor by which a training is faster with `threads` instead of `before` threads.

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
    final = rows["train"]
    if "test" in splits:
        final += rows["test"]
    # Each of the trial's trainings left out one fold, so it had (folds - 1) / folds of the rows.
    return final / (rows["train"] * (folds - 1))
