"""Check the metrics that are named in objectives and constraints, before any trial is trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeps.core import metrics, references
from sweeps.core.errors import Problem
from sweeps.core.resources import COSTS
from sweeps.core.suggestions import did_you_mean

if TYPE_CHECKING:
    from sweeps.space import Space

SPLIT_PREFIXES = ("valid-", "train-")
# If `params` has one of these keys, the trainer may report other metrics than `TRAINER` lists.
CUSTOM_METRIC_KEYS = ("objective", "eval_metric")
_TASK_NAMES = {"binary": "two classes", "multiclass": "more than two classes", "regression": "a regression"}


def check_metrics(space: Space, task: str | None) -> list[Problem]:
    """Check that the trainer reports the metrics of objectives and constraints for this task.

    The check uses `TRAINER["metrics"]` of the trainer's module. A cost, such as `seconds`, is measured for every trial and always allowed.

    Args:
        space: the search space.
        task: the label's task. None if the data has no label.

    Returns:
        The problems. The list is empty if the metrics are not known: there is no label, the trainer lists no metrics for the task, or
        `params` has `objective` or `eval_metric`.
    """
    reports = space.trainer_definition.metrics
    params = space.sections.get("params", {})
    if task is None or task not in reports or not isinstance(params, dict):
        return []
    if set(CUSTOM_METRIC_KEYS) & set(params):
        return []
    named = _objective_metrics(space) | {f"constraints.{c.metric}": c.metric for c in space.constraints}
    problems = (_check_metric(key, metric, task, reports) for key, metric in named.items() if metric not in COSTS)
    return [problem for problem in problems if problem is not None]


def check_metric_functions(space: Space) -> list[Problem]:
    """Import the metrics that have the form `module:function`, such as "my_metrics:score", and check that they are functions.

    The imports run the user's code, so `sweeps validate` must not call this function.

    Args:
        space: the search space.

    Returns:
        The problems.
    """
    functions = {key: metric for key, metric in _objective_metrics(space).items() if metrics.is_function(metric)}
    if not functions:
        return []
    from sweeps.data.sources import importable

    problems = []
    with importable(space.path.parent.absolute(), Path.cwd()):
        for key, metric in functions.items():
            try:
                metrics.load_function(metric)
            except references.RefError as e:
                problems.append(Problem(key, str(e)))
            except Exception as e:  # the module is the user's and may raise anything
                problems.append(Problem(key, f"`{metric}` cannot be imported: {type(e).__name__}: {e}"))
    return problems


def _objective_metrics(space: Space) -> dict[str, str]:
    """Return the metric of each objective, by the metric's key in the space file, such as `objective.metric`."""
    several = len(space.objectives) > 1
    return {f"objective.{i}.metric" if several else "objective.metric": o.metric for i, o in enumerate(space.objectives)}


def _check_metric(key: str, metric: str, task: str, reports: Mapping[Any, Sequence[str]]) -> Problem | None:
    if "@" in metric or metric in _expand(reports[task]):
        return None
    other_tasks = [name for name, known in reports.items() if metric in _expand(known)]
    valid_metrics = [name for name in _expand(reports[task]) if name.startswith("valid-")]
    if other_tasks:
        tasks = " or ".join(_TASK_NAMES.get(name, name) for name in other_tasks)
        text = f"is a metric for {tasks}, but this label is for {_TASK_NAMES.get(task, task)}"
        if task == "regression":
            text += (
                " (for a label of integers with many different values, sweeps chooses regression, unless the space file sets `data.task`)"
            )
        text += f"; choose from {', '.join(valid_metrics[:3])}"
    else:
        text = f"is not a metric of this trainer; {did_you_mean(metric, valid_metrics)}"
    return Problem(key, f"`{metric}` {text}")


def _expand(names: Sequence[str]) -> list[str]:
    """Return the full names of metrics. A name without a prefix gives two full names, with `valid-` and with `train-`."""
    return [prefix + name for name in names for prefix in (("",) if name.startswith(SPLIT_PREFIXES) else SPLIT_PREFIXES)]
