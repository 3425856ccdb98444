"""What a sweep may spend, held against what is on record: pure.

Nothing is counted but what the study says of trials that have ended, and what those that run have cost so far, so that a sweep that is
taken up again goes on with what is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sweeps.core.trial import Result, State, format_trial_id
from sweeps.space.section_models import Limits
from sweeps.study import ranking


@dataclass
class BudgetState:
    """How a sweep has gone, kept up with each trial that ends; the same as if it were made anew from all of them.

    Attributes:
        goals: for each objective whether smaller is better.
        best: number and result of the best trial so far, by the first objective; None before one came to a value.
        front: with several objectives the trials that no other dominates.
        idle: trials that ended, COMPLETE or PRUNED, since the last that was COMPLETE and better than all before, or came to the front;
            none before there is such a one.
        failed: the latest trials that failed, one after the other.
        gpu_seconds: of all trials that have ended.
        ended: final states, in the order in which the trials ended.
    """

    goals: Sequence[bool]
    best: tuple[int, Result] | None = None
    front: dict[int, Result] = field(default_factory=dict)
    idle: int = 0
    failed: int = 0
    gpu_seconds: float = 0.0
    ended: list[State] = field(default_factory=list)

    def run(self, result: Result) -> None:
        """A trial has ended: what it has cost, and whether it failed."""
        self.ended.append(result.state)
        self.failed = self.failed + 1 if result.state is State.FAIL else 0
        self.gpu_seconds += result.metrics.get("gpu_seconds", 0.0)

    def pardon(self, limits: Limits) -> None:
        """Failures that have ended the sweep do not count again when it is taken up: what they came of may be mended."""
        if limits.max_failures_in_a_row is not None and self.failed >= limits.max_failures_in_a_row:
            self.failed = 0

    def judge(self, number: int, result: Result) -> None:
        """A configuration has come to its end, and this is what it is worth."""
        if ranking.tier(result) is None:
            return
        if len(self.goals) > 1:
            front = {**self.front, number: result}
            kept = ranking.front(front.items(), self.goals)
            better = number in kept
            self.front = {n: front[n] for n in kept}
        else:
            better = ranking.ahead(result, self.best[1] if self.best else None, self.goals[0])
            if better:
                self.best = number, result
        if better and result.state is State.COMPLETE:
            self.idle = 0
        elif any(r.state is State.COMPLETE for r in ([self.best[1]] if self.best else self.front.values())):
            self.idle += 1


def reason(limits: Limits, course: BudgetState, gpu_seconds: float = 0.0) -> str | None:
    """Which of the limits ends the sweep, and why; None if none does. Trials and wall time are counted elsewhere.

    Args:
        limits: of the space.
        course: of all trials that have ended.
        gpu_seconds: of those that run.
    """
    low = course.goals[0]
    if limits.target is not None and course.best is not None:
        number, best = course.best
        if ranking.tier(best) == 0 and best.value is not None and (best.value <= limits.target if low else best.value >= limits.target):
            return f"limits.target: trial {format_trial_id(number)} has {best.value:.6g}"
    if limits.patience is not None and course.idle >= limits.patience:
        return f"limits.patience: {course.idle} trial{'s' * (course.idle != 1)} without a better one"
    if limits.max_failures_in_a_row is not None and course.failed >= limits.max_failures_in_a_row:
        row = f"{course.failed} trials failed one after the other" if course.failed > 1 else "a trial failed"
        return f"limits.max_failures_in_a_row: {row}"
    hours = (course.gpu_seconds + gpu_seconds) / 3600
    if limits.max_gpu_hours is not None and hours >= limits.max_gpu_hours:
        return f"limits.max_gpu_hours: {hours:.3g} are spent"
    return None
