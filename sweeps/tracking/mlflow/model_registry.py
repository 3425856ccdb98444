"""Register bundles in MLflow's Model Registry, and move an alias to a better version.

Versions are linked to the runs of their trials.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeps.core.errors import InputError, SweepsError, first_line
from sweeps.core.text.secrets import without_password

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

PREFIX = "sweeps."
DIGEST = f"{PREFIX}manifest_sha256"


@dataclass(frozen=True)
class Score:
    """Objective value of a model version. Two versions are compared by their scores.

    Attributes:
        metric: Metric of the sweep's objective.
        goal: `minimize` or `maximize`.
        value: Objective value of the trial whose bundle was registered.
        feasible: True if the trial meets the sweep's constraints, or if the sweep has no
            constraints.
    """

    metric: str
    goal: str
    value: float
    feasible: bool = True


def should_move_alias(old: Score | None, new: Score | None, force: bool) -> tuple[bool, str]:
    """Return whether an alias moves from its version to a new version, and the reason.

    Args:
        old: Score of the version that has the alias; None if the version has no score, because
            sweeps did not register it.
        new: Score of the new version; see `old`.
        force: True to move the alias without a comparison.
    """
    if force:
        return True, "because of --force"
    if old is None or new is None:
        return False, "the current version has no objective value to compare with"
    if (old.metric, old.goal) != (new.metric, new.goal):
        objective = f"{old.metric} ({old.goal})"
        return False, f"the current version was chosen by another objective, {objective}"
    if new.feasible and not old.feasible:
        return True, "the new version meets the constraints, and the current version does not"
    if old.feasible and not new.feasible:
        return False, "the current version meets the constraints, and the new version does not"
    is_better = new.value < old.value if new.goal == "minimize" else new.value > old.value
    reason = (
        f"{new.metric} is {new.value:.6g} for the new version and {old.value:.6g} for the current "
        "version"
    )
    if not is_better:
        reason += ", so the new version is not better"
    return is_better, reason


def check_names(name: str, alias: str | None) -> None:
    """Check the names of a model and of an alias by MLflow's rules.

    Raises:
        InputError: MLflow would refuse the name or the alias.
    """
    if not name or set("/:") & set(name):
        raise InputError(
            "--register",
            f"a model's name must not be empty and must not contain / or :; got {name!r}",
        )
    if alias is None:
        return
    is_reserved = alias == "latest" or re.fullmatch(r"[vV]\d+", alias)
    if is_reserved or not re.fullmatch(r"[\w-]{1,255}", alias):
        rule = (
            "an alias must have only letters, digits, _ and -, and must not be `latest` or a "
            "version such as `v1`"
        )
        raise InputError("--alias", f"{rule}; got {alias!r}")


@dataclass(frozen=True)
class RegisteredModel:
    """A registered model that gets a new version.

    Attributes:
        uri: MLflow's tracking URI.
        name: Name of the model. It is created if it does not exist.
        alias: Alias for the new version; None for none. If another version has the alias,
            `should_move_alias` decides whether the alias moves.
        force: True to move the alias without a comparison.
        decide: Function that is called in place of `should_move_alias`, with the bundle's place and
            the sweep's folder of the version that has the alias.
    """

    uri: str
    name: str
    alias: str | None = None
    force: bool = False
    decide: Callable[[str, str], tuple[bool, str]] | None = None


def register(
    bundle: Path, digest: str, training: Mapping[str, Any], parent: str, model: RegisteredModel
) -> list[str]:
    """Log a bundle as an artifact of its trial's run, and register it as a version of a model.

    An ensemble has no single trial. Its bundle becomes an artifact of the sweep's run.

    Args:
        bundle: The bundle's folder.
        digest: SHA-256 of the bundle's manifest.
        training: Facts of the training, from the bundle's manifest: `sweep`, `trial`, `metric`,
            `goal`, `value`, and optionally `refit` and `feasible`. For an ensemble, `trial` is
            None, and `members` is a text that lists the members.
        parent: ID of the sweep's run.
        model: The registered model.

    Returns:
        One line for each action that was taken.

    Raises:
        InputError: MLflow has no run of this trial, or refuses the name or the alias.
        SweepsError: MLflow does not answer, or cannot store the bundle.
    """
    file = model.uri.removeprefix("sqlite:///").partition("?")[0]
    # If the file is missing, MLflow would create an empty database.
    if model.uri.startswith("sqlite:///") and not os.path.exists(file):
        raise InputError("--register", f"{file}, where MLflow recorded the sweep, does not exist")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    logging.getLogger("mlflow").setLevel(logging.ERROR)
    from mlflow.tracking import MlflowClient

    with _mlflow_errors(model.uri):
        client = MlflowClient(model.uri)
        run = _run_of(client, parent, training["trial"])
        tags = _tags(training) | {DIGEST: digest}
        version, message = _find_or_create_version(client, bundle, tags, run=run, name=model.name)
        if model.alias is None:
            return [message]
        return [message, _move_alias(client, model, model.alias, version=version, tags=tags)]


def _tags(training: Mapping[str, Any]) -> dict[str, str]:
    """Return the tags of a version; see `register`."""
    facts = {key: training[key] for key in ("sweep", "trial", "metric", "goal", "value")}
    if "members" in training:
        facts["members"] = training["members"]
    if "refit" in training:
        facts["refit"] = "+".join(training["refit"]["on"])
    if "feasible" in training:
        facts["feasible"] = str(training["feasible"]).lower()
    return {f"{PREFIX}{key}": str(value) for key, value in facts.items()}


def _find_or_create_version(
    client: MlflowClient, bundle: Path, tags: dict[str, str], *, run: Run, name: str
) -> tuple[str, str]:
    """Return the version of a bundle, which is created if it does not exist, and a message.

    Args:
        client: MLflow's client.
        bundle: The bundle's folder.
        tags: Tags of the version, with the digest of the bundle.
        run: The run that gets the bundle as an artifact.
        name: Name of the registered model.
    """
    run_id = run.info.run_id
    if not client.search_registered_models(f"name = '{name}'", max_results=1):
        client.create_registered_model(name)
    for version in client.search_model_versions(f"name = '{name}'"):
        if version.tags.get(DIGEST) == tags[DIGEST] and version.run_id == run_id:
            message = f"this bundle is already registered as {name} version {version.version}"
            return str(version.version), message
    # Bundles of one trial have separate files, because each bundle is a separate version.
    artifact = f"bundle-{tags[DIGEST][:12]}"
    client.log_artifacts(run_id, str(bundle), artifact)
    source = f"{run.info.artifact_uri}/{artifact}"
    created = client.create_model_version(name, source, run_id, tags, await_creation_for=0)
    message = f"registered this bundle as {name} version {created.version}"
    return str(created.version), f"{message}, for the MLflow run {run_id}"


@contextlib.contextmanager
def _mlflow_errors(uri: str) -> Iterator[None]:
    """Context manager that raises an InputError or a SweepsError in place of an error of MLflow."""
    from mlflow.exceptions import MlflowException, RestException

    try:
        yield
    except RestException as e:
        raise InputError(
            "--register", f"MLflow at {without_password(uri)} refuses the request: {first_line(e)}"
        ) from e
    except SweepsError:
        raise
    except Exception as e:  # MLflow's stores let errors of their libraries pass.
        kind = "" if isinstance(e, MlflowException) else f"{type(e).__name__}: "
        raise SweepsError(f"MLflow at {without_password(uri)}: {kind}{first_line(e)}") from e


def _move_alias(
    client: MlflowClient, model: RegisteredModel, alias: str, *, version: str, tags: dict[str, str]
) -> str:
    """Set an alias, or move it to a version if `should_move_alias` returns True.

    Return a line that says what was done.
    """
    current = client.get_registered_model(model.name).aliases.get(alias)
    if current is not None:
        if str(current) == version:
            return f"alias {alias} already refers to version {version}"
        champion = client.get_model_version(model.name, current)
        if model.decide is None or model.force:
            moves, reason = should_move_alias(score_of(champion.tags), score_of(tags), model.force)
        else:
            run = client.get_run(str(champion.run_id))
            sweep = client.get_run(run.data.tags.get("mlflow.parentRunId", run.info.run_id))
            folder = sweep.data.tags.get("sweeps.dir", "")
            moves, reason = model.decide(str(champion.source), folder)
        if not moves:
            stays = f"alias {alias} stays at version {current}: {reason}"
            return f"{stays}; to move the alias anyway, use --force"
    client.set_registered_model_alias(model.name, alias, version)
    if current is None:
        return f"alias {alias} now refers to version {version}"
    return f"alias {alias} moved from version {current} to version {version}: {reason}"


def _run_of(client: MlflowClient, parent: str, trial: str | None) -> Run:
    """Return the run of a trial, or of the sweep if there is no trial, as for an ensemble."""
    sweep = client.get_run(parent)
    if trial is None:
        return sweep
    where = f"tags.`mlflow.parentRunId` = '{parent}' and tags.`sweeps.trial` = '{trial}'"
    runs = client.search_runs([sweep.info.experiment_id], where, max_results=1)
    if not runs:
        raise InputError("--register", f"MLflow has no run of trial {trial} of this sweep")
    return runs[0]


def score_of(tags: Mapping[str, str]) -> Score | None:
    """Return the score of a version from its tags.

    A value that is null in the bundle's manifest was not finite, and becomes NaN. Return None if
    sweeps did not register the version.
    """
    try:
        text = tags[f"{PREFIX}value"]
        return Score(
            metric=tags[f"{PREFIX}metric"],
            goal=tags[f"{PREFIX}goal"],
            value=math.nan if text == "None" else float(text),
            feasible=tags.get(f"{PREFIX}feasible") != "false",
        )
    except (KeyError, ValueError):
        return None
