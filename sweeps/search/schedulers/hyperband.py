"""Asynchronous Hyperband (Li et al., JMLR 2018 and MLSys 2020): ASHA in several brackets.

Bracket 0 has all rungs of ASHA. Each further bracket leaves out one more of the first rungs.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from sweeps.search.schedulers.asha import Asha, promoted_steps
from sweeps.space.section_models import AtLeast1


@dataclass(frozen=True)
class Hyperband(Asha):
    """Draw a bracket for each trial, and apply ASHA within the bracket.

    Each bracket's probability is chosen so that all brackets use about the same number of steps in
    total.
    """

    brackets: Annotated[
        AtLeast1,
        Field(
            examples=[2],
            description="number of brackets; if there are fewer rungs, the number of rungs",
        ),
    ] = 3

    @property
    def grace_periods(self) -> tuple[int, ...]:
        """First rung of each bracket."""
        return super().rungs()[: self.brackets] or (self.grace_period,)

    @property
    def bracket_count(self) -> int:
        """Number of brackets."""
        return len(self.grace_periods)

    def rungs(self, bracket: int = 0) -> tuple[int, ...]:
        """Return the rungs of a bracket: the rungs of ASHA without the first `bracket` rungs."""
        return super().rungs()[bracket:]

    def bracket(self, seed: int, trial: int) -> int:
        """Draw the bracket of a trial."""
        n, factor = len(super().rungs()), self.reduction_factor
        odds = [(n + 1) / (n - i + 1) * factor ** (n - i) for i in range(self.bracket_count)]
        return random.Random(f"{seed}/{trial}/bracket").choices(range(len(odds)), odds)[0]

    def min_complete(self, trials: int, seed: int = 0) -> int:
        """Return the smallest possible number of trials that run to their end: one for each bracket that has a trial.

        If trials are stopped, the first trial of a bracket passes all rungs. If trials are paused,
        the best trial of a bracket does. If there are no rungs, all trials run to their end.
        """
        return len(self._sizes(trials, seed)) if self.rungs() else trials

    def min_steps(self, trials: int, seed: int = 0) -> int:
        """Return the smallest possible total number of steps of all trials.

        If trials are stopped, the total is smallest if one trial of each bracket passes all rungs,
        and all other trials stop at the first rung of their bracket. If trials are paused, see
        `promoted_steps`.
        """
        if not self.rungs():
            return trials * self.max_t
        sizes = self._sizes(trials, seed).items()
        if self.pauses:
            return sum(
                promoted_steps(size, self.rungs(bracket), self.max_t, self.reduction_factor)
                for bracket, size in sizes
            )
        return sum(self.max_t + (size - 1) * self.grace_periods[bracket] for bracket, size in sizes)

    def late_trial_steps(self, repeats: int) -> float | None:
        """Return None, because ASHA's estimate does not apply to several brackets."""
        return None

    def _sizes(self, trials: int, seed: int) -> Counter[int]:
        return Counter(self.bracket(seed, number) for number in range(trials))
