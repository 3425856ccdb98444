"""MLflow's copy of the report is replaced when a report is written again, and only in the run of
this sweep.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from sweeps.controller.mlflow_summary import renew_report
from sweeps.core.sweep_folder import SweepFolder
from sweeps.tracking.mlflow import report_copy
from tests.controller.test_removal import BEGAN, record_in_mlflow
from tests.controller.test_sweep_lookup import made

LINKS = "[Charts](#/charts)"


@pytest.fixture
def sweep(tmp_path, monkeypatch) -> Path:
    """Return the folder of a sweep with a new report, whose run in MLflow has an older report."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    folder = made(tmp_path / "runs", "made-20260102-120000", BEGAN)
    client, (run, *_) = record_in_mlflow(folder)
    client.set_tag(run, "mlflow.note.content", f"{LINKS}\n\nold report")
    recorded(folder, f"sqlite:///{folder.parent / 'mlflow.db'}", run)
    for suffix in ("md", "html"):
        SweepFolder(folder).report(suffix).write_text(f"# made\n\nnew {suffix}\n")
    return folder


def recorded(folder: Path, uri: str, run: str) -> None:
    mlflow = {"tracking_uri": uri, "experiment": "made", "parent_run": run}
    content = {
        "sweep": folder.name,
        "dir": str(folder),
        "trials": {},
        "best": None,
        "mlflow": mlflow,
        "fits": 0,
        "seconds": 1.0,
    }
    SweepFolder(folder).result.write_text(json.dumps(content))


def run_of(sweep: Path):
    from mlflow.tracking import MlflowClient

    facts = json.loads(SweepFolder(sweep).result.read_text())["mlflow"]
    return MlflowClient(facts["tracking_uri"]), facts["parent_run"]


def renewed(sweep: Path) -> tuple[str, ...]:
    return renew_report(sweep, [SweepFolder(sweep).report(suffix) for suffix in ("md", "html")])


def text_in_mlflow(sweep: Path, name: str) -> str:
    client, run = run_of(sweep)
    return Path(client.download_artifacts(run, name)).read_text()


def test_the_artifacts_and_the_description_are_replaced(sweep):
    assert renewed(sweep) == ()
    client, run = run_of(sweep)
    assert (
        text_in_mlflow(sweep, "report.md") == "# made\n\nnew md\n"
        and text_in_mlflow(sweep, "report.html") == "# made\n\nnew html\n"
    )
    assert client.get_run(run).data.tags["mlflow.note.content"] == f"{LINKS}\n\nnew md\n"


def test_without_a_report_or_a_run_nothing_is_done(sweep, monkeypatch):
    monkeypatch.setattr(
        report_copy, "impatient_client", lambda uri: pytest.fail("MLflow was asked")
    )
    assert renew_report(sweep, []) == ()
    content = json.loads(SweepFolder(sweep).result.read_text())
    SweepFolder(sweep).result.write_text(json.dumps(content | {"mlflow": {}}))
    assert renewed(sweep) == ()


def test_a_server_that_only_the_folder_names_is_not_asked(sweep, monkeypatch):
    recorded(sweep, "http://mlflow.example.org", "0" * 32)
    monkeypatch.setattr(
        report_copy, "impatient_client", lambda uri: pytest.fail("the server was asked")
    )
    (note,) = renewed(sweep)
    assert "MLFLOW_TRACKING_URI=http://mlflow.example.org" in note


def test_the_run_of_another_sweep_stays_as_it_is(sweep, tmp_path):
    copy = Path(shutil.copytree(sweep, sweep.parent / "made-20260102-130000"))
    (note,) = renewed(copy)
    assert "is not the run of this sweep" in note
    same_name = Path(shutil.copytree(sweep, tmp_path / "other" / sweep.name))
    shutil.copy(sweep.parent / "mlflow.db", same_name.parent)
    recorded(same_name, f"sqlite:///{same_name.parent / 'mlflow.db'}", run_of(sweep)[1])
    (note,) = renewed(same_name)
    assert (
        f"belongs to the sweep in {sweep}" in note
        and text_in_mlflow(sweep, "report.md") == "x" * 1000
    )


def test_a_file_or_a_server_that_is_away_is_a_note(sweep, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    (sweep.parent / "mlflow.db").rename(sweep.parent / "elsewhere.db")
    assert (
        "mlflow.db does not exist" in renewed(sweep)[0]
        and not (sweep.parent / "mlflow.db").exists()
    )
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    recorded(sweep, "http://127.0.0.1:9", "0" * 32)
    assert renewed(sweep)[0].startswith(
        "note: MLflow still has the report of before this export: MLflow at http://127.0.0.1:9: "
    )
