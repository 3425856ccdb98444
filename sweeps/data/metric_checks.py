"""Whether the objective's metric is one that the trainer knows for the label's task: pure, and known before anything is trained."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sweeps.core import references
from sweeps.core.errors import Problem, nearest
from sweeps.core.resources import COSTS

if TYPE_CHECKING:
    from sweeps.space import Space

SPLIT_PREFIXES = ("valid-", "train-")
# Who names an objective or metrics of his own in `params` knows what they give.
CUSTOM_METRIC_KEYS = ("objective", "eval_metric")
_TASK_NAMES = {"binary": "two classes", "multiclass": "more than two classes", "regression": "a regression"}


def check_metrics(space: Space, task: str | None) -> list[Problem]:
    """Hold the metrics of objectives and constraints, but for costs, against the trainer's `REPORTS`, if it says such a thing.

    `REPORTS` is a literal of the trainer's module: for each task the metrics that can be the objective; one without `valid-` or
    `train-` stands for both.

    Args:
        space: whose objective and trainer.
        task: of the label; None if it has none.
    """
    reports = references.literal(space.trainer.loop.partition(":")[0], "REPORTS", (space.path.parent,))
    params = space.sections.get("params", {})
    if (
        task is None
        or not isinstance(reports, dict)
        or task not in reports
        or not isinstance(params, dict)
        or set(CUSTOM_METRIC_KEYS) & set(params)
    ):
        return []
    asked = {f"objective.{i}.metric" if len(space.objectives) > 1 else "objective.metric": o.metric for i, o in enumerate(space.objectives)}
    asked |= {f"constraints.{c.metric}": c.metric for c in space.constraints}
    found = (_check_metric(key, metric, task, reports) for key, metric in asked.items() if metric not in COSTS)
    return [problem for problem in found if problem is not None]


def _check_metric(key: str, metric: str, task: str, reports: dict[str, tuple[str, ...]]) -> Problem | None:
    if "@" in metric or metric in _expand(reports[task]):
        return None
    others = [name for name, known in reports.items() if metric in _expand(known)]
    fitting = [name for name in _expand(reports[task]) if name.startswith("valid-")]
    if others:
        text = f"is for {' or '.join(_TASK_NAMES.get(name, name) for name in others)}, but the label makes it {_TASK_NAMES.get(task, task)}"
        if task == "regression":
            text += " (an integer with many values counts as a number, unless `data.task` says otherwise)"
        text += f"; such as {', '.join(fitting[:3])}"
    else:
        text = f"is not known to the trainer; {nearest(metric, fitting)}"
    return Problem(key, f"`{metric}` {text}")


def _expand(known: tuple[str, ...]) -> list[str]:
    """The metrics that a trainer's table means."""
    return [part + name for name in known for part in (("",) if name.startswith(SPLIT_PREFIXES) else SPLIT_PREFIXES)]
