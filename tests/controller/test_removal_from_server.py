"""`sweeps rm` deletes the runs of a sweep on an MLflow server that it reaches over HTTP."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import mlflow_server
from tests.commands import command, invoke, space_of
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.extended, pytest.mark.timeout(300)]


@pytest.fixture
def server(tmp_path):
    """Return the address of an MLflow server that runs during the test."""
    port = mlflow_server.free_port()
    process = mlflow_server.start(tmp_path, port)
    try:
        wait_until(
            lambda: mlflow_server.listens(port) or process.poll() is not None,
            120,
            "MLflow's server to listen",
        )
        yield f"http://127.0.0.1:{port}"
    finally:
        mlflow_server.end(process)


def test_the_runs_on_a_server_are_deleted_and_other_runs_stay(tmp_path, server):
    from mlflow.tracking import MlflowClient

    driver = command(
        "run",
        space_of(tmp_path, "no_checkpoint"),
        "--dir",
        tmp_path / "runs",
        "--tracking-uri",
        server,
        "--json",
    )
    out, err = driver.communicate(timeout=200)
    assert driver.returncode == 0, err
    result = json.loads(out)
    client, folder = MlflowClient(server), Path(result["dir"])
    experiment = client.get_experiment_by_name(result["mlflow"]["experiment"])
    view = f"mlflow.sharedViewState.{folder.name}"
    assert view in experiment.tags
    runs = {
        run.data.tags.get("sweeps.trial", "sweep"): run.info
        for run in client.search_runs([experiment.experiment_id])
    }
    assert runs.keys() == {"sweep", "0000", "0001", "0002", "0003"}
    other = client.create_run(experiment.experiment_id, tags={"sweeps.sweep": "other"}).info.run_id
    client.create_registered_model("kept")
    client.create_model_version("kept", runs["0001"].artifact_uri, runs["0001"].run_id)

    asked = invoke("rm", folder, "--yes", "--dir", tmp_path / "runs", "--tracking-uri", server)
    assert asked.exit_code == 0, asked.output
    assert (
        "the run of trial 0001 stays: version 1 of the model kept needs its artifacts"
        in asked.stderr
    )
    assert "the MLflow server keeps deleted runs" in asked.stderr and not folder.exists()
    left = {
        client.get_run(run.run_id).data.tags.get("sweeps.trial")
        for run in runs.values()
        if is_active(client, run.run_id)
    }
    assert left == {"0001"} and is_active(client, other)
    assert view not in client.get_experiment(experiment.experiment_id).tags


def is_active(client, run: str) -> bool:
    return client.get_run(run).info.lifecycle_stage == "active"
