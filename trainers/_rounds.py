"""Choose the rounds of boosting that a trial trains, and those that it measures and reports."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np

from sweeps import trial

from . import Params
from ._best import Steps
from ._requested import RequestedMetrics

# A trial reports at most this number of rounds, and the steps that the scheduler needs.
MOST_REPORTS = 200
# Number of rounds if `params.patience` is set, and neither the scheduler nor `params` limit them.
MOST_ROUNDS = 5_000
# The values `round + OFFSET` of the reported rounds are a geometric series. With an offset of 40,
# 200 reports among `MOST_ROUNDS` rounds begin with every round.
OFFSET = 40


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
    def of(cls, config: Params, rounds: int, max_t: int | None) -> Rounds:
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
        is_stalled = step in self.reported and step - (best or 0) >= self.patience
        return is_stalled or step == self.last

    def after(self, step: int, steps: Steps) -> Iterator[int]:
        """Yield the rounds to train after a round. `steps` decides when the training ends.

        The caller compares each round with the best one in `steps` before it takes the next round.
        """
        while not self.is_last(step, steps.best):
            step += 1
            yield step

    def renewal_rounds(self, distance: int, factor: int = 1) -> frozenset[int]:
        """Return the rounds after which random states get new seeds; see `BoostingSteps.renewals`.

        They are 0, the start of the training, and reported multiples of `factor`, at least this
        distance from one another.
        """
        chosen = [0]
        for step in sorted(self.reported):
            if step % factor == 0 and step - chosen[-1] >= distance:
                chosen.append(step)
        return frozenset(chosen)


def max_rounds(config: Params, usual: int) -> int:
    """Return the default of the number of rounds: `usual`, or `MOST_ROUNDS` with a patience."""
    return MOST_ROUNDS if config.get("patience") else usual


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
    end = OFFSET + max(last, MOST_ROUNDS)
    steps = np.geomspace(OFFSET, end, MOST_REPORTS).round().astype(int) - OFFSET
    return frozenset({last, *steps[(steps > 0) & (steps < last)].tolist()})


class BoostingSteps(Steps):
    """The training of a booster, round by round.

    Args:
        cur: The trial.
        config: The trial's `params`.
        requested: The requested metrics.

    Attributes:
        renewals: Rounds after which the booster's random states get new seeds, so that a resumed
            trial draws the same rows and columns as an uninterrupted one. Only these rounds, the
            milestones and the last round then have checkpoints. None if nothing is drawn.
    """

    def __init__(self, cur: trial.Current, config: Params, requested: RequestedMetrics):
        super().__init__(cur, requested.lead)
        self.requested = requested
        rounds = int(config.get("num_boost_round") or cur.max_t or max_rounds(config, 100))
        self.rounds = Rounds.of(config, rounds, cur.max_t)
        self.renewals: frozenset[int] | None = None

    def run(self, start: int) -> None:
        """Train the rounds after `start`, and report those that are due.

        Args:
            start: Number of rounds that the booster has. Rounds that are trained again are not
                reported.
        """
        reported_before = self.step
        for step in self.rounds.after(start, self):
            # At its start, a booster already has the seeds of its first round.
            if self._renews_after(step - 1) and step > start + 1:
                self.renew(step)
            self.grow(step)
            if step > reported_before and self.cur.report_due(step, step in self.rounds.reported):
                self._end_round(step)

    def _renews_after(self, step: int) -> bool:
        return self.renewals is not None and (step in self.renewals or step in self.cur.milestones)

    def _end_round(self, step: int) -> None:
        """Measure and report a round."""
        import ray.train
        from ray.train.collective import broadcast_from_rank_zero

        metrics = self.measure()
        self.compare(step, metrics)
        has_patience = self.rounds.patience < math.inf
        if has_patience and ray.train.get_context().get_world_size() > 1:
            # Ranks that measure train on their own rows could disagree about the best round, and
            # would then end after different rounds.
            self.best = broadcast_from_rank_zero(self.best)
        last = self.rounds.is_last(step, self.best)
        # Random states that are not renewed cannot be continued.
        resumable = last or self.renewals is None or self._renews_after(step)
        due = resumable and self.cur.checkpoint_due(step, last=last)
        self.report(metrics, last=last, due=due)

    def grow(self, step: int) -> None:
        """Train a round."""
        raise NotImplementedError

    def renew(self, step: int) -> None:
        """Give the booster's random states new seeds before a round."""
        raise NotImplementedError

    def measure(self) -> dict[str, float]:
        """Measure the last round."""
        raise NotImplementedError
