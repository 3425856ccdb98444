"""Schedulers as pure functions: from what is on record at a rung and a trial's new value there, go on or stop.

Nothing is kept between calls, so nothing has to be rebuilt after a crash, and a replay is exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sweeps.trial import Verdict


class Scheduler(Protocol):
    """Decides at rungs. `max_t` is the step at which every trial ends COMPLETE; None for no bound."""

    @property
    def max_t(self) -> int | None: ...

    @property
    def rungs(self) -> tuple[int, ...]: ...

    def verdict(self, others: Sequence[float], value: float, minimize: bool) -> Verdict: ...


@dataclass(frozen=True)
class NoScheduler:
    """Every trial runs to its end, or to `max_t`."""

    max_t: int | None = None

    @property
    def rungs(self) -> tuple[int, ...]:
        return ()

    def verdict(self, others: Sequence[float], value: float, minimize: bool) -> Verdict:
        return Verdict.CONTINUE


@dataclass(frozen=True)
class Asha:
    """Asynchronous successive halving, the variant that stops (Li et al., MLSys 2020; as in Ray Tune and Syne Tune).

    Attributes:
        max_t: steps at most, counted in reports of the loop.
        grace_period: the first rung.
        reduction_factor: a rung is this many times the one before, and one trial in this many passes it.
    """

    max_t: int
    grace_period: int = 1
    reduction_factor: int = 3

    @property
    def rungs(self) -> tuple[int, ...]:
        """The steps at which trials are compared, below `max_t`."""
        rungs, step = [], self.grace_period
        while step < self.max_t:
            rungs.append(step)
            step *= self.reduction_factor
        return tuple(rungs)

    def verdict(self, others: Sequence[float], value: float, minimize: bool) -> Verdict:
        """Go on if `value` is among the best 1/reduction_factor of all values at this rung, itself included.

        Args:
            others: the values that other trials had at the rung, in any order.
            value: this trial's. NaN stops it.
            minimize: whether smaller is better.
        """
        if math.isnan(value):
            return Verdict.STOP
        worst = math.inf if minimize else -math.inf
        known = [worst if math.isnan(v) else v for v in others]
        better = sum(v < value if minimize else v > value for v in known)
        passing = max(1, math.ceil((len(known) + 1) / self.reduction_factor))
        return Verdict.CONTINUE if better < passing else Verdict.STOP


def scheduler_of(spec: Any) -> Scheduler:
    """The scheduler that a space's `scheduler` section asks for."""
    if spec.name == "asha":
        return Asha(spec.max_t, spec.grace_period, spec.reduction_factor)
    return NoScheduler(spec.max_t)
