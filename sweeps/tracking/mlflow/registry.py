"""Register bundles in MLflow's Model Registry, with the runs of their trials, and move an alias to a better version."""

from __future__ import annotations

import logging
import math
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweeps.core.errors import InputError, Problem, SweepsError
from sweeps.core.secrets import without_password

DIGEST = "sweeps.manifest_sha256"


@dataclass(frozen=True)
class Score:
    """The value by which two versions of a model are compared.

    Attributes:
        metric: Metric of the sweep's objective.
        goal: `minimize` or `maximize`.
        value: Value of the model's trial.
        feasible: True if the trial meets the sweep's constraints, if it has any.
    """

    metric: str
    goal: str
    value: float
    feasible: bool = True


def should_move_alias(old: Score | None, new: Score, force: bool) -> tuple[bool, str]:
    """Return whether an alias moves from a version to a new one, and why.

    Args:
        old: Score of the version that has the alias; None if no sweep registered it.
        new: Score of the new version.
        force: True if the alias moves in any case.
    """
    if force:
        return True, "--force"
    if old is None:
        return False, "it has no objective value to compare with"
    if (old.metric, old.goal) != (new.metric, new.goal):
        return False, f"it was chosen by another objective, {old.metric} ({old.goal})"
    if new.feasible != old.feasible:
        return new.feasible, "it meets the constraints, the other did not" if new.feasible else "the new one breaks a constraint"
    better = new.value < old.value if new.goal == "minimize" else new.value > old.value
    compared = f"{new.metric} {new.value:.6g}, before {old.value:.6g}"
    return better, compared if better else f"{compared}: no better"


def check_names(name: str, alias: str | None) -> None:
    """Check the names of a model and of an alias by MLflow's rules.

    Raises:
        InputError: MLflow would refuse one of them.
    """
    if not name or set("/:") & set(name):
        raise InputError(Problem("--register", f"a model's name must not be empty and must not contain / or :; got {name!r}"))
    if alias is not None and (not re.fullmatch(r"[\w-]{1,255}", alias) or alias == "latest" or re.fullmatch(r"[vV]\d+", alias)):
        rule = "an alias must have only letters, digits, _ and -, and must not be `latest` or a version such as `v1`"
        raise InputError(Problem("--alias", f"{rule}; got {alias!r}"))


def register(
    bundle: Path, digest: str, made: dict[str, Any], uri: str, parent: str, name: str, alias: str | None, force: bool
) -> list[str]:
    """Log a bundle as an artifact of its trial's run, and register it as a version of a model.

    Args:
        bundle: The bundle's folder.
        digest: SHA-256 of the bundle's manifest.
        made: How the bundle was made, from its manifest: `sweep`, `trial`, `metric`, `goal`, `value`; perhaps `refit` and `feasible`.
        uri: MLflow's tracking URI.
        parent: ID of the sweep's run.
        name: Name of the registered model, which is created if it does not exist.
        alias: Set on the new version if no version has it; otherwise it moves if `should_move_alias` says so.
        force: Move the alias in any case.

    Returns:
        What was done, one line each.

    Raises:
        InputError: The sweep has no run of this trial there, or MLflow refuses the name or the alias.
        SweepsError: MLflow does not answer, or cannot store the bundle.
    """
    if uri.startswith("sqlite:///") and not os.path.exists(file := uri.removeprefix("sqlite:///").partition("?")[0]):
        raise InputError(Problem("--register", f"{file}, where the sweep was tracked, does not exist"))  # MLflow would create an empty one
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    logging.getLogger("mlflow").setLevel(logging.ERROR)
    from mlflow.exceptions import MlflowException, RestException
    from mlflow.tracking import MlflowClient

    try:
        client = MlflowClient(uri)
        return _register(client, bundle, digest, made, parent, name, alias, force)
    except RestException as e:
        raise InputError(Problem("--register", f"MLflow at {without_password(uri)} refuses it: {_line(e)}")) from e
    except SweepsError:
        raise
    except Exception as e:  # MLflow's stores do not catch the errors of their libraries
        kind = "" if isinstance(e, MlflowException) else f"{type(e).__name__}: "
        raise SweepsError(f"MLflow at {without_password(uri)}: {kind}{_line(e)}") from e


def _line(e: Exception) -> str:
    """Return the first line of an error's message."""
    return (str(e).splitlines() or [type(e).__name__])[0]


def _register(
    client: Any, bundle: Path, digest: str, made: dict[str, Any], parent: str, name: str, alias: str | None, force: bool
) -> list[str]:
    new = score_of(made)
    experiment = client.get_run(parent).info.experiment_id
    where = f"tags.`mlflow.parentRunId` = '{parent}' and tags.`sweeps.trial` = '{made['trial']}'"
    runs = client.search_runs([experiment], where, max_results=1)
    if not runs:
        raise InputError(Problem("--register", f"MLflow has no run of trial {made['trial']} of this sweep"))
    run = runs[0]
    if not client.search_registered_models(f"name = '{name}'", max_results=1):
        client.create_registered_model(name)
    versions = client.search_model_versions(f"name = '{name}'")
    same = [v.version for v in versions if v.tags.get(DIGEST) == digest and v.run_id == run.info.run_id]
    if same:  # an earlier command registered it
        version, done = same[0], [f"{name} version {same[0]} is this bundle already"]
    else:
        version = _version(client, bundle, digest, made, run, name)
        done = [f"registered {name} version {version}, of run {run.info.run_id}"]
    if alias is None:
        return done
    current = client.get_registered_model(name).aliases.get(alias)
    if current is not None and str(current) == str(version):
        return [*done, f"alias {alias} is at version {version} already"]
    if current is None:
        client.set_registered_model_alias(name, alias, version)
        return [*done, f"alias {alias} is set to version {version}"]
    move, why = should_move_alias(_score(client.get_model_version(name, current).tags), new, force)
    if move:
        client.set_registered_model_alias(name, alias, version)
        return [*done, f"alias {alias} moves from version {current} to {version}: {why}"]
    return [*done, f"alias {alias} stays at version {current}: {why}; --force moves it"]


def _version(client: Any, bundle: Path, digest: str, made: dict[str, Any], run: Any, name: str) -> Any:
    """Create a new version of a registered model; return its number."""
    artifact = f"bundle-{digest[:12]}"  # another bundle of the same trial is another version with its own files
    client.log_artifacts(run.info.run_id, str(bundle), artifact)
    tags = {f"sweeps.{key}": str(made[key]) for key in ("sweep", "trial", "metric", "goal", "value")}
    tags |= {DIGEST: digest}
    tags |= {"sweeps.refit": "+".join(made["refit"]["on"])} if "refit" in made else {}
    tags |= {"sweeps.feasible": str(made["feasible"]).lower()} if "feasible" in made else {}
    return client.create_model_version(name, f"{run.info.artifact_uri}/{artifact}", run.info.run_id, tags, await_creation_for=None).version


def score_of(made: dict[str, Any]) -> Score:
    """Return the score of a bundle from its manifest. A value that is not finite is null in the manifest and NaN here."""
    value = math.nan if made["value"] is None else float(made["value"])
    return Score(made["metric"], made["goal"], value, made.get("feasible") is not False)


def _score(tags: dict[str, str]) -> Score | None:
    """Return the score of a version from its tags; None if no sweep registered it."""
    try:
        value, feasible = float(tags["sweeps.value"]), tags.get("sweeps.feasible") != "false"
        return Score(tags["sweeps.metric"], tags["sweeps.goal"], value, feasible)
    except (KeyError, ValueError):
        return None
