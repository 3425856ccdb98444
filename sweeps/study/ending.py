"""Decide how a trial ends: a trial whose metric is missing or NaN fails."""

import math
from collections.abc import Mapping

from sweeps.core.errors import shorten
from sweeps.core.text.secrets import masked
from sweeps.core.trial import Result, State

from .events import TrialEnded
from .states import TrialState


def ending(
    state: TrialState,
    time: float,
    wanted: State,
    error: str | None = None,
    reason: str | None = None,
    final: Mapping[str, float] | None = None,
) -> TrialEnded:
    """Return the event with which a trial ends. Secrets are hidden in its texts.

    Args:
        state: The trial before its end.
        time: Time of the end, in seconds since the epoch.
        wanted: State at the end. With RUNNING, the trial was interrupted and can be resumed.
            COMPLETE becomes FAIL if the value of an objective's or a constraint's metric is missing
            or NaN.
        error: Traceback of a failed trial; None for other trials.
        reason: Reason why the trial was stopped; None if it was not stopped.
        final: Metrics of the finished model. They are recorded only for a COMPLETE trial.
    """
    if wanted is State.COMPLETE:
        missing = state.objectives.score(
            wanted, state.steps, state.curve, state.other_curves, state.costs, final
        ).missing
        if missing is not None:
            wanted = State.FAIL
            error = error or _missing_metric(state, missing)
    if final is None or wanted is not State.COMPLETE:
        final = {}
    result = Result(
        wanted,
        error=error and shorten(masked(error)),
        reason=reason and masked(reason),
        final={masked(name): value for name, value in final.items()},
    )
    return TrialEnded(time, state.number, result)


def _missing_metric(state: TrialState, metric: str) -> str:
    """Return the error message for an ended trial without a valid value of a required metric."""
    objectives = state.objectives
    is_objective = metric in {objective.metric for objective in objectives.objectives}
    kind = "objective's" if is_objective else "constraint's"
    values = [report.metrics[metric] for report in state.reports if metric in report.metrics]
    if not values:
        return f"the loop ended without reporting the {kind} metric `{metric}`"
    # The step at which the leading metric is best is not NaN, unless all its values are NaN.
    has_numbers = metric != objectives.metric and not all(map(math.isnan, values))
    where = "at the trial's best step" if has_numbers else f"in all {state.steps} reports"
    return f"the {kind} metric `{metric}` was NaN {where}"
