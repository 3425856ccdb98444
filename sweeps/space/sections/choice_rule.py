"""The rule by which a sweep chooses the trial that it exports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from sweeps.core.resources import COSTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sweeps.space.model.space_model import Space

    from .data_models import DataSpec
    from .search_models import Objective, Repeats

Rule = Literal["best", "mean", "confirmed"]


def choice_problem(
    objectives: Sequence[Objective], data: DataSpec, repeats: Repeats, perturbs: bool
) -> str | None:
    """Return why the sweep cannot choose as its space file says, and the next step; else None.

    Args:
        objectives: The objectives.
        data: The section `data`.
        repeats: The section `repeats`.
        perturbs: True if the scheduler changes the parameters of running trials.
    """
    rule = next((each.choose for each in objectives if each.choose != "best"), "best")
    if rule == "best":
        return None
    if len(objectives) > 1:
        return "`choose` is allowed only for one objective, but the file has several; leave it out"
    if rule == "auto":
        return None
    if objectives[0].metric in COSTS:
        return f"must be best for a cost such as `{objectives[0].metric}`; got {rule}"
    if perturbs:
        return f"must be best under pbt, whose trials change their parameters; got {rule}"
    if rule == "confirmed" and repeats.count > 1:
        return (
            "`confirmed` trains the best trials again, but `repeats` already trains all of them "
            f"{repeats.count} times; write mean, or leave `repeats` out"
        )
    if rule == "mean" and not _noise_is_known(objectives, data, repeats):
        return (
            "`mean` needs to know how noisy the values are: from predictions for the labelled rows "
            "of valid and a metric of sweeps, from `data.valid: {folds: 5}` or from `repeats`; "
            "add one of them, or write confirmed"
        )
    return None


def choice_rule(space: Space, perturbs: bool) -> Rule:
    """Return the rule by which a sweep chooses. `auto` becomes what `reports/honesty.md` shows.

    An average of models is better than any trial that could be chosen, and needs no time. Without
    an average, other divisions of the rows tell most. The mean of a Gaussian process was no better
    than the best value on the tables that judge.

    Args:
        space: The search space.
        perturbs: True if the scheduler changes the parameters of running trials.
    """
    rule = space.objective.choose
    if rule != "auto":
        return rule
    has_one_value = len(space.objectives) == space.repeats.count == 1 and not perturbs
    has_one_value = has_one_value and space.objective.metric not in COSTS
    can_confirm = has_one_value and space.bundle.ensemble == 1 and space.data.can_redivide
    return "confirmed" if can_confirm else "best"


def _noise_is_known(objectives: Sequence[Objective], data: DataSpec, repeats: Repeats) -> bool:
    """Return whether the noise of a trial's value can be estimated."""
    from .average_problem import prediction_problem  # imports the metrics

    if repeats.count > 1 or data.folds:
        return True
    return prediction_problem(objectives, data) is None
