"""Progressive ASHA (PASHA; Bohdal et al., ICLR 2023): ASHA with pauses, and with a cap that rises only while the ranking is not settled."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from sweeps.search.schedulers.asha import SuccessiveHalving
from sweeps.search.schedulers.base import Decision
from sweeps.search.schedulers.promotion import Rung
from sweeps.search.schedulers.view import StudyView, TrialView

# The noise of the values is estimated from at most this number of trials, and at most this number
# of steps, so that it takes milliseconds.
NOISE_TRIALS, NOISE_STEPS = 40, 32
# Two trials are ranked differently only if their values differ by more than this quantile of the
# noise, as in the paper.
NOISE_QUANTILE = 0.9


@dataclass(frozen=True)
class Pasha(SuccessiveHalving):
    """Pause trials as ASHA does, and let trials go beyond the second rung only while the two highest rungs rank them differently.

    At the end of the sweep, the best trial continues to `max_t`.
    """

    pauses: ClassVar[bool] = True
    needs_checkpoint: ClassVar[bool] = True

    def decide(self, view: StudyView, trial: int, rung: int) -> Decision:
        """Continue if the trial is promoted at once. Otherwise pause the trial.

        Stop a trial whose value is NaN or missing.
        """
        return self.promote(view, trial, rung)

    def next_paused(self, view: StudyView) -> int | None:
        """Return the number of the paused trial that continues now; see `promotable`."""
        return self.promotable(view, view.paused)

    def open_rungs(self, view: StudyView, rungs: Sequence[Rung]) -> Sequence[Rung]:
        """Return the rungs below the cap."""
        cap = self.cap(view)
        return [(step, bracket) for step, bracket in rungs if step < cap]

    def cap(self, view: StudyView) -> int:
        """Return the step at which trials pause even if they are the best: a rung, or `max_t` if there is no cap any more.

        The cap is the second rung at first. It moves up by one rung if the two highest rungs below
        and at the cap rank their common trials differently. It never falls below a rung that two
        trials have passed.
        """
        ends = (*self.rungs(), self.max_t)
        for i, (lower, upper) in enumerate(itertools.pairwise(ends)):
            if upper == self.max_t:
                break
            common = [
                t
                for t in view.at_rung(upper)
                if not math.isnan(t.value_at(lower) + t.value_at(upper))
            ]
            if sum(ends[i + 2] in t.values for t in view.trials.values()) >= 2 or (
                ranks_differ(common, lower, upper, 0.0)
                and ranks_differ(common, lower, upper, latest_noise(view, ends[: i + 2]))
            ):
                continue
            return upper
        return self.max_t


def ranks_differ(trials: Sequence[TrialView], lower: int, upper: int, noise: float) -> bool:
    """Return whether two rungs rank trials differently.

    Trials whose values at the lower rung differ by at most `noise` count as equal.

    Args:
        trials: Trials with a value at both rungs.
        lower: Step of the lower rung.
        upper: Step of the higher rung.
        noise: Difference between two values that is not significant.
    """
    ranked = sorted(
        trials, key=lambda t: (t.value_at(upper), t.value_at(lower))
    )  # Equal values at the higher rung have no order.
    return any(
        abs(t.value_at(lower) - value) > noise
        for t, value in zip(ranked, sorted(t.value_at(lower) for t in trials), strict=True)
    )


def latest_noise(view: StudyView, ends: Sequence[int]) -> float:
    """Return the noise between the two highest rungs for which `noise_of` has an estimate; 0 if there are no such rungs."""
    estimates = (
        noise_of(view, lower, upper) for lower, upper in reversed(list(itertools.pairwise(ends)))
    )
    return next((noise for noise in estimates if noise is not None), 0.0)


def noise_of(view: StudyView, lower: int, upper: int) -> float | None:
    """Estimate by how much values differ by chance.

    Two trials differ by chance if their order changes and changes back.

    Args:
        view: The trials so far.
        lower: Step of a rung.
        upper: Step of the next rung.

    Returns:
        The `NOISE_QUANTILE` quantile of the differences of such pairs of trials. Each difference is
        taken at the latest step up to `upper` that both trials reported. None if there is no such
        pair with a step above `lower`.
    """
    trials = [
        t for t in view.trials.values() if any(lower < step <= upper for step in reversed(t.values))
    ][-NOISE_TRIALS:]
    pairs = itertools.combinations([t.values for t in trials], 2)
    differences = sorted(
        d for a, b in pairs if (d := chance_difference(a, b, lower, upper)) is not None
    )
    return differences[math.ceil(NOISE_QUANTILE * len(differences)) - 1] if differences else None


def chance_difference(
    a: Mapping[int, float], b: Mapping[int, float], lower: int, upper: int
) -> float | None:
    """Return the difference of two curves at their latest common step up to `upper`; None if their order did not change and change back.

    Also return None if the latest common step is not above `lower`.
    """
    common = [step for step in a if step <= upper and step in b]
    if not common or common[-1] <= lower:
        return None
    common = common[:: -math.ceil(len(common) / NOISE_STEPS)]
    orders = [a[step] > b[step] for step in common if a[step] != b[step]]
    changes = sum(x is not y for x, y in itertools.pairwise(orders))
    difference = abs(a[common[0]] - b[common[0]])
    return difference if changes >= 2 and not math.isnan(difference) else None
