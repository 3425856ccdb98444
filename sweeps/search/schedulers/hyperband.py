"""Asynchronous Hyperband (Li et al., JMLR 2018 and MLSys 2020): ASHA in several brackets.

Bracket 0 has all rungs of ASHA. Each further bracket leaves out one more of the first rungs.
"""

import random
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from sweeps.space.sections.key_types import AtLeast1

from .asha import Asha


@dataclass(frozen=True)
class Hyperband(Asha):
    """Draw a bracket for each trial, and apply ASHA within the bracket.

    Each bracket's probability is chosen so that all brackets use about the same number of steps in
    total.
    """

    brackets: Annotated[
        AtLeast1,
        Field(description="number of brackets; if there are fewer rungs, the number of rungs"),
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
        n = len(super().rungs())
        factor = self.reduction_factor
        # The numbers of trials that the brackets of synchronous Hyperband start. Bracket i has
        # n - i rungs.
        odds = [(n + 1) / (n - i + 1) * factor ** (n - i) for i in range(self.bracket_count)]
        return random.Random(f"{seed}/{trial}/bracket").choices(range(len(odds)), odds)[0]
