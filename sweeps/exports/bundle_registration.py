"""Register bundles of a sweep in MLflow."""

import functools
import os
from dataclasses import asdict
from pathlib import Path

from sweeps.bundle import integrity
from sweeps.bundle.manifest import Manifest, members_text, weights_of
from sweeps.core.errors import InputError
from sweeps.core.files.result_file import read_result
from sweeps.core.files.sweep_folder import RESULT
from sweeps.core.text.new_rows_text import difference_text
from sweeps.evaluation.paired import ComparedModel, improvement, probability, read_model
from sweeps.tracking.mlflow import model_registry, uris


def digest_of(bundle: Path) -> str | None:
    """Return the SHA-256 of a bundle's manifest. The manifest holds the hashes of all other files.

    Args:
        bundle: Folder of the bundle.

    Returns:
        The hash as hexadecimal text; None if the folder has no manifest.
    """
    file = bundle / integrity.MANIFEST
    return integrity.sha256(file) if file.is_file() else None


def register(
    sweep: str | os.PathLike[str],
    bundle: Path,
    name: str,
    alias: str | None = None,
    force: bool = False,
    at_least: float | None = None,
) -> list[str]:
    """Register a bundle as a model version in the MLflow server that tracked the sweep.

    Args:
        sweep: The sweep's folder.
        bundle: A bundle that `export` wrote.
        name: Name of the registered model.
        alias: Alias to move to the new version; see
            `sweeps.tracking.mlflow.model_registry.register`.
        force: True to move the alias even if the version that holds it now has a better value.
        at_least: Move the alias only if the new version is better on new rows with this
            probability, in place of a comparison of the values.

    Returns:
        Messages for the user, one for each action.

    Raises:
        InputError: The folder holds no bundle, or MLflow has no run of the sweep.
        SweepsError: MLflow does not answer.
    """
    manifest = Manifest.read(bundle)
    training = dict(manifest.training)
    if manifest.members:
        training["members"] = members_text(manifest.members)
    result = read_result(Path(sweep))
    tracked = None if result is None else result.mlflow
    if tracked == {}:
        raise InputError(
            "--register",
            f"{sweep}: MLflow has no runs of this sweep, because `trackers` in its space file "
            "does not list `mlflow`",
        )
    if not tracked or not tracked.get("tracking_uri") or not tracked.get("parent_run"):
        raise InputError(
            "--register",
            f"{sweep}: there is no {RESULT} that says where MLflow recorded the sweep; wait until "
            "the sweep has ended",
        )
    digest = integrity.sha256(bundle / integrity.MANIFEST)
    uri = uris.add_password(tracked["tracking_uri"])
    decide = None
    if at_least is not None:
        decide = functools.partial(_is_better, Path(sweep), manifest, at_least)
    model = model_registry.RegisteredModel(uri, name, alias, force, decide)
    return model_registry.register(bundle, digest, training, tracked["parent_run"], model)


def _is_better(
    sweep: Path, challenger: Manifest, at_least: float, source: str, champion_sweep: str
) -> tuple[bool, str]:
    """Return whether a new version is better on new rows with a probability, and the reason.

    Args:
        sweep: Folder of the new version's sweep.
        challenger: Manifest of the new version.
        at_least: The probability.
        source: Place of the bundle of the current version.
        champion_sweep: Folder of its sweep.
    """
    from mlflow.artifacts import download_artifacts

    champion = Manifest.read(Path(download_artifacts(artifact_uri=source)))
    old, new = _compared(Path(champion_sweep), champion), _compared(sweep, challenger)
    goal = challenger.training["goal"]
    difference = None
    if old is not None and new is not None and champion.training["goal"] == goal:
        difference = improvement(old, new, goal == "minimize")
    if difference is None:
        return False, (
            "the two versions cannot be compared on the same rows of valid, whose predictions "
            "their sweeps have kept"
        )
    chance = probability(difference)
    text = difference_text("the current version", "the new version", asdict(difference))
    return (
        chance >= at_least,
        f"{text}; the new version is better with a probability of {chance:.0%}",
    )


def _compared(sweep: Path, manifest: Manifest) -> ComparedModel | None:
    """Return the model of a bundle with its predictions for valid; see `read_model`."""
    training = dict(manifest.training)
    if "ensemble" in training:
        training["ensemble"] = {"members": weights_of(manifest.members)}
    return read_model(sweep, training, training.get("data", {}), training["metric"])
