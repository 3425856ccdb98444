"""Check the metrics that are named in objectives and constraints, before any trial is trained."""

from collections.abc import Mapping, Sequence
from typing import Any

from sweeps.core import metrics
from sweeps.core.errors import Problem
from sweeps.core.label_columns import SEVERAL_COLUMNS
from sweeps.core.plugins import references
from sweeps.core.resources import COSTS
from sweeps.core.text.suggestions import closest
from sweeps.space import Space, TrainerSpec
from sweeps.space.model.templates import params_of
from sweeps.space.python.saved_space import roots_of
from sweeps.space.sections.search_models import Objective

SPLIT_PREFIXES = ("valid-", "train-")
# If `params` has one of these keys, the trainer may report other metrics than `TRAINER` lists.
CUSTOM_METRIC_KEYS = ("objective", "eval_metric")
# Number of metrics that an error lists. A trainer lists the usual ones first.
MOST_LISTED = 6
_TASK_NAMES = {
    "binary": "two classes",
    "multiclass": "more than two classes",
    "regression": "a regression",
    "multilabel": "several labels in each row",
    "multioutput": "several labels of numbers",
    "clustering": "a clustering",
}
# The tasks of an objective of XGBoost or LightGBM by the beginning of its name.
_OBJECTIVES = {"binary": ("binary", "multilabel"), "multi": ("multiclass",)}


def check_metrics(space: Space, task: str | None, notes: Sequence[str] = ()) -> list[Problem]:
    """Check that every trainer reports the metrics of objectives and constraints for this task.

    The check uses `TRAINER["metrics"]` of the trainer's module. If `TRAINER["all_metrics"]` is
    True, the metrics in `sweeps.core.metrics.METRICS` are allowed too. A cost, such as `seconds`,
    is measured for every trial and always allowed.

    Args:
        space: The search space.
        task: The label's task. None if the data has no label.
        notes: Notes about the data. A split that lacks a class has the note of
            `missing_class_notes`.

    Returns:
        The problems. There are none of a trainer whose metrics are not known: there is no label,
        the trainer lists no metrics for the task, `TRAINER["additional_metrics"]` is True, or its
        parameters have `objective` or `eval_metric`.
    """
    problems: list[Problem] = []
    for trainer in space.trainers.values():
        problems += _check_trainer(space, trainer, task, notes)
    return list(dict.fromkeys(problems))


def _check_trainer(
    space: Space, trainer: TrainerSpec, task: str | None, notes: Sequence[str]
) -> list[Problem]:
    """Check that a trainer reports the metrics; see `check_metrics`."""
    definition = trainer.definition
    reported: Mapping[Any, Sequence[str]] = definition.metrics
    params = params_of(space.sections, trainer.label)
    if task is None or task not in reported or not isinstance(params, dict):
        return []
    if text := _objective_problem(str(params.get("objective", "")), task):
        return [Problem(f"{trainer.params_key}.objective", text)]
    if set(CUSTOM_METRIC_KEYS) & set(params):
        return []
    goal_problems = _check_goals(space) if definition.all_metrics else []
    goal_problems += _check_classes(space, notes)
    if definition.additional_metrics:
        return goal_problems
    metric_by_key = _objective_metrics(space)
    metric_by_key |= {f"constraints.{c.metric}": c.metric for c in space.constraints}
    computed = metrics.METRICS if definition.all_metrics else {}
    name = f"`{trainer.label}`" if trainer.label else "this trainer"
    problems = []
    for key, metric in metric_by_key.items():
        text = _metric_problem(metric, task, reported, computed, trainer=name)
        if text is not None:
            problems.append(Problem(key, text))
    return problems + goal_problems


def _objective_problem(objective: str, task: str) -> str | None:
    """Return why the `objective` of XGBoost or LightGBM does not fit the task; None if it does."""
    for kind, tasks in _OBJECTIVES.items():
        if objective.startswith(kind) and task not in tasks:
            return (
                f"`{objective}` is for {_TASK_NAMES[tasks[0]]}, but the label has "
                f"{_TASK_NAMES[task]}; leave it out, so that the label decides"
            )
    return None


def check_metric_functions(space: Space) -> list[Problem]:
    """Import the metrics that have the form `module:function`, and check that they are functions.

    The imports run the user's code, so `sweeps validate` must not call this function.

    Args:
        space: The search space.

    Returns:
        The problems.
    """
    functions = {
        key: metric
        for key, metric in _objective_metrics(space).items()
        if references.is_reference(metric)
    }
    if not functions:
        return []
    from sweeps.data.sources.sources import importable

    problems = []
    with importable(*roots_of(space)):
        for key, metric in functions.items():
            try:
                metrics.load_function(metric)
            except references.RefError as e:
                problems.append(Problem(key, str(e)))
    return problems


def _objective_metrics(space: Space) -> dict[str, str]:
    """Return the metric of each objective, by the metric's key in the space file.

    An example is `objective.metric`.
    """
    return {f"{key}.metric": objective.metric for key, objective in _objectives(space).items()}


def _objectives(space: Space) -> dict[str, Objective]:
    """Return the objectives by their key in the space file: `objective`, or `objective.0` etc."""
    if len(space.objectives) == 1:
        return {"objective": space.objectives[0]}
    return {f"objective.{i}": objective for i, objective in enumerate(space.objectives)}


def _metric_problem(
    metric: str,
    task: str,
    reported: Mapping[Any, Sequence[str]],
    computed: Mapping[str, metrics.Metric],
    trainer: str,
) -> str | None:
    """Return the problem of a metric that a trainer does not report for a task; None if it does.

    Costs, and names with a parameter such as `error@0.7`, are no problem.

    Args:
        metric: The metric.
        task: The label's task.
        reported: `TRAINER["metrics"]`.
        computed: Further metrics that the trainer reports as `valid-NAME`.
        trainer: Name of the trainer, for messages.
    """
    by_task = {name: full_names(names) for name, names in reported.items()}
    for name, computed_metric in computed.items():
        for computed_task in computed_metric.tasks:
            by_task.setdefault(computed_task, []).append(f"valid-{name}")
    if metric in COSTS or "@" in metric or metric in by_task[task]:
        return None
    other_tasks = [name for name, names in by_task.items() if metric in names]
    # The message names a task of several label columns only if no other task has the metric.
    other_tasks = [name for name in other_tasks if name not in SEVERAL_COLUMNS] or other_tasks
    valid_metrics = [name for name in full_names(reported[task]) if name.startswith("valid-")]
    if other_tasks:
        others = (
            "a classification"
            if set(other_tasks) == {*metrics.CLASSIFICATION}
            else " or ".join(_TASK_NAMES.get(name, name) for name in other_tasks)
        )
        text = f"is a metric for {others}, but this label is for {_TASK_NAMES.get(task, task)}"
        if task == "multiclass" and "regression" in other_tasks:
            text += "; to predict the label as a number, set `data.task: regression`"
        if task == "regression":
            text += (
                " (for a label of integers with many different values, sweeps chooses regression, "
                "unless the space file sets `data.task`)"
            )
        text += f"; choose from {', '.join(valid_metrics[:3])}"
    elif (match := _nearest_metric(metric, by_task[task])) is not None:
        text = f"is not a metric of {trainer}; did you mean `{match}`?"
    else:
        text = f"is not a metric of {trainer}; valid: {', '.join(valid_metrics[:MOST_LISTED])}"
        if len(valid_metrics) > MOST_LISTED:
            text += ", ..."
        if computed:
            text += ", or `valid-` and the name of a scorer of scikit-learn"
    return f"`{metric}` {text}"


def _nearest_metric(metric: str, valid: Sequence[str]) -> str | None:
    """Return the valid metric that a user probably meant, such as `valid-auc` for `auc`.

    Return None if no metric is similar.
    """
    name = f"valid-{metrics.base_name(metric)}"
    if name in valid:
        return name
    return closest(metric, valid) or closest(name, valid, cutoff=0.85)


def _check_goals(space: Space) -> list[Problem]:
    """Return a problem for each objective that minimizes a scorer of scikit-learn.

    Higher values of these metrics are always better.
    """
    scorers = metrics.SCORERS.keys() - metrics.OWN.keys()
    return [
        Problem(
            f"{key}.goal",
            f"`{objective.metric}` is a scorer of scikit-learn, and a higher value is better; "
            "write `goal: maximize`",
        )
        for key, objective in _objectives(space).items()
        if objective.goal == "minimize" and objective.metric.removeprefix("valid-") in scorers
    ]


def _check_classes(space: Space, notes: Sequence[str]) -> list[Problem]:
    """Return a problem for each objective that is an AUC, if valid lacks a class.

    See `check_metrics` for the notes.
    """
    lacking = next((note for note in notes if "valid split has no row" in note), None)
    if lacking is None:
        return []
    return [
        Problem(
            key,
            f"`{metric}` needs rows of every class, but {lacking}; "
            "choose another metric or change data.valid",
        )
        for key, metric in _objective_metrics(space).items()
        if metric.startswith("valid-") and "auc" in metric
    ]


def full_names(names: Sequence[str]) -> list[str]:
    """Return the full names of metrics.

    A name without a prefix gives two full names, with `valid-` and with `train-`.
    """
    return [
        prefix + name
        for name in names
        for prefix in (("",) if name.startswith(SPLIT_PREFIXES) else SPLIT_PREFIXES)
    ]
