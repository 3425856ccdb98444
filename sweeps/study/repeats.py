"""Repeats: score a configuration that was trained several times with distinct seeds. Pure functions.

The first trial of a configuration is like any other; the scheduler may stop it. When it is complete, its repeats start, and no scheduler
stops them. The values of all its trials together score the configuration. Without repeats, each trial is a configuration.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from sweeps.core.trial import Result, State
from sweeps.space.section_models import Repeats
from sweeps.study import ranking

AGGREGATES: dict[str, Callable[[Sequence[float]], float]] = {
    "mean": lambda values: sum(values) / len(values),
    "median": statistics.median,
    "min": min,
    "max": max,
}


def merged(results: Sequence[Result], repeats: Repeats) -> Result:
    """Return the result of a configuration.

    It is COMPLETE if all its trials are. If some were pruned or failed, it is PRUNED, with the values of the others.

    Args:
        results: Results of its trials, the first trial first; at least one.
        repeats: Number of trials, and how their values are aggregated.
    """
    if repeats.count == 1:
        return results[0]
    kept = [r for r in results if r.state is State.COMPLETE] or [r for r in results if r.state is State.PRUNED]
    if not kept or results[0].state is State.RUNNING:
        return results[0]
    state = State.COMPLETE if kept[0].state is State.COMPLETE and len(kept) == repeats.count else State.PRUNED
    values = tuple(_together(column, repeats) for column in zip(*(r.values for r in kept), strict=True))
    return replace(kept[0], state=state, value=values[0], values=values, feasible=all(r.feasible for r in kept))


def _together(values: Sequence[float | None], repeats: Repeats) -> float | None:
    known = [v for v in values if v is not None]
    return float(AGGREGATES[repeats.aggregate](known)) if len(known) == len(values) else None


def settled(results: Sequence[Result], repeats: Repeats) -> bool:
    """Return whether a configuration has no trial left to end: its first trial is not complete, or all trials have ended."""
    return results[0].state is not State.RUNNING and (results[0].state is not State.COMPLETE or len(results) == repeats.count)


def known_total(max_trials: int, complete: int, incomplete: int, repeats: Repeats, scheduler_stops: bool) -> int:
    """Return the number of trials of a sweep with their repeats, as known now.

    Args:
        max_trials: `limits.max_trials`, which counts configurations.
        complete: Number of complete first trials, each of which is repeated.
        incomplete: Number of first trials that were pruned or failed, which are not repeated.
        repeats: Repeats of each complete first trial.
        scheduler_stops: Whether the scheduler may stop trials. If not, running first trials are expected to complete.
    """
    return max_trials + (repeats.count - 1) * (complete if scheduler_stops else max_trials - incomplete)


@dataclass(frozen=True)
class Configurations:
    """Trials of a sweep by configuration.

    Attributes:
        trials: (number, result) pairs of each configuration, the first trial first; by the first trial's number.
        repeats: See `merged`.
    """

    trials: dict[int, list[tuple[int, Result]]]
    repeats: Repeats

    @classmethod
    def of(cls, trials: Iterable[tuple[int, int | None, Result]], repeats: Repeats) -> Configurations:
        """Group trials, given as (number, number of the repeated trial, result) in any order."""
        found: dict[int, list[tuple[int, Result]]] = {}
        for number, origin, result in sorted(trials, key=lambda t: t[0]):
            found.setdefault(number if origin is None else origin, []).append((number, result))
        return cls(found, repeats)

    def results(self) -> dict[int, Result]:
        """Return the result of each configuration, by the first trial's number."""
        return {first: merged([r for _, r in own], self.repeats) for first, own in self.trials.items()}

    def stands_for(self, first: int, minimize: bool) -> int:
        """Return the number of the trial whose model represents a configuration: the best of its repeats."""
        best = ranking.winner(self.trials[first], minimize)
        return first if best is None else best

    def winner(self, goals: Sequence[bool]) -> int | None:
        """Return the trial of the best configuration; None if none has a value, or if there are several objectives."""
        first = ranking.winner(self.results().items(), goals[0]) if len(goals) == 1 else None
        return None if first is None else self.stands_for(first, goals[0])

    def front(self, goals: Sequence[bool]) -> list[int]:
        """Return the first trials of the configurations on the Pareto front; none with a single objective."""
        return ranking.front(self.results().items(), goals) if len(goals) > 1 else []
