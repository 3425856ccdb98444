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
# The key of a step whose value is unknown or NaN. It is larger than the key of every other step.
UNKNOWN = (3, 0.0)
# The key of a step whose value is infinite. It loses to every step with a finite value.
INFINITE = (2, 0.0)


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
        over = value - self.bound if self.sign in ("<", "<=") else self.bound - value
        if self.holds(value):
            return min(over, 0.0)
        return sys.float_info.max if math.isnan(over) else max(over, sys.float_info.min)

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
        broken = [
            c for c in self.constraints if c.metric in metrics and not c.holds(metrics[c.metric])
        ]
        return int(bool(broken)), value if self.minimize else -value
