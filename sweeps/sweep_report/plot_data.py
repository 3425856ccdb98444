"""Data of the figures, and pure functions that choose the trials and the values to show."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from sweeps.space import Dimension
from sweeps.space.model.conditions import Key
from sweeps.space.model.domains import short_names
from sweeps.space.sections.search_models import Objective
from sweeps.study import ranking

from .importance import Importance, importance_of

if TYPE_CHECKING:
    from sweeps.core.result import SweepResult
    from sweeps.core.trial import Result
    from sweeps.space import Space
    from sweeps.study.record_reader import Record
    from sweeps.study.states import TrialState

T = TypeVar("T")


@dataclass(frozen=True)
class PlotData:
    """Everything that the figures of a sweep show.

    Attributes:
        dimensions: The dimensions of the space.
        objectives: The objectives. Most figures show the first objective.
        rungs: The steps at which the scheduler compares trials, in ascending order; () if there are
            no such steps.
        trials: The trials that were run, in the order of their numbers.
        front: Numbers of the trials on the Pareto front; () for a single objective.
        is_driven: True if a process is running the sweep.
        now: Current time in seconds since the epoch. Running trials end at this time in the
            timeline.
        parts: If the scheduler counts rows, the number of parts of the train rows
            (`scheduler.max_t`). Each step is a number of parts. None if steps are reports of the
            loop.
        new_rows: The key `new_rows` of `SweepResult.best`; {} if there is none.
    """

    dimensions: tuple[Dimension, ...]
    objectives: tuple[Objective, ...]
    rungs: tuple[int, ...]
    trials: tuple[TrialState, ...]
    front: tuple[int, ...] = ()
    is_driven: bool = False
    now: float = 0.0
    parts: int | None = None
    new_rows: Mapping[str, Any] = field(default_factory=dict)

    @property
    def metric(self) -> str:
        """Name of the first objective's metric."""
        return self.objectives[0].metric

    @property
    def minimize(self) -> bool:
        """True if smaller values of the first objective are better."""
        return self.objectives[0].goal == "minimize"

    @cached_property
    def names(self) -> dict[str, str]:
        """Short name of each dimension, by the dimension's name."""
        return short_names([d.name for d in self.dimensions])

    @cached_property
    def ranked(self) -> list[TrialState]:
        """The trials with a finite value, the best first."""
        return best_first(self.trials, self.minimize)

    @cached_property
    def sampled(self) -> list[Dimension]:
        """The dimensions that have a value in some trial with a finite value.

        The most important come first, if importances are known. Dimensions with a single value come
        last.
        """
        seen: dict[str, set[Key]] = {}  # the values of each dimension
        for t in self.ranked:
            for name, value in t.labels.items():
                seen.setdefault(name, set()).add(value)
        ranks = {name: rank for rank, (name, _) in enumerate(self.importance.shares)}
        sampled = [d for d in self.dimensions if d.name in seen]
        return sorted(sampled, key=lambda d: (ranks.get(d.name, len(ranks)), len(seen[d.name]) < 2))

    @cached_property
    def importance(self) -> Importance:
        """The importances of the dimensions."""
        return importance_of(self.dimensions, self.trials, self.rungs, self.minimize)


def plot_data(
    record: Record, space: Space, is_driven: bool = False, result: SweepResult | None = None
) -> PlotData:
    """Return what the figures of a sweep show now.

    Args:
        record: The content of the study.
        space: The search space.
        is_driven: True if a process is running the sweep.
        result: The result of the sweep; None if it has not ended.
    """
    from sweeps.search.plugins import planned_scheduler
    from sweeps.search.schedulers.scheduler import all_rungs

    return PlotData(
        dimensions=space.dimensions,
        objectives=record.objectives.objectives,
        rungs=tuple(all_rungs(planned_scheduler(space.scheduler))),
        trials=record.ran,
        front=tuple(t.number for t in record.front),
        is_driven=is_driven,
        now=time.time(),
        parts=space.scheduler.max_t if space.scheduler.counts_rows else None,
        new_rows=((result and result.best) or {}).get("new_rows", {}),
    )


def thin(items: Sequence[T], most: int) -> list[T]:
    """Return at most `most` items, spread evenly. The first and the last item are always kept."""
    if len(items) <= most:
        return list(items)
    return [items[round(i * (len(items) - 1) / (most - 1))] for i in range(most)]


def finite_points(curve: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """Return the points of a curve whose value is finite."""
    return [(step, value) for step, value in curve if math.isfinite(value)]


def best_first(trials: Sequence[TrialState], minimize: bool) -> list[TrialState]:
    """Return the trials with a finite value, the best first."""
    valued = [t for t in trials if t.result.value is not None and math.isfinite(t.result.value)]
    sign = 1 if minimize else -1
    return sorted(valued, key=lambda t: (sign * (t.result.value or 0.0), t.number))


def best_so_far(trials: Sequence[TrialState], minimize: bool) -> list[tuple[int, float]]:
    """Return the best value so far after each trial that improved it, as (number, value).

    The last point is at the last trial. As for the winner of a sweep, only trials of the best tier
    count; see `ranking.tier`. A running trial has no tier, because its value is not final. The list
    is empty if no trial has a tier.
    """
    results = {t.number: t.result for t in sorted(trials, key=lambda t: t.number)}
    winner = ranking.winner(results.items(), minimize)
    if winner is None:
        return []
    tier = ranking.tier(results[winner])
    best: Result | None = None
    points: list[tuple[int, float]] = []
    for number, result in results.items():
        if ranking.tier(result) == tier and ranking.ahead(result, best, minimize):
            best = result
            points.append((number, float(result.value or 0.0)))
    return [*points, (max(results), points[-1][1])]
