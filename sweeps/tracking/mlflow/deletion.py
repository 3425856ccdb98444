"""Find the MLflow runs of a sweep, and delete them."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from sweeps.core.errors import SweepsError
from sweeps.core.secrets import without_password
from sweeps.core.sweep_folder import is_sweep
from sweeps.tracking.mlflow.client import first_line, impatient_client

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

# Number of run IDs in one filter of MLflow.
CHUNK = 100


@dataclass(frozen=True)
class SweepRuns:
    """The MLflow runs of a sweep.

    Attributes:
        uri: Tracking URI, with its password.
        experiment: ID of the experiment.
        sweep: Name of the sweep.
        runs: IDs of the runs to delete: the sweep's run, and those of its trials.
        artifacts: Local folders with the artifacts of these runs; () if a server has the artifacts.
        kept: Runs that stay, each with the reason, because registered models need their artifacts.
        recorded_in: The folder of the sweep that MLflow has recorded; None if it is unknown.
    """

    uri: str
    experiment: str
    sweep: str
    runs: tuple[str, ...]
    artifacts: tuple[Path, ...]
    kept: tuple[str, ...]
    recorded_in: str | None

    @property
    def of_another_folder(self) -> bool:
        """True if the runs belong to another folder in which the sweep still is.

        The folder to delete is then a copy.
        """
        return self.recorded_in is not None and is_sweep(Path(self.recorded_in))


def sqlite_file(uri: str) -> Path | None:
    """Return the file of an SQLite URI; None for other URIs."""
    return (
        Path(uri.removeprefix("sqlite:///").partition("?")[0])
        if uri.startswith("sqlite:///")
        else None
    )


def find_runs(uri: str, experiment: str, sweep: str, began: float) -> SweepRuns | None:
    """Return the runs of a sweep; None if MLflow has none.

    Args:
        uri: Tracking URI.
        experiment: Name of the experiment.
        sweep: Name of the sweep.
        began: When the sweep started, in seconds since the epoch. Another machine may have a sweep
            of the same name.

    Raises:
        SweepsError: MLflow does not answer.
    """
    file = sqlite_file(uri)
    if file is not None and not file.is_file():  # MLflow would create an empty database
        return None
    with _errors(uri):
        client = impatient_client(uri)
        found = client.get_experiment_by_name(experiment)
        if found is None:
            return None
        where = (
            f"tags.`sweeps.sweep` = '{sweep}' and tags.`sweeps.kind` = 'sweep' and "
            f"attributes.start_time = {round(began * 1000)}"
        )
        parents = client.search_runs([found.experiment_id], where, max_results=1)
        if not parents:
            return None
        parent = parents[0]
        runs = [*_descendants(client, found.experiment_id, parent.info.run_id), parent]
        needed = _registered(client, [run.info.run_id for run in runs])
        deleted = [run for run in runs if run.info.run_id not in needed]
    return SweepRuns(
        uri=uri,
        experiment=str(found.experiment_id),
        sweep=sweep,
        runs=tuple(run.info.run_id for run in deleted),
        artifacts=tuple(
            path for run in deleted if (path := _local(run.info.artifact_uri)) is not None
        ),
        kept=tuple(
            f"the run of trial {run.data.tags.get('sweeps.trial', '?')} stays: "
            f"{needed[run.info.run_id]} needs its artifacts"
            for run in runs
            if run.info.run_id in needed
        ),
        recorded_in=parent.data.tags.get("sweeps.dir"),
    )


def _descendants(client: MlflowClient, experiment: str, parent: str) -> list[Run]:
    """Return the runs of a sweep's trials, and the runs that the training loops created inside them."""
    inside: dict[str | None, list[Run]] = {}
    token = None
    while True:
        page = client.search_runs([experiment], max_results=1000, page_token=token)
        for run in page:
            inside.setdefault(run.data.tags.get("mlflow.parentRunId"), []).append(run)
        if not (token := page.token):
            break
    found, parents = [], [parent]
    while parents:
        children = inside.pop(parents.pop(), [])
        found += children
        parents += [run.info.run_id for run in children]
    return found


def _registered(client: MlflowClient, runs: Sequence[str]) -> dict[str, str]:
    """Return the registered model versions that were made from runs, as text, by the run's ID."""
    needed = {}
    for start in range(0, len(runs), CHUNK):
        names = ", ".join(f"'{run}'" for run in runs[start : start + CHUNK])
        for version in client.search_model_versions(f"run_id IN ({names})"):
            needed[str(version.run_id)] = f"version {version.version} of the model {version.name}"
    return needed


def _local(artifact_uri: str) -> Path | None:
    """Return the folder of an artifact URI; None if it is not a local folder."""
    parts = urlsplit(artifact_uri)
    return Path(unquote(parts.path)) if parts.scheme in ("", "file") else None


def delete_runs(found: SweepRuns) -> str | None:
    """Delete the runs of a sweep, and the sweep's saved view.

    Runs in an SQLite file are deleted for good, with their artifacts. A server marks the runs as
    deleted.

    Returns:
        A note for the user about what the server keeps; None if nothing is kept.

    Raises:
        SweepsError: MLflow does not answer.
    """
    with _errors(found.uri):
        client = impatient_client(found.uri)
        for run in found.runs:
            client.delete_run(run)
        if sqlite_file(found.uri) is None:
            return (
                "the MLflow server keeps deleted runs and their artifacts until somebody runs "
                "`mlflow gc` on it"
            )
        _collect(found)
    return None


def _collect(found: SweepRuns) -> None:
    """Delete runs that are marked as deleted for good, with their artifacts, as `mlflow gc` does."""
    from mlflow.cli import gc
    from mlflow.tracking._tracking_service.utils import _use_tracking_uri

    arguments = [
        "--backend-store-uri",
        found.uri,
        "--tracking-uri",
        found.uri,
        "--run-ids",
        ",".join(found.runs),
    ]
    variable = os.environ.get("MLFLOW_TRACKING_URI")
    # `gc` sets the tracking URI of this process and leaves it set.
    with (
        _use_tracking_uri(found.uri),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        gc.main(arguments, standalone_mode=False)
    if variable is not None:  # MLflow has removed the variable.
        os.environ["MLFLOW_TRACKING_URI"] = variable
    for folder in found.artifacts:
        with contextlib.suppress(OSError):  # a run that logged no artifact has no folder
            folder.parent.rmdir()


@contextlib.contextmanager
def _errors(uri: str) -> Iterator[None]:
    """Raise a SweepsError in place of an error of MLflow or of its database."""
    try:
        yield
    except SweepsError:
        raise
    except Exception as e:
        raise SweepsError(
            f"MLflow at {without_password(uri)}: {first_line(e)}; repeat the command, or add "
            "--keep-runs to leave the MLflow runs alone"
        ) from e
