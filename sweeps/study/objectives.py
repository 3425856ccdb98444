"""Compute the objective values and the feasibility of a trial from its reports and costs.

Pure functions, no I/O.

The leading metric decides which step of a trial is the best step, among the steps that satisfy the
constraints on reported metrics. If no step satisfies them, it decides among all steps. The leading
metric is the metric of the first objective that is not a cost. If all objectives are costs, the
leading metric is the metric of the first constraint on a reported metric. If there is no leading
metric, the last step is the best step. In a cross-validation the last step is the best step, too,
because each report is the mean over the folds so far. The same is true if each step trains on more
rows (`scheduler.resource: data.rows`). The model of the best step is exported. The values of all
other metrics are their values at the best step.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sweeps.core.best_step import UNKNOWN, Constraint, StepOrder
from sweeps.core.resources import COSTS
from sweeps.core.trial import State
from sweeps.space import Space
from sweeps.space.sections.search_models import Objective

Curve = Sequence[tuple[int, float]]


@dataclass(frozen=True)
class TrialScore:
    """The objective values of a trial, and whether the trial is feasible.

    Attributes:
        step: The best step; None if the trial has no report, or if all values of the leading metric
            are NaN.
        values: One value for each objective, in the order of the objectives. A value that is
            unknown or NaN is None.
        metrics: Costs of the trial, and the known metrics of the objectives and constraints, by
            name.
        feasible: True if the trial satisfies every constraint.
        missing: Name of the first metric in `Objectives.reported_metrics` that is unknown or NaN;
            None if all of them are known.
    """

    step: int | None
    values: tuple[float | None, ...]
    metrics: dict[str, float]
    feasible: bool
    missing: str | None


@dataclass(frozen=True)
class Objectives:
    """Objectives and constraints of a sweep.

    Attributes:
        objectives: The objectives, in the order of the space file.
        constraints: The constraints, in the order of the space file.
        cross_validated: True if each step of a trial is one fold of a cross-validation.
        on_more_rows: True if each step of a trial trains on more rows than the step before.
    """

    objectives: tuple[Objective, ...]
    constraints: tuple[Constraint, ...] = ()
    cross_validated: bool = False
    on_more_rows: bool = False

    @classmethod
    def from_space(cls, space: Space) -> Objectives:
        """Return the objectives and constraints of a search space."""
        return cls(
            space.objectives, space.constraints, space.data.folds > 0, space.scheduler.counts_rows
        )

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Objectives:
        """Build the objectives from the JSON object that `to_json` returned."""
        return cls(
            tuple(Objective(*o) for o in content["objectives"]),
            tuple(Constraint(*c) for c in content["constraints"]),
            cross_validated=bool(content.get("cross_validated")),
            on_more_rows=bool(content.get("on_more_rows")),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the objectives and constraints as a JSON object for the study."""
        content: dict[str, Any] = {
            "objectives": [[o.metric, o.goal] for o in self.objectives],
            "constraints": [[c.metric, c.sign, c.bound] for c in self.constraints],
        }
        flags = {"cross_validated": self.cross_validated, "on_more_rows": self.on_more_rows}
        return content | {name: True for name, is_set in flags.items() if is_set}

    @cached_property
    def reported_metrics(self) -> tuple[str, ...]:
        """Metrics of the objectives and constraints that the training loop must report.

        Costs such as `seconds` are left out.
        """
        names = [o.metric for o in self.objectives] + [c.metric for c in self.constraints]
        return tuple(dict.fromkeys(name for name in names if name not in COSTS))

    @property
    def metric(self) -> str | None:
        """Name of the leading metric: the first of `reported_metrics`.

        None if all objectives and constraints are about costs.
        """
        return next(iter(self.reported_metrics), None)

    @property
    def minimize(self) -> bool:
        """True if smaller values of the leading metric are better."""
        for o in self.objectives:
            if o.metric == self.metric:
                return o.goal == "minimize"
        return next(
            (c.sign in ("<", "<=") for c in self.constraints if c.metric == self.metric), True
        )

    @cached_property
    def order(self) -> StepOrder:
        """Order that decides which step of a trial is the best."""
        constraints = tuple(c for c in self.constraints if c.metric not in COSTS)
        return StepOrder(self.metric, self.minimize, constraints)

    def step_metrics(
        self, curve: Curve, others: Mapping[str, Curve]
    ) -> Iterator[tuple[int, dict[str, float]]]:
        """Yield each step with the known metrics of `reported_metrics`.

        A step without a value of a metric has the value of the last step before it. If there is
        none, it has the metric's first value.

        Args:
            curve: (step, value) pairs of the leading metric.
            others: (step, value) pairs of the other metrics, by metric.
        """
        lead = str(self.metric)
        for step, value in curve:
            metrics = {name: _value_at(values, step) for name, values in others.items() if values}
            yield step, {**metrics, lead: value}

    @property
    def goals(self) -> tuple[bool, ...]:
        """One boolean for each objective: True if smaller values are better."""
        return tuple(o.goal == "minimize" for o in self.objectives)

    @property
    def last_step_counts(self) -> bool:
        """True if the last step is the best step, whatever the values of the other steps are."""
        return self.cross_validated or self.on_more_rows

    @property
    def need_one_report(self) -> bool:
        """True if one report is enough to score a trial.

        There is one objective, its metric is reported, there are no constraints, and any step can
        be the best one.
        """
        return (
            not self.last_step_counts
            and len(self.objectives) == 1
            and not self.constraints
            and self.metric == self.objectives[0].metric
        )

    def score(
        self,
        state: State,
        steps: int,
        curve: Curve,
        others: Mapping[str, Curve],
        cost: Mapping[str, float],
        final: Mapping[str, float] | None = None,
    ) -> TrialScore:
        """Compute the objective values and the feasibility of a trial.

        Args:
            state: State of the trial. If an objective is a cost, only a COMPLETE trial has a value
                for this objective.
            steps: Step of the last report.
            curve: (step, value) pairs of the leading metric.
            others: (step, value) pairs of the other metrics in `reported_metrics`, by metric. If a
                metric has no value at the best step, see `step_metrics`.
            cost: Costs of the trial by name; see `sweeps.core.resources.costs`.
            final: Final metrics. If they include a metric of an objective or a constraint, a
                COMPLETE trial has this value.
        """
        key = self.order.key
        if self.last_step_counts:
            curve = curve[-1:]
        elif not self.constraints and curve:
            # The other metrics are not compared, because a study may have millions of reports.
            curve = [min(curve, key=lambda pair: key({self.metric: pair[1]}))]
        reports = self.step_metrics(curve, others)
        step, metrics = min(reports, key=lambda report: key(report[1]), default=(None, {}))
        if key(metrics) == UNKNOWN:  # even the best value is NaN
            step = None
            metrics.pop(str(self.metric), None)
        if self.metric is None:  # the last step is the best step; 0 means that there is no report
            step = steps or None
        known = dict(cost) | metrics
        if state is State.COMPLETE and final:
            known |= {name: final[name] for name in self.reported_metrics if name in final}
            step = steps if self.metric in final else step
        numbers = {name: value for name, value in known.items() if not math.isnan(value)}
        # The costs of a trial count only when it is complete.
        counted = [n for n in numbers if state is State.COMPLETE or n not in COSTS]
        values = tuple(numbers[o.metric] if o.metric in counted else None for o in self.objectives)
        feasible = all(c.metric in known and c.holds(known[c.metric]) for c in self.constraints)
        missing = next((name for name in self.reported_metrics if name not in numbers), None)
        return TrialScore(step, values, known, feasible, missing)

    def violations(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Return by how much each constraint is violated, by metric.

        A missing metric violates its constraint.

        Args:
            metrics: Metrics of a trial; see `TrialScore.metrics`.

        Returns:
            Results of `Constraint.violation`: above 0 if the constraint is violated, else at most
                0.
        """
        return {c.metric: c.violation(metrics.get(c.metric, math.nan)) for c in self.constraints}


def _value_at(values: Curve, step: int) -> float:
    """Return the value at a step, or else the last value before it.

    If there is none, return the first value. `values` is not empty.
    """
    later = bisect.bisect_right(values, step, key=lambda pair: pair[0])  # first value after step
    return values[max(0, later - 1)][1]
