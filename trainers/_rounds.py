"""Choose the rounds of boosting that a trial trains, and those that it measures and reports."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sweeps.trainers._best import BestStep

# A trial reports at most this number of rounds, and the steps that the scheduler needs.
MOST_REPORTS = 200
# Number of rounds if `params.patience` is set, and neither the scheduler nor `params` limit them.
MOST_ROUNDS = 5_000
# With this number, 200 reports among `MOST_ROUNDS` rounds begin with every round.
EARLY = 40


@dataclass(frozen=True)
class Rounds:
    """The rounds of a trial.

    Attributes:
        last: The last round, unless the patience ends the training earlier.
        patience: Number of rounds without an improvement after which the training ends.
        reported: The rounds that are measured and reported. The scheduler may need more rounds.
    """

    last: int
    patience: float
    reported: Collection[int]

    @classmethod
    def of(cls, config: Mapping[str, Any], rounds: int, max_t: int | None) -> Rounds:
        """Return the rounds of a trial.

        Args:
            config: The trial's `params`.
            rounds: Largest number of rounds, without regard to `max_t`.
            max_t: `Current.max_t`.
        """
        last = min(rounds, max_t or rounds)
        return cls(last, config.get("patience") or math.inf, reported_rounds(last))

    def is_last(self, step: int, best: int | None) -> bool:
        """Return whether the training ends after a round.

        Args:
            step: Number of the round.
            best: Number of the best round so far; None if there is none.
        """
        impatient = step in self.reported and step - (best or 0) >= self.patience
        return impatient or step == self.last

    def after(self, step: int, best: BestStep) -> Iterator[int]:
        """Yield the rounds to train after a round. The loop keeps `best` up to date meanwhile."""
        while not self.is_last(step, best.step):
            step += 1
            yield step

    def resumable(self, distance: int, factor: int = 1) -> frozenset[int]:
        """Return reported multiples of `factor`, at least this distance from one another."""
        chosen = [0]
        for step in sorted(self.reported):
            if step % factor == 0 and step - chosen[-1] >= distance:
                chosen.append(step)
        return frozenset(chosen)


def max_rounds(config: Mapping[str, Any], usual: int) -> int:
    """Return the default of the number of rounds: `usual`, or `MOST_ROUNDS` with a patience."""
    return MOST_ROUNDS if config.get("patience") else usual


def agree(best: BestStep) -> None:
    """Give every rank the best round of rank 0, so that all ranks end after the same round.

    Without this, ranks that measure train on their own rows could disagree.
    """
    import ray.train
    from ray.train.collective import broadcast_from_rank_zero

    if ray.train.get_context().get_world_size() > 1:
        best.step = broadcast_from_rank_zero(best.step)


def reported_rounds(last: int) -> Collection[int]:
    """Return the rounds that a trial of `last` rounds reports.

    Up to `MOST_REPORTS` rounds, this is every round. Beyond that, the first rounds are reported one
    by one, and later reports are further apart: about every 4th round around round 100, and every
    26th around round 1,000. A change of a few percent in the number of rounds hardly changes a
    model. The last round is always reported. All trials with up to `MOST_ROUNDS` rounds report the
    same rounds, so that schedulers can compare them.
    """
    if last <= MOST_REPORTS:
        return range(1, last + 1)
    ends = EARLY, EARLY + max(last, MOST_ROUNDS)
    steps = np.geomspace(*ends, MOST_REPORTS).round().astype(int) - EARLY
    return frozenset({last, *steps[(steps > 0) & (steps < last)].tolist()})
