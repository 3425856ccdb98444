"""Build the contents of MLflow runs, without I/O.

The run of a trial has parameters. The run of a sweep has parameters, tags, metrics and a
description.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from sweeps.core.errors import make_encodable
from sweeps.core.files.safe_names import safe_name
from sweeps.core.resources import number_text
from sweeps.core.result import SweepResult
from sweeps.core.text.new_rows_text import new_rows_sentences
from sweeps.core.text.secrets import masked
from sweeps.core.trial import Trial, flatten_params
from sweeps.space import Space

if TYPE_CHECKING:
    from mlflow.entities import DatasetInput

# The part of a nested dimension's name that says in which option the dimension is.
OPTION = re.compile(r"\.(?:choice|grid)\.\d+(?=\.|$)")
# MLflow's limits for the name and the digest of a data set
NAME_LENGTH = 500
DIGEST_LENGTH = 36
# MLflow's limit for the name of a metric or a parameter, and the parts of a name that MLflow
# refuses: illegal characters, and parts such as `..` or `//` of a path.
LONGEST_NAME = 250
ILLEGAL = re.compile(r"[^\w\-./: ]|\A/|(?<=/)/|/\Z|\A\.\.|(?:\A|(?<=/))\.\.?(?=/|\Z)")
# URL parameter without which the UI shows its pages for language models.
MODE = {"workflowType": "machine_learning"}
# The tag in which MLflow keeps a run's description, and the longest value of that tag.
NOTE, NOTE_LENGTH = "mlflow.note.content", 8000


def trial_params(trial: Trial) -> dict[str, str]:
    """Return the parameters of a trial's run: the dimensions, and the constants by their paths.

    The constants are those in `params` and `scaling`. The parameter `preprocessor` is the chain
    without its tuned values, so that trials can be grouped by chain. Each tuned value is a separate
    parameter.

    A dimension inside an option of a choice has two names: `params.optimizer.choice.0.momentum` in
    the space, and `params.optimizer.momentum` in the loop's config. Only the first is a parameter.
    """
    scaling = {"num_workers": number_text(trial.shape.scaling["num_workers"])}
    for name, amount in trial.shape.per_worker:
        scaling[f"resources_per_worker.{name}"] = f"{amount:g}"
    chain = "+".join(step.name for step in trial.preprocessor) or "none"
    params = {"preprocessor": chain, **trial.labels}
    # The names that dimensions inside of options have in the loop's config
    names_in_config = {OPTION.sub("", name) for name in trial.labels if OPTION.search(name)}
    for name, value in (
        *flatten_params(trial.params, f"{trial.params_key}."),
        *flatten_params(scaling, "scaling."),
    ):
        if name not in names_in_config:
            params[name] = value
    return {name: str(value) for name, value in params.items()}


def datasets(space: Space, fingerprint: str) -> list[DatasetInput]:
    """Return MLflow's inputs for a sweep's data: the sources of the splits, without duplicates.

    Args:
        space: The sweep's space.
        fingerprint: Hash of the data. The data sets of all splits have this digest.
    """
    from mlflow.entities import Dataset, DatasetInput, InputTag

    if not space.data.is_named:
        return []
    splits = [("training", spec.train) for spec in space.variants]
    for context, split in (("validation", space.data.valid), ("testing", space.data.test)):
        if split is not None and split.path is not None:
            splits.append((context, split.path))
    inputs = []
    for context, source in dict.fromkeys(splits):
        uri = make_encodable(masked(source))
        kind, separator, _ = uri.partition("://")
        if not separator:  # `sklearn:NAME` and `module:function` are code.
            kind = "code" if ":" in uri else "local"
        name = uri.rstrip("/").rpartition("/")[2][:NAME_LENGTH] or "data"
        digest = make_encodable(fingerprint)[:DIGEST_LENGTH]
        dataset = Dataset(name, digest, kind, json.dumps({"uri": uri}))
        inputs.append(DatasetInput(dataset, [InputTag("mlflow.data.context", context)]))
    return inputs


def sweep_status(result: SweepResult | None) -> str:
    """Return the status of the parent run. A `result` of None means that the driver failed."""
    outcome = "failed" if result is None else result.outcome
    return {"finished": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}[outcome]


def sweep_tags(result: SweepResult) -> dict[str, str]:
    """Return the tags of the parent run at the end of a sweep."""
    # This replaces the tag that an interrupted driver set.
    tags = {"sweeps.reason": result.reason or "every trial has ended"}
    if result.front:
        tags["sweeps.front"] = ", ".join(best["trial"] for best in result.front)
    if result.best is not None:
        tags |= {
            "sweeps.best_trial": result.best["trial"],
            "sweeps.bundle": str(result.bundle or ""),
        }
        if (new_rows := result.best.get("new_rows")) is not None:
            tags["sweeps.new_rows"] = new_rows_sentences(new_rows)
    return tags


def sweep_metrics(result: SweepResult) -> dict[str, float]:
    """Return the metrics of the parent run at the end of a sweep."""
    # An interrupted driver may have set other numbers for these states.
    counts = {"interrupted": 0, "paused": 0} | result.trials
    metrics: dict[str, float] = {f"trials.{state}": count for state, count in counts.items()}
    metrics |= {"fits": result.fits, "seconds": result.seconds}
    if result.best is not None:
        values = {"best": result.best["value"], "best.test": result.best["test"]}
        new_rows = result.best.get("new_rows", {})
        values |= {f"best.new_rows.{key}": new_rows.get(key) for key in ("value", "low", "high")}
        metrics |= {name: value for name, value in values.items() if value is not None}
    if result.freed is not None:
        metrics |= {
            f"checkpoints.freed.{name}": result.freed[name] for name in ("checkpoints", "bytes")
        }
    return metrics


def description(markdown: str, links: dict[str, str]) -> str:
    """Return a run's description: links, followed by the first lines of a report.

    MLflow's page first shows about five lines, so the links come first. The report's title is left
    out, because the page shows the title already. The space file is left out, because a link leads
    to it.

    Args:
        markdown: The report.
        links: URLs by link text.
    """
    first_line = " · ".join(f"[{text}]({link})" for text, link in links.items())
    before_space, _, _ = markdown.partition("\n\n## Space file")
    _, _, report = before_space.partition("\n\n")  # without the title
    text = f"{first_line}\n\n{report}"
    if len(text) <= NOTE_LENGTH:
        return text
    tail = "\n\nThe rest is in the artifact `report.md`.\n"
    return text[: text.rfind("\n", 0, NOTE_LENGTH - len(tail))] + tail


def trials_link(experiment: str, sweep: str, ascending: bool) -> str:
    """Return a link, for pages within MLflow, to a sweep's trials in the order of the objective."""
    query = {
        "searchFilter": f"tags.`sweeps.sweep` = '{sweep}' and tags.`sweeps.kind` = 'trial'",
        "orderByKey": "metrics.`objective`",
        "orderByAsc": str(ascending).lower(),
        **MODE,
    }
    return f"#/experiments/{experiment}/runs?{urlencode(query, quote_via=quote)}"


def run_link(experiment: str, run: str, artifact: str = "") -> str:
    """Return a link, for pages within MLflow, to a run or to an artifact of the run."""
    place = f"/artifacts/{artifact}" if artifact else ""
    return f"#/experiments/{experiment}/runs/{run}{place}?{urlencode(MODE)}"


def legal_name(name: str) -> str:
    """Return the name of a metric or a parameter that MLflow accepts; see `safe_name`."""
    return safe_name(name, ILLEGAL, LONGEST_NAME)
