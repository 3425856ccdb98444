"""`sweeps rm` deletes a sweep and its MLflow runs, and nothing else."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import click.testing
import mlflow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlflow.tracking import MlflowClient

from sweeps import cli
from sweeps.controller import removal, store_mirror, stored_sweeps
from sweeps.core import stores
from sweeps.core.folder_lock import FolderLock
from sweeps.core.stores import DRIVER
from sweeps.core.sweep_folder import ORIGIN, is_own
from sweeps.tracking.mlflow import deletion
from tests.commands import invoke, mlflow_database
from tests.controller.test_sweep_lookup import made
from tests.s3 import folder_as_bucket, storage

BEGAN = 1_700_000_000.0


def files_in(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


def record_in_mlflow(folder: Path, trials: int = 2) -> tuple[MlflowClient, list[str]]:
    """Record a sweep as the tracker does, in `mlflow.db` beside its folder.

    Return the client, and the IDs of the sweep's runs.
    """
    root = folder.parent
    if not (root / "mlflow.db").exists():
        shutil.copy(mlflow_database(), root / "mlflow.db")
    client = MlflowClient(f"sqlite:///{root / 'mlflow.db'}")
    if (experiment := client.get_experiment_by_name("made")) is None:
        client.create_experiment("made", (root / "mlartifacts" / "made").as_uri())
        experiment = client.get_experiment_by_name("made")
    own = {"sweeps.sweep": folder.name}
    parent = client.create_run(
        experiment.experiment_id,
        int(BEGAN * 1000),
        own | {"sweeps.kind": "sweep", "sweeps.dir": str(folder)},
    )
    runs = [parent.info.run_id]
    for n in range(trials):
        inside = {
            "sweeps.kind": "trial",
            "sweeps.trial": f"{n:04d}",
            "mlflow.parentRunId": parent.info.run_id,
        }
        runs.append(client.create_run(experiment.experiment_id, tags=own | inside).info.run_id)
    nested = client.create_run(
        experiment.experiment_id, tags={"mlflow.parentRunId": runs[-1]}
    ).info.run_id  # a loop can create such a run
    client.log_text(parent.info.run_id, "x" * 1000, "report.md")
    client.set_experiment_tag(
        experiment.experiment_id, f"mlflow.sharedViewState.{folder.name}", "view"
    )
    return client, [*runs, nested]


@pytest.fixture
def sweep(tmp_path, monkeypatch) -> Path:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return made(tmp_path / "runs", "made-20260102-120000", BEGAN)


def test_rm_says_what_it_deletes_and_asks(sweep):
    (sweep / "bundle").mkdir()
    (sweep / "bundle" / "model").write_bytes(b"x" * 2000)
    before = files_in(sweep.parent)
    for answer in ("n\n", ""):
        done = click.testing.CliRunner().invoke(cli.main, ["rm", str(sweep)], input=answer)
        assert done.exit_code == 1 and "nothing was deleted" in done.stderr, done.output
    assert (
        "bundle 2.0 KB" in done.stderr
        and str(sweep) in done.stderr
        and "delete all of this? [y/N]" in done.stderr
    )
    assert files_in(sweep.parent) - {f"{sweep.name}/lock"} == before
    assert (
        click.testing.CliRunner().invoke(cli.main, ["rm", str(sweep)], input="y\n").exit_code == 0
    )
    assert not sweep.exists()


def test_the_runs_of_the_sweep_and_their_artifacts_are_deleted_and_other_runs_stay(sweep):
    other = made(sweep.parent, "made-20260102-120001", BEGAN + 1)
    client, runs = record_in_mlflow(sweep)
    _, others = record_in_mlflow(other)
    artifacts = sweep.parent / "mlartifacts" / "made"
    done = invoke("rm", "made-20260102-120000", "--dir", sweep.parent, "--yes")
    assert (
        done.exit_code == 0
        and "4 runs and 1.0 KB of artifacts" in done.stderr
        and "deleted made-20260102-120000" in done.stderr
    )
    experiment = client.get_experiment_by_name("made")
    left = client.search_runs([experiment.experiment_id], run_view_type=3)
    assert {run.info.run_id for run in left} == set(others)
    assert {path.name for path in artifacts.iterdir()} == {others[0]} and list(experiment.tags) == [
        f"mlflow.sharedViewState.{other.name}"
    ]
    assert not sweep.exists() and other.is_dir() and runs


@pytest.mark.parametrize("before", [None, "sqlite:///mine.db"])
def test_mlflow_logs_to_the_same_place_as_before_the_removal(sweep, monkeypatch, before):
    record_in_mlflow(sweep)
    if before is not None:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", before)
    uri = f"sqlite:///{sweep.parent / 'mlflow.db'}"
    invoke("rm", sweep, "--yes", "--tracking-uri", uri)
    assert (
        os.environ.get("MLFLOW_TRACKING_URI") == before
        and mlflow.get_tracking_uri() != uri
        and not sweep.exists()
    )
    assert before is None or mlflow.get_tracking_uri() == before


def test_a_run_from_which_a_model_was_registered_stays(sweep):
    client, runs = record_in_mlflow(sweep)
    client.create_registered_model("churn")
    client.create_model_version("churn", client.get_run(runs[1]).info.artifact_uri, runs[1])
    done = invoke("rm", sweep, "--yes")
    assert (
        "note: the run of trial 0000 stays: version 1 of the model churn needs its artifacts"
        in done.stderr
    )
    experiment = client.get_experiment_by_name("made").experiment_id
    assert [run.info.run_id for run in client.search_runs([experiment])] == [
        runs[1]
    ] and not sweep.exists()


def test_the_runs_of_the_original_stay_if_a_copy_is_deleted(sweep, tmp_path, monkeypatch):
    client, runs = record_in_mlflow(sweep)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{sweep.parent / 'mlflow.db'}")
    copy = Path(shutil.copytree(sweep, tmp_path / "copies" / sweep.name))
    (copy / "result.json").unlink(missing_ok=True)
    origin = json.loads((copy / ORIGIN).read_text())
    (copy / ORIGIN).write_text(
        json.dumps(origin | {"tracking_uri": os.environ["MLFLOW_TRACKING_URI"]})
    )
    done = invoke("rm", copy, "--yes")
    assert f"the MLflow runs stay, because they belong to the sweep in {sweep}" in done.stderr
    assert not copy.exists() and sweep.is_dir()
    assert len(client.search_runs([client.get_experiment_by_name("made").experiment_id])) == len(
        runs
    )


def test_a_tracking_server_that_only_the_folder_names_is_not_asked(sweep, monkeypatch):
    origin = json.loads((sweep / ORIGIN).read_text())
    (sweep / ORIGIN).write_text(
        json.dumps(origin | {"tracking_uri": "http://me:secret@mlflow.example.org"})
    )
    monkeypatch.setattr(removal, "find_runs", lambda *_: pytest.fail("the server was asked"))
    done = invoke("rm", sweep, "--yes")
    assert (
        "add --tracking-uri http://me@mlflow.example.org" in done.stderr
        and "secret" not in done.output
        and not sweep.exists()
    )


def test_a_server_that_does_not_answer_stops_the_removal_unless_the_runs_may_stay(sweep):
    arguments = ("rm", sweep, "--yes", "--tracking-uri", "http://127.0.0.1:9")
    done = invoke(*arguments)
    assert done.exit_code == 1 and "--keep-runs" in done.stderr and sweep.is_dir()
    assert invoke(*arguments, "--keep-runs").exit_code == 0 and not sweep.exists()


def test_a_server_keeps_deleted_runs(sweep, monkeypatch):
    client, runs = record_in_mlflow(sweep)
    monkeypatch.setattr(deletion, "sqlite_file", lambda uri: None)  # as if the URI were a server's
    done = invoke("rm", sweep, "--yes")
    assert "note: the MLflow server keeps deleted runs" in done.stderr
    assert {client.get_run(run).info.lifecycle_stage for run in runs} == {"deleted"}


def test_a_running_sweep_is_refused(sweep):
    before = files_in(sweep)
    with FolderLock(sweep):
        done = invoke("rm", sweep, "--yes")
    assert (
        done.exit_code != 0 and "is running this sweep" in done.stderr and files_in(sweep) >= before
    )


def test_files_that_sweeps_did_not_write_and_files_outside_stay(sweep, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "mine").write_text("mine")
    (sweep / "notes.txt").write_text("mine")
    (sweep / "exports").symlink_to(outside)
    (sweep / "trials" / "0000" / "files").symlink_to(outside)
    done = invoke("rm", sweep, "--yes")
    assert done.exit_code == 0 and "sweeps did not write notes.txt" in done.stderr
    assert files_in(sweep) == {"notes.txt"} and files_in(outside) == {"mine"}


def test_a_folder_that_is_not_a_sweep_is_refused(tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "mine").write_text("mine")
    done = invoke("rm", tmp_path / "home", "--yes")
    assert done.exit_code == 2 and (tmp_path / "home" / "mine").exists()


@given(st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1))
def test_only_names_of_sweeps_are_its_own(name):
    assert not is_own(f"my {name}") and not is_own(f"{name}.py") and not is_own(f"{name}.csv")


def test_every_file_of_a_sweep_is_its_own(finished_sweep):
    assert [path.name for path in finished_sweep.iterdir() if not is_own(path.name)] == []


# ---- stores


@pytest.fixture
def bucket(tmp_path, monkeypatch):
    """A folder in place of the bucket `s3://bucket`."""
    return folder_as_bucket(
        tmp_path / "bucket", (stores, store_mirror, stored_sweeps, removal), monkeypatch
    )


def in_store(bucket: Path, sweep: Path) -> str:
    """Copy a sweep to the bucket, and return its address."""
    address = f"s3://bucket/{sweep.name}"
    origin = json.loads((sweep / ORIGIN).read_text())
    (sweep / ORIGIN).write_text(json.dumps(origin | {"store": address}))
    shutil.copytree(sweep, bucket / sweep.name)
    return address


def test_a_sweep_in_a_store_is_deleted_there_and_here(bucket, sweep):
    address = in_store(bucket, sweep)
    done = invoke("rm", sweep, "--yes")
    assert (
        done.exit_code == 2
        and "give this address in place of the folder" in done.stderr
        and sweep.is_dir()
    )
    (bucket / "other").mkdir()
    (bucket / "other" / "mine").write_text("mine")
    done = invoke("rm", address, "--dir", sweep.parent, "--yes")
    assert done.exit_code == 0 and f"{address}: " in done.stderr, done.output
    assert not sweep.exists() and files_in(bucket) - {sweep.name} == {"other", "other/mine"}


def test_a_sweep_that_another_machine_runs_is_refused(bucket, sweep):
    address = in_store(bucket, sweep)
    shutil.rmtree(sweep)
    (bucket / sweep.name / DRIVER).write_text(json.dumps({"host": "other", "pid": 1}))
    done = invoke("rm", address, "--yes")
    assert (
        done.exit_code != 0
        and "was running this sweep" in done.stderr
        and (bucket / sweep.name / ORIGIN).exists()
    )


@pytest.mark.integration
def test_an_s3_server_loses_only_the_files_of_the_sweep(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with storage() as server:
        for name in ("made-20260102-120000", "made-20260102-120000-2"):
            folder = made(tmp_path / "elsewhere", name, BEGAN)
            origin = json.loads((folder / ORIGIN).read_text())
            (folder / ORIGIN).write_text(
                json.dumps(origin | {"store": f"s3://bucket/sweeps/{name}"})
            )
            for path in folder.rglob("*"):
                if path.is_file():
                    server.put(f"sweeps/{name}/{path.relative_to(folder).as_posix()}", path)
        server.put("sweeps/made-20260102-120000.txt", b"mine")
        before = set(server.files())
        done = invoke("rm", "made-20260102-120000", "--dir", "s3://bucket/sweeps", "--yes")
        assert done.exit_code == 0, done.output
        assert set(server.files()) == {
            key for key in before if not key.startswith("sweeps/made-20260102-120000/")
        }
