"""Build the contents of MLflow runs: parameters of a trial, and parameters, tags, metrics and description of a sweep. No I/O."""

from __future__ import annotations

import re
from typing import Any

from sweeps.core import registry
from sweeps.core.resources import number_text
from sweeps.core.result import SweepResult, outcome_of
from sweeps.core.secrets import masked
from sweeps.core.trial import Trial
from sweeps.space import Space

PARAM_LENGTH = 6000  # MLflow's limit for a parameter's value
# The tag in which MLflow keeps a run's description, and the longest value of that tag.
NOTE, NOTE_LENGTH = "mlflow.note.content", 8000


def flatten(values: dict[str, Any], prefix: str) -> dict[str, str]:
    """Flatten nested parameters to one level, with dotted names such as `params.eta`."""
    flat: dict[str, str] = {}
    for key, value in values.items():
        name = f"{prefix}.{key}"
        if isinstance(value, dict):
            flat.update(flatten(value, name))
        else:
            flat[name] = str(value)[:PARAM_LENGTH]
    return flat


def trial_params(trial: Trial) -> dict[str, str]:
    """Return the parameters of a trial's run: every dimension by its path, and the constants in `params` and `scaling`.

    The parameter `preprocessor` is the chain without its tuned values, so that trials can be grouped by chain. Each tuned value is a
    separate parameter.
    """
    number = number_text(trial.shape.scaling["num_workers"])
    scaling = {"num_workers": number, **{f"resources_per_worker.{k}": f"{v:g}" for k, v in trial.shape.per_worker}}
    chain = "+".join(step.name for step in trial.preprocessor) or "none"
    labels = {name: str(value)[:PARAM_LENGTH] for name, value in {"preprocessor": chain, **trial.labels}.items()}
    return {**labels, **flatten(trial.params, "params"), **flatten(scaling, "scaling")}


def space_params(space: Space) -> dict[str, str]:
    """Return the parameters of the parent run, named by the space file's keys. Two sweeps are comparable if these parameters are equal."""
    params: dict[str, Any] = {"trainer": space.trainer.loop}
    if space.data.given:
        params["data.train"] = ", ".join(dict.fromkeys(masked(spec.train) for spec in space.variants))
    for key in ("metric", "goal"):
        params[f"objective.{key}"] = ", ".join(getattr(objective, key) for objective in space.objectives)
    params |= {f"constraints.{c.metric}": f"{c.sign} {c.bound:g}" for c in space.constraints}
    params |= {f"repeats.{key}": value for key, value in vars(space.repeats).items() if space.repeats.count > 1}
    params |= {f"limits.{key}": value for key, value in vars(space.limits).items() if value is not None and key != "retry_on"}
    params |= {"limits.retry_on": ", ".join(space.limits.retry_on)}
    params |= {"search.algorithm": space.search.algorithm, "search.seed": space.search.seed}
    name = space.scheduler.name
    # Earlier versions logged these two options for every scheduler. The parameters of old and new sweeps must stay comparable.
    defaults = {"grace_period": 1, "reduction_factor": 3} if registry.is_built_in("scheduler", name) else {}
    scheduler = {"name": name, **defaults, **space.scheduler.options}
    params |= {f"scheduler.{key}": value for key, value in scheduler.items() if value is not None}
    return {name: str(value) for name, value in params.items()}


def sweep_status(result: SweepResult | None) -> str:
    """Return the status of the parent run. A `result` of None means that the driver failed."""
    return "FAILED" if result is None else {"finished": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}[outcome_of(vars(result))]


def sweep_tags(result: SweepResult) -> dict[str, str]:
    """Return the tags of the parent run at the end of a sweep."""
    tags = {"sweeps.reason": result.reason or "every trial has ended"}  # This replaces the tag that an interrupted driver set.
    if result.front:
        tags["sweeps.front"] = ", ".join(best["trial"] for best in result.front)
    if result.best is not None:
        tags |= {"sweeps.best_trial": result.best["trial"], "sweeps.bundle": str(result.bundle or "")}
    return tags


def sweep_metrics(result: SweepResult) -> dict[str, float]:
    """Return the metrics of the parent run at the end of a sweep."""
    metrics: dict[str, float] = {f"trials.{state}": count for state, count in ({"interrupted": 0} | result.trials).items()}
    metrics |= {"fits": result.fits, "seconds": result.seconds}
    if result.best is not None:
        values = {"best": result.best["value"], "best.test": result.best["test"]}
        metrics |= {name: value for name, value in values.items() if value is not None}
    if result.freed is not None:
        metrics |= {f"checkpoints.freed.{name}": result.freed[name] for name in ("checkpoints", "bytes")}
    return metrics


def description(markdown: str, links: dict[str, str]) -> str:
    """Return a run's description: links, followed by the first lines of a report, up to MLflow's limit.

    MLflow's page first shows about five lines. From the third line on, the lines are faded and links cannot be clicked, so the links come
    first. The report's title is left out, because the page shows the title already. The space file is left out, because a link leads to the
    file, and the long lines of the file would squeeze the page. The page shows table columns without a gap, so a gap is added.

    Args:
        markdown: The report.
        links: URLs by link text.
    """
    head = " · ".join(f"[{text}]({link})" for text, link in links.items()) + "\n\n"
    rest = markdown.partition("\n\n## Space file")[0].partition("\n\n")[2]
    rest = re.sub(r"^\| (?!---|\s).*", lambda row: row[0].replace(" | ", "&emsp;| "), rest, flags=re.M)
    if len(head + rest) <= NOTE_LENGTH:
        return head + rest
    tail = "\n\nThe rest is in the artifact `report.md`.\n"
    cut = rest[: rest.rfind("\n", 0, NOTE_LENGTH - len(head) - len(tail) - 4)]
    return head + cut + ("\n```" if f"\n{cut}".count("\n```") % 2 else "") + tail
