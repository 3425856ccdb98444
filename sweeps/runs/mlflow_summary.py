"""Find the MLflow server of a sweep, and record in the result where in MLflow the sweep is.

Also send MLflow the events that it missed.
"""

import dataclasses
import os
from pathlib import Path

from pydantic import JsonValue

from sweeps.core import clock
from sweeps.core.errors import InputError
from sweeps.core.files import provenance
from sweeps.core.files.atomic_files import write_text
from sweeps.core.files.origin import valid_origin_keys
from sweeps.core.files.sweep_folder import PROVENANCE, RESULT, SweepFolder
from sweeps.core.result import SweepResult
from sweeps.core.text.command_hints import resume_command
from sweeps.core.text.secrets import without_password
from sweeps.core.trial import Trial
from sweeps.space import Space
from sweeps.study import storage
from sweeps.study.events import ArtifactSaved, SweepEnded, SweepStarted
from sweeps.tracking import MlflowTracker, TrackerHub
from sweeps.tracking.earlier_events import TrialHistory
from sweeps.tracking.mlflow import uris

# Beginning of the note in a result that says that MLflow missed events.
MISSED = "MLflow at "
REPORT = "report.md"
# The keys of `SweepResult.mlflow` that say where in MLflow the sweep is.
PLACE = ("tracking_uri", "experiment", "parent_run")


def tracker_of(space: Space, folder: Path, uri: str | None) -> MlflowTracker:
    """Return the MLflow tracker of a sweep; see `absolute_uri` for the arguments."""
    from sweeps import tracking

    destination = tracking.Destination(
        absolute_uri(uri, folder),
        folder.parent,
        space.name,
        folder.name,
        valid_origin_keys(folder).get("began") or clock.time(),
    )
    return tracking.TrackerProcess(destination, folder / "sweep.log")


def started_event(
    folder: Path, space: Space, fingerprint: str, time: float, resumed: bool
) -> SweepStarted:
    """Return the event with which a driver announces the sweep to the trackers.

    Args:
        folder: The sweep's folder.
        space: The sweep's space.
        fingerprint: Hash of the data.
        time: Time of the event, in seconds since the epoch.
        resumed: True if an earlier driver may have started trials.
    """
    url, _ = storage.place_of(folder) or (None, "")
    history = TrialHistory(folder, url) if resumed else None
    git = provenance.last_git_state(folder)
    return SweepStarted(
        time, space, folder, fingerprint, git.get("commit"), git.get("dirty"), history
    )


def send_again(
    tracker: MlflowTracker,
    space: Space,
    fingerprint: str,
    *,
    result: SweepResult,
    best: Trial | None,
) -> SweepResult:
    """Send MLflow all events of an ended sweep that MLflow may have missed.

    Update the result's note about missed events.

    Args:
        tracker: The MLflow tracker.
        space: The sweep's space.
        fingerprint: Hash of the data.
        result: The sweep's result, as `add_mlflow` wrote it after MLflow had missed events.
        best: The best trial; None if there is none.

    Returns:
        The updated result, as `add_mlflow` returns it.
    """
    ended = result.mlflow["ended"]
    folder = result.dir
    notes = tuple(note for note in result.notes if not note.startswith(MISSED))
    mlflow = {name: result.mlflow.get(name) for name in PLACE}
    result = dataclasses.replace(result, notes=notes, mlflow=mlflow)
    tracker.handle(started_event(folder, space, fingerprint, ended, resumed=True))
    files = [*folder.glob("code*.diff")]
    files += [folder / name for name in (PROVENANCE, REPORT, "report.html")]
    texts = {file.name: file.read_text(encoding="utf-8") for file in files if file.is_file()}
    texts[RESULT] = result.as_text()
    for name, text in texts.items():
        tracker.handle(ArtifactSaved(ended, name, text))
    tracker.handle(SweepEnded(ended, result, best, report=texts.get(REPORT, "")))
    return add_mlflow(tracker, tracker.close(), result, ended)


def save_result(result: SweepResult, ended: float, trackers: TrackerHub) -> SweepResult:
    """Write `result.json`, with the place of the sweep in MLflow, and return the result.

    Args:
        result: The sweep's result.
        ended: When the search ended, in seconds since the epoch.
        trackers: The trackers of the sweep, which are closed.
    """
    if trackers.mlflow is not None:
        return add_mlflow(trackers.mlflow, trackers.mlflow_complete, result, ended)
    result = result.with_note(
        "MLflow has no runs of this sweep, because `trackers` in the space file does not list "
        "`mlflow`"
    )
    write_text(SweepFolder(result.dir).result, result.as_text())
    return result


def add_mlflow(
    tracker: MlflowTracker, complete: bool, result: SweepResult, ended: float
) -> SweepResult:
    """Set the field `mlflow` of a result, and add a note if MLflow missed events.

    Write the result to the sweep's folder and return it.

    Args:
        tracker: The MLflow tracker. It must be closed.
        complete: True if MLflow has handled every event: it either stored or refused the event.
        result: The sweep's result.
        ended: When the search ended, in seconds since the epoch.
    """
    notes = list(result.notes)
    mlflow = place(tracker)
    if mlflow["parent_run"] is None and mlflow["tracking_uri"] == result.mlflow.get("tracking_uri"):
        # The server does not answer now, but it answered an earlier driver.
        mlflow = dict(result.mlflow)
    if not complete or tracker.error:
        problem = (
            f"{MISSED}{mlflow['tracking_uri']} did not receive all data of the sweep: "
            f"{tracker.error or 'the server did not answer'}"
        )
        notes.append(
            f"{problem}; the study has all data, and this command sends the data again: "
            f"{resume_command(result.dir)}"
        )
        mlflow |= {"missed": True, "ended": ended}
    result = dataclasses.replace(result, notes=tuple(notes), mlflow=mlflow)
    write_text(SweepFolder(result.dir).result, result.as_text())
    return result


def place(tracker: MlflowTracker) -> dict[str, JsonValue]:
    """Return a sweep's `SweepResult.mlflow`: tracking URI, experiment and parent run."""
    destination = tracker.destination
    values = (without_password(destination.uri), destination.experiment, tracker.parent)
    return dict(zip(PLACE, values, strict=True))


def resumed_uri(requested: str | None, saved: str | None, has_mlflow: bool) -> str | None:
    """Return the requested MLflow tracking URI, or else the URI with which the sweep started.

    Return None if neither exists.

    The URI with which the sweep started is stored without a password. The password is taken from
    `MLFLOW_TRACKING_URI` if this variable names the same server.
    """
    if requested:
        return requested_uri(requested, has_mlflow)
    return uris.add_password(saved) if saved else None


def requested_uri(requested: str | None, has_mlflow: bool) -> str | None:
    """Return the requested MLflow tracking URI, or else the value of `MLFLOW_TRACKING_URI`.

    Return None if neither is set.

    Args:
        requested: The requested URI; None if there is none.
        has_mlflow: True if the space file lists MLflow.

    Raises:
        InputError: MLflow has no store for the URI, or a URI is requested although the space file
            does not list MLflow.
    """
    if requested and not has_mlflow:
        raise InputError(
            "--tracking-uri",
            "sets the tracking URI of MLflow, but `trackers` in the space file does not list "
            "`mlflow`; add `mlflow` to `trackers`",
        )
    uri = requested or os.environ.get("MLFLOW_TRACKING_URI")
    if not uri or not has_mlflow:
        return None
    uris.check_uri(uri, "--tracking-uri" if requested else "MLFLOW_TRACKING_URI")
    return uri


def absolute_uri(uri: str | None, folder: Path) -> str:
    """Return MLflow's tracking URI with an absolute path, if it names a SQLite file.

    Workers run in other working directories, so a relative path would be another file there.

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
