"""Register bundles of a sweep in MLflow."""

import os
from pathlib import Path

from sweeps.bundle import integrity
from sweeps.bundle.manifest import Manifest, members_text
from sweeps.core.errors import InputError
from sweeps.core.files.result_file import read_result
from sweeps.core.files.sweep_folder import RESULT
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
) -> list[str]:
    """Register a bundle as a model version in the MLflow server that tracked the sweep.

    Args:
        sweep: The sweep's folder.
        bundle: A bundle that `export` wrote.
        name: Name of the registered model.
        alias: Alias to move to the new version; see
            `sweeps.tracking.mlflow.model_registry.register`.
        force: True to move the alias even if the version that holds it now has a better value.

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
    model = model_registry.RegisteredModel(uri, name, alias, force=force)
    return model_registry.register(bundle, digest, training, tracked["parent_run"], model)
