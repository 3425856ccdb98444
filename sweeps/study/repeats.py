"""Score configurations that are trained several times with different seeds. Pure functions, no I/O.

A configuration is one point of the search space. The scheduler may stop the first trial of a
configuration. If this trial completes, the repeats of the configuration start; the scheduler never
stops a repeat. The value of a configuration is the mean of its trials' values, or another aggregate
of them. If `repeats.count` is 1, each trial counts as a separate configuration.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from sweeps.core.trial import Result, State
from sweeps.space.sections.search_models import Repeats

from . import ranking
from .choice import TrialChoice

AGGREGATES: dict[str, Callable[[Sequence[float]], float]] = {
    "mean": lambda values: sum(values) / len(values),
    "median": statistics.median,
    "min": min,
    "max": max,
}


def merge(results: Sequence[Result], repeats: Repeats) -> Result:
    """Return the result of a configuration.

    A configuration is COMPLETE if all its trials are COMPLETE. If only some trials are COMPLETE,
    the configuration is PRUNED, and only the values of the COMPLETE trials are aggregated. If no
    trial is COMPLETE, the values of the PRUNED trials are aggregated. The configuration is feasible
    if all aggregated trials are feasible.

    Args:
        results: Results of the configuration's trials, at least one. The first trial comes first.
        repeats: Number of trials of each configuration, and the aggregate of their values.

    Returns:
        The aggregated result. The first trial's own result is returned in three cases:
        `repeats.count` is 1, the first trial is running, or no trial has ended COMPLETE or PRUNED.
    """
    if repeats.count == 1:
        return results[0]
    complete = [r for r in results if r.state is State.COMPLETE]
    aggregated = complete or [r for r in results if r.state is State.PRUNED]
    if not aggregated or results[0].state is State.RUNNING:
        return results[0]
    values_by_objective = zip(*(r.values for r in aggregated), strict=True)
    values = tuple(_aggregate(values, repeats) for values in values_by_objective)
    return replace(
        aggregated[0],
        state=State.COMPLETE if len(complete) == repeats.count else State.PRUNED,
        value=values[0],
        values=values,
        feasible=all(r.feasible for r in aggregated),
    )


def _aggregate(values: Sequence[float | None], repeats: Repeats) -> float | None:
    """Return the aggregate of the trials' values of one objective; None if a value is unknown."""
    known_values = [v for v in values if v is not None]
    if len(known_values) == len(values):
        return float(AGGREGATES[repeats.aggregate](known_values))
    return None


def is_settled(results: Sequence[Result], repeats: Repeats) -> bool:
    """Return True if all trials of a configuration have ended, so that its result is final.

    If the first trial was pruned or failed, the configuration has no repeats.

    Args:
        results: Results of the configuration's ended trials, at least one. The first trial comes
            first.
        repeats: Number of trials of each configuration.
    """
    return results[0].state is not State.RUNNING and (
        results[0].state is not State.COMPLETE or len(results) == repeats.count
    )


def known_total(
    max_trials: int, complete: int, incomplete: int, repeats: Repeats, scheduler_stops: bool
) -> int:
    """Return the expected number of trials of a sweep, including repeats.

    If the scheduler may stop trials, only the repeats of first trials that are already complete are
    counted. Otherwise, all first trials are expected to complete and to be repeated, except first
    trials that were already pruned or failed.

    Args:
        max_trials: Value of `limits.max_trials`. This limit is a number of configurations.
        complete: Number of complete first trials. Each of these is repeated.
        incomplete: Number of pruned or failed first trials. These are not repeated.
        repeats: Number of trials of each configuration.
        scheduler_stops: True if the scheduler may stop trials.
    """
    repeated = complete if scheduler_stops else max_trials - incomplete
    return max_trials + (repeats.count - 1) * repeated


@dataclass(frozen=True)
class Configurations:
    """Trials of a sweep, grouped by configuration.

    Attributes:
        trials: (trial number, result) pairs of each configuration, sorted by trial number. The key
            is the number of the first trial.
        repeats: Number of trials of each configuration, and the aggregate of their values.
        choice: The choice of the exported trial; None if it is the best one.
    """

    trials: dict[int, list[tuple[int, Result]]]
    repeats: Repeats
    choice: TrialChoice | None = None

    @classmethod
    def of(
        cls,
        trials: Iterable[tuple[int, int | None, Result]],
        repeats: Repeats,
        choice: TrialChoice | None = None,
    ) -> Configurations:
        """Group trials by configuration.

        Args:
            trials: (trial number, number of the repeated trial, result) of each trial, in any
                order. The number of the repeated trial is None for the first trial of a
                configuration.
            repeats: Number of trials of each configuration, and the aggregate of their values.
            choice: See the attribute.
        """
        groups: dict[int, list[tuple[int, Result]]] = {}
        for number, repeat_of, result in sorted(trials, key=lambda t: t[0]):
            first = number if repeat_of is None else repeat_of
            groups.setdefault(first, []).append((number, result))
        return cls(groups, repeats, choice)

    def results(self) -> dict[int, Result]:
        """Return the result of each configuration, by the number of its first trial."""
        return {
            first: merge([result for _, result in pairs], self.repeats)
            for first, pairs in self.trials.items()
        }

    def winner(self, goals: Sequence[bool]) -> int | None:
        """Return the number of the best trial of the chosen configuration, or else the best one.

        Args:
            goals: One boolean for each objective: True if smaller values are better.

        Returns:
            The number; None if no configuration has a value, or if there are several objectives.
        """
        if len(goals) > 1:
            return None
        first = None if self.choice is None else self.choice.number
        if first not in self.trials:
            first = ranking.winner(self.results().items(), goals[0])
        if first is None:
            return None
        best = ranking.winner(self.trials[first], goals[0])
        return first if best is None else best

    def front(self, goals: Sequence[bool]) -> list[int]:
        """Return the numbers of the first trials of the configurations on the Pareto front.

        [] for a single objective.

        Args:
            goals: One boolean for each objective: True if smaller values are better.
        """
        return ranking.front(self.results().items(), goals) if len(goals) > 1 else []
