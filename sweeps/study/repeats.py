"""Repeats: what a configuration is worth that was trained several times, with distinct seeds. Pure.

A configuration's first trial is one like any other: the scheduler may stop it. When it has come to its end, the others are begun, and no
scheduler stops these; then the configuration is judged by all its values together. Without repeats each trial is a configuration.
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
    """What a configuration is worth.

    It is COMPLETE when all its trials are. One of which some were stopped or failed counts as PRUNED, by those that came to a value.

    Args:
        results: of its trials, the first first; at least one.
        repeats: how many there are to be, and what of their values counts.
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
    """Whether no trial of a configuration is to come or runs: its first has not come to its end, or all have ended."""
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
    """The trials of a sweep, by configuration.

    Attributes:
        trials: (number, result) of each trial of a configuration, the first first; by the first's number.
        repeats: see `merged`.
    """

    trials: dict[int, list[tuple[int, Result]]]
    repeats: Repeats

    @classmethod
    def of(cls, trials: Iterable[tuple[int, int | None, Result]], repeats: Repeats) -> Configurations:
        """From the number, the origin and the result of each trial, in any order."""
        found: dict[int, list[tuple[int, Result]]] = {}
        for number, origin, result in sorted(trials, key=lambda t: t[0]):
            found.setdefault(number if origin is None else origin, []).append((number, result))
        return cls(found, repeats)

    def results(self) -> dict[int, Result]:
        """What each configuration is worth."""
        return {first: merged([r for _, r in own], self.repeats) for first, own in self.trials.items()}

    def stands_for(self, first: int, minimize: bool) -> int:
        """The number of the trial whose model stands for a configuration: the best of its repeats."""
        best = ranking.winner(self.trials[first], minimize)
        return first if best is None else best

    def winner(self, goals: Sequence[bool]) -> int | None:
        """The trial that stands for the best configuration; None if none has a value, or there are several objectives."""
        first = ranking.winner(self.results().items(), goals[0]) if len(goals) == 1 else None
        return None if first is None else self.stands_for(first, goals[0])

    def front(self, goals: Sequence[bool]) -> list[int]:
        """The first trials of the configurations on the front of several objectives; none with one."""
        return ranking.front(self.results().items(), goals) if len(goals) > 1 else []
