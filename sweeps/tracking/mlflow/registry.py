"""MLflow's Model Registry: a bundle becomes a version of a model, with the run of its trial; an alias moves to it if it is better."""

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
    """What a version is compared by.

    Attributes:
        metric, goal: the sweep's objective.
        value: the model's.
        feasible: it keeps the sweep's constraints, as far as there are any.
    """

    metric: str
    goal: str
    value: float
    feasible: bool = True


def moves(old: Score | None, new: Score, force: bool) -> tuple[bool, str]:
    """Whether an alias moves from a version to a new one, and why.

    Args:
        old: of the version that has the alias; None for a version that no sweep registered.
        new: of the new version.
        force: whatever they are.
    """
    if force:
        return True, "--force"
    if old is None:
        return False, "it has no objective's value to compare with"
    if (old.metric, old.goal) != (new.metric, new.goal):
        return False, f"it was chosen by another objective, {old.metric} ({old.goal})"
    if new.feasible != old.feasible:
        return new.feasible, "it keeps the constraints, the other did not" if new.feasible else "the new one breaks a constraint"
    better = new.value < old.value if new.goal == "minimize" else new.value > old.value
    compared = f"{new.metric} {new.value:.6g}, before {old.value:.6g}"
    return better, compared if better else f"{compared}: no better"


def check_names(name: str, alias: str | None) -> None:
    """See that MLflow will take the names of a model and of an alias, before there is anything to name.

    Raises:
        InputError: it will not.
    """
    if not name or set("/:") & set(name):
        raise InputError(Problem("--register", f"a model's name must have a character, and neither / nor : among them; got {name!r}"))
    if alias is not None and (not re.fullmatch(r"[\w-]{1,255}", alias) or alias == "latest" or re.fullmatch(r"[vV]\d+", alias)):
        rule = "an alias must be of letters, digits, _ and -, and neither `latest` nor like `v1`, which name versions"
        raise InputError(Problem("--alias", f"{rule}; got {alias!r}"))


def register(
    bundle: Path, digest: str, made: dict[str, Any], uri: str, parent: str, name: str, alias: str | None, force: bool
) -> list[str]:
    """Make a bundle a version of a registered model, an artifact of its trial's run.

    Args:
        bundle: its folder.
        digest: the SHA-256 of its manifest.
        made: how it was made, from its manifest: `sweep`, `trial`, `metric`, `goal`, `value`; `refit` and `feasible` where it has them.
        uri: MLflow's.
        parent: the sweep's run.
        name: the registered model's; made if it is not there.
        alias: moves to the new version as `moves` says; it is set where no version has it.
        force: move it in any case.

    Returns:
        What was done, in lines.

    Raises:
        InputError: the sweep has no such run there, or MLflow refuses the name or the alias.
        SweepsError: MLflow does not answer, or cannot store the bundle.
    """
    if uri.startswith("sqlite:///") and not os.path.exists(file := uri.removeprefix("sqlite:///").partition("?")[0]):
        raise InputError(Problem("--register", f"there is no {file}, in which the sweep was tracked"))  # MLflow would make an empty one
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
    except Exception as e:  # its stores let through what their libraries raise
        kind = "" if isinstance(e, MlflowException) else f"{type(e).__name__}: "
        raise SweepsError(f"MLflow at {without_password(uri)}: {kind}{_line(e)}") from e


def _line(e: Exception) -> str:
    return (str(e).splitlines() or [type(e).__name__])[0]


def _register(
    client: Any, bundle: Path, digest: str, made: dict[str, Any], parent: str, name: str, alias: str | None, force: bool
) -> list[str]:
    new = score_of(made)
    experiment = client.get_run(parent).info.experiment_id
    mine = f"tags.`mlflow.parentRunId` = '{parent}' and tags.`sweeps.trial` = '{made['trial']}'"
    runs = client.search_runs([experiment], mine, max_results=1)
    if not runs:
        raise InputError(Problem("--register", f"MLflow has no run of trial {made['trial']} of this sweep"))
    run = runs[0]
    if not client.search_registered_models(f"name = '{name}'", max_results=1):
        client.create_registered_model(name)
    versions = client.search_model_versions(f"name = '{name}'")
    there = [v.version for v in versions if v.tags.get(DIGEST) == digest and v.run_id == run.info.run_id]
    if there:  # it was registered before, as by a command that is given again
        version, said = there[0], [f"{name} version {there[0]} is this bundle already"]
    else:
        version = _version(client, bundle, digest, made, run, name)
        said = [f"registered {name} version {version}, of run {run.info.run_id}"]
    if alias is None:
        return said
    held = client.get_registered_model(name).aliases.get(alias)
    if held is not None and str(held) == str(version):
        return [*said, f"alias {alias} is at version {version} already"]
    if held is None:
        client.set_registered_model_alias(name, alias, version)
        return [*said, f"alias {alias} is set to version {version}"]
    move, why = moves(_score(client.get_model_version(name, held).tags), new, force)
    if move:
        client.set_registered_model_alias(name, alias, version)
        return [*said, f"alias {alias} moves from version {held} to {version}: {why}"]
    return [*said, f"alias {alias} stays at version {held}: {why}; --force moves it"]


def _version(client: Any, bundle: Path, digest: str, made: dict[str, Any], run: Any, name: str) -> Any:
    """A new version of a registered model; its number."""
    artifact = f"bundle-{digest[:12]}"  # another bundle of the same trial has other files, and a version of its own that needs them
    client.log_artifacts(run.info.run_id, str(bundle), artifact)
    tags = {f"sweeps.{key}": str(made[key]) for key in ("sweep", "trial", "metric", "goal", "value")}
    tags |= {DIGEST: digest}
    tags |= {"sweeps.refit": "+".join(made["refit"]["on"])} if "refit" in made else {}
    tags |= {"sweeps.feasible": str(made["feasible"]).lower()} if "feasible" in made else {}
    return client.create_model_version(name, f"{run.info.artifact_uri}/{artifact}", run.info.run_id, tags, await_creation_for=None).version


def score_of(made: dict[str, Any]) -> Score:
    """What a bundle was chosen by, from its manifest; a value that is not finite is null there, and NaN here."""
    value = math.nan if made["value"] is None else float(made["value"])
    return Score(made["metric"], made["goal"], value, made.get("feasible") is not False)


def _score(tags: dict[str, str]) -> Score | None:
    try:
        value, feasible = float(tags["sweeps.value"]), tags.get("sweeps.feasible") != "false"
        return Score(tags["sweeps.metric"], tags["sweeps.goal"], value, feasible)
    except (KeyError, ValueError):
        return None
