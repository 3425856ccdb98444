"""What a trial is worth: from its reports and its cost to the values of the objectives, and whether it is feasible. Pure.

One metric leads: the first objective that loops report; where all objectives are costs, the first constraint on such a metric. A
trial stands for its step that was best by that one, whose model is also what is exported of it, and all other metrics are those of
that step. Where no metric leads, it stands for its last step.
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
    """What a trial comes to.

    Attributes:
        step: that it stands for.
        values: of the objectives, in their order; None for one that is not known, or NaN.
        metrics: its costs, and what objectives and constraints are about, as far as that is known.
        feasible: it keeps every constraint.
        missing: a metric that is asked for and not there.
    """

    step: int | None
    values: tuple[float | None, ...]
    metrics: dict[str, float] = field(default_factory=dict)
    feasible: bool = True
    missing: str | None = None


@dataclass(frozen=True)
class Objectives:
    """Judges the trials of a sweep by what its space file asks for."""

    objectives: tuple[Objective, ...]
    constraints: tuple[Constraint, ...] = ()

    @classmethod
    def of(cls, space: Space) -> Objectives:
        """The judge of a space's trials."""
        return cls(space.objectives, space.constraints)

    @classmethod
    def read(cls, told: Mapping[str, Any]) -> Objectives:
        """What `to_json` wrote."""
        return cls(tuple(Objective(*o) for o in told["objectives"]), tuple(Constraint(*c) for c in told["constraints"]))

    def to_json(self) -> dict[str, Any]:
        """For the study, which then says by itself what its trials are judged by."""
        objectives = [[o.metric, o.goal] for o in self.objectives]
        return {"objectives": objectives, "constraints": [[c.metric, c.sign, c.bound] for c in self.constraints]}

    @property
    def asked(self) -> tuple[str, ...]:
        """Every metric that loops have to report, the leading one first."""
        names = [o.metric for o in self.objectives] + [c.metric for c in self.constraints]
        return tuple(dict.fromkeys(name for name in names if name not in COSTS))

    @property
    def metric(self) -> str | None:
        """The metric that leads; None where costs alone are asked for."""
        return next(iter(self.asked), None)

    @property
    def minimize(self) -> bool:
        """Whether smaller is better, of the metric that leads."""
        for o in self.objectives:
            if o.metric == self.metric:
                return o.goal == "minimize"
        return next((c.sign in ("<", "<=") for c in self.constraints if c.metric == self.metric), True)

    @property
    def goals(self) -> tuple[bool, ...]:
        """For each objective whether smaller is better."""
        return tuple(o.goal == "minimize" for o in self.objectives)

    @property
    def plain(self) -> bool:
        """One objective that is reported, and no constraint: a report alone says what it is worth."""
        return len(self.objectives) == 1 and not self.constraints and self.metric == self.objectives[0].metric

    def judge(self, state: State, steps: int, curve: Curve, others: Mapping[str, Curve], cost: Mapping[str, float]) -> TrialScore:
        """What a trial comes to.

        Args:
            state: how it stands. A cost is an objective's value only of one that came to its end.
            steps: its reports.
            curve: (step, value) of the metric that leads.
            others: likewise of each other metric of `asked`; at a step without a report of it, its latest counts.
            cost: see `sweeps.core.resources.costs`.
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
        """For each constraint by how much it is broken, see `Constraint.violation`; a metric that is not there breaks it."""
        return {c.metric: c.violation(judged.metrics.get(c.metric, math.nan)) for c in self.constraints}


def _at(curve: Iterable[tuple[int, float]], step: int | None) -> float | None:
    """A metric at a step, else its latest value; None without one."""
    known = dict(curve)
    if not known or step in known:
        return known.get(step) if step is not None else None
    return known[max(known)]
