"""Check a tracking URI before a sweep starts.

The tracker's process would report a wrong URI only while the sweep runs.
"""

import os
from importlib.metadata import entry_points

from sweeps.core.errors import InputError
from sweeps.core.text.secrets import without_password
from sweeps.core.text.suggestions import did_you_mean

# Beginnings of URIs for which MLflow itself has a store
SCHEMES = (
    "http",
    "https",
    "sqlite",
    "postgresql",
    "mysql",
    "mssql",
    "databricks",
    "databricks-uc",
    "uc",
)
# Schemes of folders, in which MLflow no longer stores runs
FILES = ("", "file")


def check_uri(uri: str, place: str) -> None:
    """Check that MLflow has a store for a tracking URI.

    Args:
        uri: The tracking URI.
        place: Name of the option or environment variable that the URI comes from, for messages.

    Raises:
        InputError: MLflow has no store for the URI, or the URI is a folder. MLflow no longer writes
            to folders.
    """
    scheme, separator, rest = uri.partition("://")
    if separator:
        scheme = scheme.partition("+")[0].lower()
    else:
        scheme = "databricks" if uri.split(":")[0] == "databricks" else ""
    public_uri = without_password(uri)
    if scheme in FILES:
        raise InputError(
            place,
            f"{public_uri}: MLflow no longer stores runs in folders; use "
            f"sqlite:///{rest.strip('/') or 'mlflow'}.db",
        )
    schemes = {*SCHEMES, *(point.name for point in entry_points(group="mlflow.tracking_store"))}
    if scheme not in schemes:
        raise InputError(
            place,
            f"{public_uri}: MLflow has no store for `{scheme}`; "
            f"{did_you_mean(scheme, sorted(schemes))}",
        )
    if separator and not rest.strip("/"):
        raise InputError(place, f"{public_uri}: a host or a path must follow `{scheme}://`")


def add_password(uri: str) -> str:
    """Return a URI with the password from `MLFLOW_TRACKING_URI`.

    A sweep's folder stores the URI without a password.

    Args:
        uri: The URI that a sweep has stored. If the environment variable is for another server, it
            is ignored.
    """
    from_environment = os.environ.get("MLFLOW_TRACKING_URI", "")
    return from_environment if without_password(from_environment) == uri else uri
