"""Which tracking URIs MLflow can do something with: said before a sweep starts, as the tracker works where nobody looks."""

from __future__ import annotations

from importlib.metadata import entry_points

from sweeps.core.errors import InputError, Problem
from sweeps.core.secrets import without_password
from sweeps.core.suggestions import did_you_mean

SCHEMES = ("http", "https", "sqlite", "postgresql", "mysql", "mssql", "databricks", "databricks-uc", "uc")
FILES = ("", "file")


def check(uri: str, place: str) -> None:
    """See that there is a store for a URI.

    Args:
        uri: MLflow's tracking URI.
        place: where it was said.

    Raises:
        InputError: there is none, or it is the one that MLflow has given up.
    """
    scheme, there, rest = uri.partition("://")
    scheme = scheme.partition("+")[0].lower() if there else "databricks" if uri.split(":")[0] == "databricks" else ""
    shown = without_password(uri)
    if scheme in FILES:
        raise InputError(Problem(place, f"{shown}: MLflow writes to folders no more; a file is sqlite:///{rest.strip('/') or 'mlflow'}.db"))
    known = {*SCHEMES, *(found.name for found in entry_points(group="mlflow.tracking_store"))}
    if scheme not in known:
        raise InputError(Problem(place, f"{shown}: MLflow has no store for `{scheme}`; {did_you_mean(scheme, sorted(known))}"))
    if there and not rest.strip("/"):
        raise InputError(Problem(place, f"{shown}: names nothing behind `{scheme}://`"))
