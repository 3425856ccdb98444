"""Schedulers as pure functions: from what is on record at a rung and a trial's new value there, go on or stop.

Nothing is kept between calls, so nothing has to be rebuilt after a crash, and a replay is exact. A trial's bracket is drawn from the
sweep's seed and its number.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Protocol

from sweeps.core.trial import Decision


class Scheduler(Protocol):
    """Decides at rungs. `max_t` is the step at which every trial ends COMPLETE; None for no bound."""

    @property
    def max_t(self) -> int | None: ...

    @property
    def rungs(self) -> Sequence[int]:
        """The steps at which a loop waits for a verdict; a `range` where every report is one."""

    def bracket(self, seed: int, number: int) -> int:
        """The bracket of a trial; only trials of one bracket are compared."""

    def own(self, curve: Sequence[float], minimize: bool) -> float:
        """What of a trial's values, at the rungs up to this one (of the median rule: of all reports), is compared with the others."""

    def shown(self, curve: Sequence[float]) -> float:
        """What of the same values others are compared with."""

    def verdict(self, others: Sequence[float], value: float, minimize: bool, step: int = 0, bracket: int = 0) -> Decision:
        """Whether a trial goes on.

        Args:
            others: what the other trials of its bracket that came to the step have shown there, in any order.
            value: this trial's own.
            minimize: whether smaller is better.
            step: the rung.
            bracket: the trial's.
        """


class _Latest:
    """Compares the values at the rung, of all trials."""

    def bracket(self, seed: int, number: int) -> int:
        return 0

    def own(self, curve: Sequence[float], minimize: bool) -> float:
        return curve[-1]

    def shown(self, curve: Sequence[float]) -> float:
        return curve[-1]


@dataclass(frozen=True)
class NoScheduler(_Latest):
    """Every trial runs to its end, or to `max_t`."""

    max_t: int | None = None

    @property
    def rungs(self) -> tuple[int, ...]:
        return ()

    def verdict(self, others: Sequence[float], value: float, minimize: bool, step: int = 0, bracket: int = 0) -> Decision:
        return Decision.CONTINUE


@dataclass(frozen=True)
class Asha(_Latest):
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

    def verdict(self, others: Sequence[float], value: float, minimize: bool, step: int = 0, bracket: int = 0) -> Decision:
        """Go on if `value` is among the best 1/reduction_factor of all values at this rung, itself included. NaN stops it."""
        if math.isnan(value):
            return Decision.STOP
        worst = math.inf if minimize else -math.inf
        known = [worst if math.isnan(v) else v for v in others]
        better = sum(v < value if minimize else v > value for v in known)
        passing = max(1, math.ceil((len(known) + 1) / self.reduction_factor))
        return Decision.CONTINUE if better < passing else Decision.STOP


@dataclass(frozen=True)
class Hyperband(Asha):
    """Asynchronous Hyperband (Li et al., JMLR 2018 and MLSys 2020): ASHA in several brackets, each beginning a rung later.

    A bracket is drawn with the odds at which Hyperband's would all spend the same.

    Attributes:
        brackets: at most; there are no more than rungs.
    """

    brackets: int = 3

    @property
    def grace_periods(self) -> tuple[int, ...]:
        """The first rung of each bracket."""
        return self.rungs[: self.brackets] or (self.grace_period,)

    def bracket(self, seed: int, number: int) -> int:
        """Drawn from the sweep's seed and the trial's number alone."""
        n, factor = len(self.rungs), self.reduction_factor
        odds = [(n + 1) / (n - i + 1) * factor ** (n - i) for i in range(len(self.grace_periods))]
        return random.Random(f"{seed}/{number}/bracket").choices(range(len(odds)), odds)[0]

    def verdict(self, others: Sequence[float], value: float, minimize: bool, step: int = 0, bracket: int = 0) -> Decision:
        if step < self.grace_periods[bracket]:
            return Decision.CONTINUE
        return super().verdict(others, value, minimize, step, bracket)


@dataclass(frozen=True)
class Median:
    """The median rule (Golovin et al., KDD 2017: Google Vizier): a trial is stopped if the best it has had so far is worse than the median
    of the other trials' means up to the same step.

    Attributes:
        max_t: the step at which a trial ends; None for no bound.
        grace_period: the first report that is decided on; every later one is.
        min_trials: so many others must have come to the step.
    """

    max_t: int | None = None
    grace_period: int = 1
    min_trials: int = 5

    @property
    def rungs(self) -> range:
        return range(self.grace_period, self.max_t or sys.maxsize)

    def bracket(self, seed: int, number: int) -> int:
        return 0

    def own(self, curve: Sequence[float], minimize: bool) -> float:
        """The best; NaN if there is none."""
        return (min if minimize else max)((v for v in curve if not math.isnan(v)), default=math.nan)

    def shown(self, curve: Sequence[float]) -> float:
        """The mean; NaN if one of them is."""
        return sum(curve) / len(curve)

    def verdict(self, others: Sequence[float], value: float, minimize: bool, step: int = 0, bracket: int = 0) -> Decision:
        """Go on if `value` is no worse than the median. A mean that is NaN counts as the worst; a value that is NaN stops the trial."""
        if len(others) < self.min_trials:
            return Decision.CONTINUE
        if math.isnan(value):
            return Decision.STOP
        worst = math.inf if minimize else -math.inf
        middle = median(worst if math.isnan(v) else v for v in others)
        return Decision.STOP if (value > middle if minimize else value < middle) else Decision.CONTINUE


@dataclass(frozen=True)
class Pbt(_Latest):
    """Population Based Training: stops nobody. At a milestone a member may take over from another, see `population`.

    Attributes:
        max_t: the step at which a trial ends; None for no bound.
        interval: steps between two milestones.
        fraction: this part of the members at a milestone, the worst, takes over from as many of the best.
        resample: the probability with which a parameter is drawn anew.
    """

    max_t: int | None = None
    interval: int = 1
    fraction: float = 0.25
    resample: float = 0.25

    @property
    def rungs(self) -> range:
        """The milestones."""
        return range(self.interval, self.max_t or sys.maxsize, self.interval)

    def verdict(self, others: Sequence[float], value: float, minimize: bool, step: int = 0, bracket: int = 0) -> Decision:
        return Decision.CONTINUE


def scheduler_of(spec: Any) -> Scheduler:
    """The scheduler that a space's `scheduler` section asks for."""
    match spec.name:
        case "asha":
            return Asha(spec.max_t, spec.grace_period, spec.reduction_factor)
        case "hyperband":
            return Hyperband(spec.max_t, spec.grace_period, spec.reduction_factor, spec.brackets)
        case "median":
            return Median(spec.max_t, spec.grace_period, spec.min_trials)
        case "pbt":
            return Pbt(spec.max_t, spec.perturbation_interval, spec.quantile_fraction, spec.resample_probability)
    return NoScheduler(spec.max_t)
