"""Decide which step of a trial is the best one. Pure functions, no I/O.

Everything that compares the steps of a trial uses `StepOrder`: trainers, the choice of the
checkpoint to keep, schedulers, results and the export. Therefore a trial's value, its metrics and
its model belong to the same step.
"""

import math
import operator
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
# `StepOrder.key` of a step whose value is finite begins with 0, or with 1 if the step breaks a
# constraint. The step with the smallest key is the best one. The two keys below are those of a step
# whose value is infinite, and of a step whose value is unknown or NaN.
INFINITE = (2, 0.0)
UNKNOWN = (3, 0.0)


@dataclass(frozen=True)
class Constraint:
    """A bound on a metric. A trial that breaks the bound is infeasible.

    Attributes:
        metric: Name of the metric.
        sign: "<=", "<", ">=" or ">".
        bound: The number that the metric is compared with.
    """

    metric: str
    sign: str
    bound: float

    def holds(self, value: float) -> bool:
        """Return True if a value satisfies the constraint. NaN satisfies no constraint."""
        return COMPARISONS[self.sign](value, self.bound)

    def violation(self, value: float) -> float:
        """Return by how much a value violates the bound.

        As Optuna expects, this is at most 0 if the constraint holds, else above 0. For NaN, return
        the largest float.
        """
        excess = value - self.bound if self.sign in ("<", "<=") else self.bound - value
        if self.holds(value):
            return min(excess, 0.0)
        if math.isnan(excess):
            return sys.float_info.max
        # With the sign `<`, a value that is equal to the bound violates the bound.
        return max(excess, sys.float_info.min)

    def __str__(self) -> str:
        return f"{self.metric} {self.sign} {self.bound:g}"


@dataclass(frozen=True)
class StepOrder:
    """Order of the steps of a trial.

    The steps that satisfy all constraints come first, and the step with the best value first of
    all.

    Attributes:
        metric: The metric whose value decides among the steps. None if there is no such metric.
        minimize: True if smaller values of this metric are better.
        constraints: The constraints on metrics that the loop reports. A constraint on a cost
            concerns the whole trial, not its steps.
    """

    metric: str | None
    minimize: bool
    constraints: tuple[Constraint, ...] = ()

    def key(self, metrics: Mapping[Any, float]) -> tuple[int, float]:
        """Return a key that sorts steps, the best step first.

        Args:
            metrics: Metrics of the step, by name. A constraint on a metric that is missing does not
                count.
        """
        value = metrics.get(self.metric, math.nan)
        if math.isnan(value):
            return UNKNOWN
        if math.isinf(value):
            return INFINITE
        is_infeasible = any(
            not c.holds(metrics[c.metric]) for c in self.constraints if c.metric in metrics
        )
        return int(is_infeasible), value if self.minimize else -value
