"""Replace the report of a sweep in MLflow, after the report has changed."""

from __future__ import annotations

from pathlib import Path

from sweeps.core.secrets import without_password
from sweeps.core.sweep_folder import is_sweep
from sweeps.tracking.mlflow.client import encodable, first_line, impatient_client
from sweeps.tracking.mlflow.deletion import sqlite_file
from sweeps.tracking.mlflow.run_contents import NOTE, renewed_description


def replace_report(uri: str, run: str, folder: Path, markdown: Path, html: Path) -> str | None:
    """Replace the report in the run of a sweep: its two artifacts, and the description.

    Args:
        uri: Tracking URI, with its password.
        run: ID of the sweep's run. The run stays as it is if it belongs to another sweep, or to
            another folder that still has the sweep.
        folder: The sweep's folder.
        markdown: The file `report.md`.
        html: The file `report.html`.

    Returns:
        The reason if MLflow has not got the new report; None if all is well.
    """
    shown = without_password(uri)
    file = sqlite_file(uri)
    if file is not None and not file.is_file():  # MLflow would create an empty database
        return f"{file} does not exist"
    try:
        client = impatient_client(uri)
        tags = client.get_run(run).data.tags
        recorded = Path(tags.get("sweeps.dir", folder))
        if tags.get("sweeps.sweep") != folder.name:
            return f"the run {run} at {shown} is not the run of this sweep"
        if recorded.resolve() != folder.resolve() and is_sweep(recorded):
            return f"the run {run} at {shown} belongs to the sweep in {recorded}"
        for artifact in (markdown, html):
            client.log_artifact(run, str(artifact))
        text = renewed_description(tags.get(NOTE, ""), markdown.read_text(encoding="utf-8"))
        client.set_tag(run, NOTE, encodable(text))
    except Exception as e:  # MLflow's stores let errors of their libraries pass.
        return f"MLflow at {shown}: {first_line(e)}"
    return None
