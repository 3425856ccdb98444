"""What is logged of a run: a trial's parameters, a sweep's settings, its description."""

from __future__ import annotations

import re
from typing import Any

from sweeps.core.secrets import masked
from sweeps.core.trial import Trial
from sweeps.space import Space

PARAM_LENGTH = 6000  # of a parameter's value, by MLflow's own limit
# A run's description is a tag, of at most so many characters.
NOTE, NOTE_LENGTH = "mlflow.note.content", 8000


def flat(values: dict[str, Any], prefix: str) -> dict[str, str]:
    """Nested parameters as MLflow's flat ones: `params.eta`."""
    out: dict[str, str] = {}
    for key, value in values.items():
        name = f"{prefix}.{key}"
        if isinstance(value, dict):
            out.update(flat(value, name))
        else:
            out[name] = str(value)[:PARAM_LENGTH]
    return out


def parameters(trial: Trial) -> dict[str, str]:
    """What is logged of a trial's configuration: every dimension under its path, and the constants of `params` and `scaling`.

    `preprocessor` is the chain without what is tuned inside it, which has parameters of its own: so it groups trials.
    """
    scaling = {"num_workers": trial.shape.workers, **{f"resources_per_worker.{k}": f"{v:g}" for k, v in trial.shape.per_worker}}
    chain = "+".join(step.name for step in trial.preprocessor) or "none"
    labels = {name: str(value)[:PARAM_LENGTH] for name, value in {"preprocessor": chain, **trial.labels}.items()}
    return {**labels, **flat(trial.params, "params"), **flat(scaling, "scaling")}


def settings(space: Space) -> dict[str, str]:
    """How a sweep searches, by the names of the space file: what makes two sweeps of one name comparable, or not."""
    told: dict[str, Any] = {"trainer": space.trainer.loop}
    if space.data.given:
        told["data.train"] = ", ".join(dict.fromkeys(masked(spec.train) for spec in space.variants))
    for key in ("metric", "goal"):
        told[f"objective.{key}"] = ", ".join(getattr(objective, key) for objective in space.objectives)
    told |= {f"constraints.{c.metric}": f"{c.sign} {c.bound:g}" for c in space.constraints}
    told |= {f"repeats.{key}": value for key, value in vars(space.repeats).items() if space.repeats.count > 1}
    told |= {f"limits.{key}": value for key, value in vars(space.limits).items() if value is not None and key != "retry_on"}
    told |= {"limits.retry_on": ", ".join(space.limits.retry_on)}
    told |= {"search.algorithm": space.search.algorithm, "search.seed": space.search.seed}
    told |= {f"scheduler.{key}": value for key, value in vars(space.scheduler).items() if value is not None}
    return {name: str(value) for name, value in told.items()}


def described(markdown: str, links: dict[str, str]) -> str:
    """A run's description: links, and as many whole lines of a report as MLflow takes.

    Unasked the page shows some five lines of it, under a veil from the third one on, through which no link can be clicked. It has
    the report's title already. The space file has a link, and lines so long that they would squeeze the page. Tables have no room
    between their columns there.
    """
    head = " · ".join(f"[{text}]({link})" for text, link in links.items()) + "\n\n"
    rest = markdown.partition("\n\n## Space file")[0].partition("\n\n")[2]
    rest = re.sub(r"^\| (?!---|\s).*", lambda row: row[0].replace(" | ", "&emsp;| "), rest, flags=re.M)
    if len(head + rest) <= NOTE_LENGTH:
        return head + rest
    tail = "\n\nThe rest is in the artifact `report.md`.\n"
    cut = rest[: rest.rfind("\n", 0, NOTE_LENGTH - len(head) - len(tail) - 4)]
    return head + cut + ("\n```" if f"\n{cut}".count("\n```") % 2 else "") + tail
