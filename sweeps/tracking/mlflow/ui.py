"""Find the pages of sweeps in MLflow's web interface."""

from __future__ import annotations

import http.client
import ssl
import urllib.error
import urllib.parse
import urllib.request

from sweeps.core.errors import SweepsError
from sweeps.core.secrets import without_password
from sweeps.tracking.mlflow import views
from sweeps.tracking.mlflow.client import first_line

# Seconds to wait for the answer of a server.
ANSWER_SECONDS = 5.0


def check_server(uri: str) -> None:
    """Check that a server answers within seconds. MLflow's client would retry for minutes.

    Raises:
        SweepsError: The server does not answer.
    """
    address = urllib.parse.urlsplit(uri)
    server = address._replace(
        netloc=address.netloc.rpartition("@")[2], query="", fragment=""
    ).geturl()
    try:
        urllib.request.urlopen(server, timeout=ANSWER_SECONDS).close()
    except urllib.error.HTTPError:
        pass  # The server answers, even if only to ask for a password.
    except (OSError, http.client.HTTPException) as e:
        reason = getattr(e, "reason", e)
        if isinstance(reason, ssl.SSLError):  # MLflow's client has its own certificate settings
            return
        raise SweepsError(f"MLflow at {without_password(uri)} does not answer: {reason}") from e


def find_links(uri: str, address: str) -> dict[str, dict[str, str]]:
    """Return the links to the pages of each sweep by title, by the name of the sweep.

    Args:
        uri: MLflow's tracking URI, in whose experiments sweeps are searched.
        address: Address of MLflow's web interface, which may be relative.

    Raises:
        SweepsError: The server does not answer, or the database cannot be read.
    """
    from mlflow.exceptions import MlflowException
    from mlflow.tracking import MlflowClient
    from sqlalchemy.exc import SQLAlchemyError

    try:
        client = MlflowClient(uri)
        experiments = [found.experiment_id for found in client.search_experiments()]
        filtered = "tags.`sweeps.kind` = 'sweep'"
        runs = client.search_runs(experiments, filtered, max_results=1000) if experiments else []
    except (MlflowException, SQLAlchemyError) as e:
        raise SweepsError(
            f"MLflow at {without_password(uri)} does not answer: {first_line(e)}"
        ) from e
    links = {}
    for run in runs:
        name = run.data.tags.get("sweeps.sweep")
        if name is not None:
            links[name] = links_of(address, run.info.experiment_id, run.info.run_id, name)
    return links


def links_of(address: str, experiment: str, run: str, sweep: str) -> dict[str, str]:
    """Return the links to a sweep's pages by title. The page of the trials comes first.

    Args:
        address: Address of MLflow's web interface, which may be relative.
        experiment: ID of the sweep's experiment.
        run: ID of the sweep's parent run.
        sweep: Name of the sweep.
    """
    return {
        "trials, best first": views.runs_link(address, experiment, sweep),
        "charts": views.runs_link(address, experiment, sweep, chart=True),
        "the sweep": views.run_link(address, experiment, run),
        "all sweeps": views.runs_link(address, experiment, views.ALL_SWEEPS),
    }
