"""Compare what a sweep has spent, and its results, with its limits. Pure functions, no I/O.

All trials in the study are counted, including trials from before a resume. A resumed sweep
therefore continues with the budget that is left.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from sweeps.core.trial import Result, State, format_trial_id
from sweeps.space.sections.search_models import Limits

from . import ranking


@dataclass
class BudgetState:
    """The budget that a sweep has spent and the best results so far.

    Trials are added in the order in which they ended.

    Attributes:
        goals: One boolean for each objective: True if smaller values are better.
        best: (number of the first trial, result) of the best configuration so far. None if there
            are several objectives, or if no configuration has a value yet.
        front: Results of the configurations on the Pareto front, by the number of the first trial;
            {} for a single objective.
        without_improvement: Number of configurations that ended COMPLETE or PRUNED since the last
            improvement. An improvement is a COMPLETE configuration that is better than all earlier
            configurations, or that joins the front. The number is 0 until the first COMPLETE
            configuration.
        consecutive_failures: Number of trials that failed since the last trial that did not fail.
        gpu_seconds: GPU seconds of all ended trials.
        ended: Final states of the trials, in the order in which they ended.
    """

    goals: Sequence[bool]
    best: tuple[int, Result] | None = None
    front: dict[int, Result] = field(default_factory=dict)
    without_improvement: int = 0
    consecutive_failures: int = 0
    gpu_seconds: float = 0.0
    ended: list[State] = field(default_factory=list)

    def add_trial(self, result: Result) -> None:
        """Add the GPU seconds and the final state of a trial."""
        self.ended.append(result.state)
        self.consecutive_failures = (
            self.consecutive_failures + 1 if result.state is State.FAIL else 0
        )
        self.gpu_seconds += result.metrics.get("gpu_seconds", 0.0)

    def forgive_failures(self, limits: Limits) -> None:
        """Reset the count of consecutive failures if it has reached its limit.

        The limit is `limits.max_failures_in_a_row`. Without this reset, a resumed sweep would stop
        at once, although the user may have fixed the cause of the failures.
        """
        if (
            limits.max_failures_in_a_row is not None
            and self.consecutive_failures >= limits.max_failures_in_a_row
        ):
            self.consecutive_failures = 0

    def add_configuration(self, number: int, result: Result) -> None:
        """Add the result of a configuration whose trials have all ended.

        Args:
            number: Number of the configuration's first trial.
            result: Aggregated result of the configuration.
        """
        if ranking.tier(result) is None:
            return
        if len(self.goals) > 1:
            candidates = {**self.front, number: result}
            self.front = {n: candidates[n] for n in ranking.front(candidates.items(), self.goals)}
            is_improvement = number in self.front
            leaders = list(self.front.values())
        else:
            leaders = [self.best[1]] if self.best else []
            is_improvement = ranking.ahead(result, leaders[0] if leaders else None, self.goals[0])
            if is_improvement:
                self.best = number, result
                leaders = [result]
        if is_improvement and result.state is State.COMPLETE:
            self.without_improvement = 0
        elif any(leader.state is State.COMPLETE for leader in leaders):
            self.without_improvement += 1


def exhausted(limits: Limits, budget: BudgetState, running_gpu_seconds: float = 0.0) -> str | None:
    """Check whether a sweep has reached one of its limits, except `max_trials` and `timeout`.

    Args:
        limits: Limits of the sweep.
        budget: Spent budget and best results of the ended trials.
        running_gpu_seconds: GPU seconds of the running trials.

    Returns:
        A text such as "limits.patience: 20 trials without an improvement"; None if no limit is
        reached.
    """
    minimize = budget.goals[0]
    if limits.target is not None and budget.best is not None:
        number, best = budget.best
        value = best.value
        if ranking.tier(best) == 0 and value is not None:
            reached = value <= limits.target if minimize else value >= limits.target
            if reached:
                return f"limits.target: trial {format_trial_id(number)} has the value {value:.6g}"
    idle = budget.without_improvement
    failures = budget.consecutive_failures
    if limits.patience is not None and idle >= limits.patience:
        return f"limits.patience: {idle} trial{'s' * (idle != 1)} without an improvement"
    if limits.max_failures_in_a_row is not None and failures >= limits.max_failures_in_a_row:
        text = f"{failures} consecutive trials failed" if failures > 1 else "a trial failed"
        return f"limits.max_failures_in_a_row: {text}"
    hours = (budget.gpu_seconds + running_gpu_seconds) / 3600
    if limits.max_gpu_hours is not None and hours >= limits.max_gpu_hours:
        return f"limits.max_gpu_hours: {hours:.3g} GPU hours were used"
    return None
