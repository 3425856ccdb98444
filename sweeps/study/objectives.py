"""Score a trial: the values of the objectives from its reports and costs, and whether it is feasible. Pure functions.

One metric leads: the first objective that is no cost. If all objectives are costs, the first constraint on a reported metric leads. The
best step of a trial is the best by the leading metric. Its model is exported, and all other metrics are taken at this step. If no metric
leads, the last step counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sweeps.core.resources import COSTS
from sweeps.core.trial import State
from sweeps.space import Space
from sweeps.space.section_models import Constraint, Objective
from sweeps.study import ranking

Curve = Sequence[tuple[int, float]]


@dataclass(frozen=True)
class TrialScore:
    """The score of a trial.

    Attributes:
        step: The best step.
        values: Values of the objectives, in their order; None for a value that is unknown or NaN.
        metrics: Costs, and the known metrics of objectives and constraints.
        feasible: Whether the trial keeps every constraint.
        missing: A metric that objectives or constraints name and the trial lacks, or None.
    """

    step: int | None
    values: tuple[float | None, ...]
    metrics: dict[str, float] = field(default_factory=dict)
    feasible: bool = True
    missing: str | None = None


@dataclass(frozen=True)
class Objectives:
    """The objectives and constraints of a sweep, which score its trials."""

    objectives: tuple[Objective, ...]
    constraints: tuple[Constraint, ...] = ()

    @classmethod
    def of(cls, space: Space) -> Objectives:
        """Return the objectives of a space."""
        return cls(space.objectives, space.constraints)

    @classmethod
    def read(cls, told: Mapping[str, Any]) -> Objectives:
        """Read what `to_json` returned."""
        return cls(tuple(Objective(*o) for o in told["objectives"]), tuple(Constraint(*c) for c in told["constraints"]))

    def to_json(self) -> dict[str, Any]:
        """Return the objectives as the study records them."""
        objectives = [[o.metric, o.goal] for o in self.objectives]
        return {"objectives": objectives, "constraints": [[c.metric, c.sign, c.bound] for c in self.constraints]}

    @property
    def asked(self) -> tuple[str, ...]:
        """Metrics that loops must report, the leading one first."""
        names = [o.metric for o in self.objectives] + [c.metric for c in self.constraints]
        return tuple(dict.fromkeys(name for name in names if name not in COSTS))

    @property
    def metric(self) -> str | None:
        """The leading metric; None if there are only costs."""
        return next(iter(self.asked), None)

    @property
    def minimize(self) -> bool:
        """Whether smaller values of the leading metric are better."""
        for o in self.objectives:
            if o.metric == self.metric:
                return o.goal == "minimize"
        return next((c.sign in ("<", "<=") for c in self.constraints if c.metric == self.metric), True)

    @property
    def goals(self) -> tuple[bool, ...]:
        """Whether smaller is better, for each objective."""
        return tuple(o.goal == "minimize" for o in self.objectives)

    @property
    def plain(self) -> bool:
        """Whether a single report is a score: there is one objective, it is reported, and there are no constraints."""
        return len(self.objectives) == 1 and not self.constraints and self.metric == self.objectives[0].metric

    def judge(self, state: State, steps: int, curve: Curve, others: Mapping[str, Curve], cost: Mapping[str, float]) -> TrialScore:
        """Score a trial.

        Args:
            state: State of the trial. A cost counts as an objective's value only for a complete trial.
            steps: Step of the last report.
            curve: (step, value) pairs of the leading metric.
            others: The same for the other metrics of `asked`. If one has no value at the best step, its latest value counts.
            cost: See `sweeps.core.resources.costs`.
        """
        step, value = ranking.best_of(curve, self.minimize) if self.metric is not None else (steps or None, None)
        known = dict(cost)
        if self.metric is not None and value is not None:
            known[self.metric] = value
        for name in self.asked[1:]:
            if (found := _at(others.get(name, ()), step)) is not None:
                known[name] = found
        values: list[float | None] = []
        for objective in self.objectives:
            there = known.get(objective.metric) if objective.metric not in COSTS or state is State.COMPLETE else None
            values.append(None if there is None or math.isnan(there) else there)
        feasible = all(c.metric in known and c.holds(known[c.metric]) for c in self.constraints)
        missing = next((name for name in self.asked if name not in known or math.isnan(known[name])), None)
        return TrialScore(step, tuple(values), known, feasible, missing)

    def violations(self, judged: TrialScore) -> dict[str, float]:
        """Return the violation of each constraint (see `Constraint.violation`). A missing metric violates its constraint."""
        return {c.metric: c.violation(judged.metrics.get(c.metric, math.nan)) for c in self.constraints}


def _at(curve: Iterable[tuple[int, float]], step: int | None) -> float | None:
    """Return the value of a metric at a step, or else its latest value; None if it has no value."""
    known = dict(curve)
    if not known or step in known:
        return known.get(step) if step is not None else None
    return known[max(known)]
