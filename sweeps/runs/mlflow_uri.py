"""Find the tracking URI of MLflow for a new or resumed sweep."""

from __future__ import annotations

import os
from pathlib import Path

from sweeps.core.errors import InputError
from sweeps.tracking.mlflow import uris


def resumed_uri(given: str | None, saved: str | None, has_mlflow: bool) -> str | None:
    """Return the given MLflow tracking URI, or else the URI with which the sweep started.

    Return None if neither exists.

    The URI with which the sweep started is stored without a password. The password is taken from
    `MLFLOW_TRACKING_URI` if this variable names the same server.
    """
    if given:
        return given_uri(given, has_mlflow)
    return uris.add_password(saved) if saved else None


def given_uri(given: str | None, has_mlflow: bool) -> str | None:
    """Return the given MLflow tracking URI, or else the value of `MLFLOW_TRACKING_URI`.

    Return None if neither is set.

    Args:
        given: The given URI; None if there is none.
        has_mlflow: True if the space file lists MLflow.

    Raises:
        InputError: MLflow has no store for the URI, or a URI is given although the space file does
            not list MLflow.
    """
    if given and not has_mlflow:
        text = (
            "sets the tracking URI of MLflow, but `trackers` in the space file does not list "
            "`mlflow`; add `mlflow` to `trackers`"
        )
        raise InputError("--tracking-uri", text)
    uri = given or os.environ.get("MLFLOW_TRACKING_URI")
    if not uri or not has_mlflow:
        return None
    uris.check_uri(uri, "--tracking-uri" if given else "MLFLOW_TRACKING_URI")
    return uri


def absolute_uri(uri: str | None, folder: Path) -> str:
    """Return MLflow's tracking URI with an absolute path, if it names a SQLite file.

    The reason: workers run in other working directories.

    Args:
        uri: The tracking URI; None for a SQLite file beside the sweep's folder.
        folder: The sweep's folder.
    """
    from sweeps.tracking import default_uri

    uri = uri or default_uri(folder.parent)
    scheme, separator, file = uri.partition(":///")
    if separator and scheme.startswith("sqlite"):
        return f"{scheme}:///{Path(file).absolute()}"
    return uri
