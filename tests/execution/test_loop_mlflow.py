"""A loop logs to the MLflow run of its trial. An absent server fails no trial."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sweeps.core.resources import Shape
from sweeps.core.trial import Result, State, Trial
from sweeps.execution.isolation.process_reset import isolate_trial
from sweeps.execution.worker import loop_mlflow
from sweeps.execution.worker.loop_mlflow import TrialRun, log_to
from sweeps.tracking.mlflow.mlflow_tracker import MlflowTracker, default_uri
from sweeps.tracking.mlflow.sweep_runs import Destination
from tests.commands import REPO, mlflow_database
from tests.tracking.tracker_events import begin, end
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(120)


class Sweep:
    """A sweep of two trials whose runs its tracker has made, and a loop that is run in this
    process.
    """

    def __init__(self, root: Any) -> None:
        from mlflow.tracking import MlflowClient

        shutil.copy(mlflow_database(), root)
        self.root, self.uri = root, default_uri(root)
        self.client = MlflowClient(self.uri)
        self.tracker = MlflowTracker(Destination(self.uri, root, "exp", "sweep-1", 1.0))
        for number in (0, 1):
            self.folder(number).mkdir(parents=True)
            shape = Shape(1, (("CPU", 1.0),))
            trial = Trial(number, {}, (), shape, 7, {"lr": 0.1})
            self.tracker.handle(begin(trial, 1.0))

    def folder(self, number: Any) -> Any:
        return self.root / "sweep-1" / "trials" / f"{number:04d}"

    def file(self, number: Any) -> Any:
        return self.folder(number) / "mlflow.json"

    def id(self, number: Any) -> Any:
        return json.loads(self.file(number).read_text())["run_id"]

    def run(self, number: Any) -> Any:
        return self.client.get_run(self.id(number))

    def loop(self, loop: Any, number: int = 0, tracking: str = "") -> Any:
        """Run a loop as a rank does."""
        run = TrialRun(tracking or self.uri, self.folder(number), 0)
        with isolate_trial(), log_to(run):
            return loop()


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    import mlflow

    monkeypatch.setenv("MLFLOW_RUN_ID", "0" * 32)  # of the process that started the sweep
    sweep = Sweep(tmp_path)
    loop_mlflow.prepare(sweep.uri)
    # A thread that imports while another calls `mlflow.autolog` can stop both for ever.
    wait_until(lambda: all(sweep.file(number).exists() for number in (0, 1)), 60, "both runs")
    yield sweep
    sweep.tracker.close(5.0)
    mlflow.set_tracking_uri(None)  # type: ignore[arg-type]


def test_logs_of_loop_go_to_the_run_of_its_trial(sweep: Any) -> None:
    import mlflow

    def loop() -> Any:
        assert mlflow.active_run() is None
        mlflow.log_metric("first", 1.0)  # which starts a run
        with mlflow.start_run(nested=True):
            mlflow.log_metric("of a child", 1.0)
        mlflow.log_params({"batch": 32})
        mlflow.log_text("hello", "note.txt")
        active = mlflow.active_run()
        assert active is not None
        return active.info.run_id  # The run is left active.

    assert [sweep.loop(loop, number) for number in (0, 1)] == [sweep.id(0), sweep.id(1)]
    assert mlflow.active_run() is None
    for number in (0, 1):
        data = sweep.run(number).data
        assert (data.metrics, data.params["batch"]) == ({"first": 1.0}, "32")
        files = sweep.client.list_artifacts(sweep.id(number))
        assert [file.path for file in files] == ["note.txt"]


def test_the_status_of_the_sweep_counts_after_the_loop_has_ended_its_run(sweep: Any) -> None:
    import mlflow

    def loop() -> None:
        with mlflow.start_run():
            mlflow.log_metric("loss", 0.5)

    sweep.loop(loop)
    assert sweep.run(0).info.status == "FINISHED"
    sweep.tracker.handle(end(0, Result(State.FAIL, None), 2.0))
    sweep.tracker.close(20.0)
    assert sweep.run(0).info.status == "FAILED"


def test_a_loop_may_select_another_experiment_or_server(sweep: Any, tmp_path: Path) -> None:
    import mlflow

    (tmp_path / "own").mkdir()
    own = f"sqlite:///{shutil.copy(mlflow_database(), tmp_path / 'own')}"

    def elsewhere() -> Any:
        mlflow.set_tracking_uri(own)
        return mlflow.start_run().info.run_id

    def another_experiment() -> Any:
        mlflow.set_experiment("mine")
        return mlflow.start_run().info

    def the_same() -> Any:
        mlflow.set_tracking_uri(sweep.uri)
        mlflow.set_experiment("exp")
        return mlflow.start_run().info.run_id

    assert mlflow.MlflowClient(own).get_run(sweep.loop(elsewhere)).info.status == "FINISHED"
    assert sweep.loop(another_experiment).experiment_id not in (
        "0",
        sweep.run(0).info.experiment_id,
    )
    assert sweep.loop(the_same, 1) == sweep.id(1)


def test_autolog_logs_to_the_trials_run(sweep: Any) -> None:
    import mlflow
    import sklearn.linear_model

    def loop() -> None:
        mlflow.sklearn.autolog(log_models=False, silent=True)
        sklearn.linear_model.Ridge(alpha=0.25).fit([[0.0], [1.0], [2.0]], [0.0, 1.0, 2.0])

    sweep.loop(loop)
    mlflow.sklearn.autolog(disable=True)
    assert sweep.run(0).data.params["alpha"] == "0.25"


def test_an_error_of_mlflow_is_a_line_in_the_log(
    sweep: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    import mlflow

    def loop() -> None:
        mlflow.start_run()
        mlflow.log_param("lr", 0.2)  # The trial has logged 0.1.
        mlflow.log_param("lr", 0.2)
        mlflow.log_metric("loss", 0.5)

    sweep.loop(loop)
    assert (sweep.run(0).data.params["lr"], sweep.run(0).data.metrics) == ("0.1", {"loss": 0.5})
    said = capfd.readouterr().err
    assert said.count("--- mlflow.log_param: MlflowException: ") == 1


def a_loop() -> Any:
    import mlflow

    with mlflow.start_run() as run:
        mlflow.log_metric("loss", 0.5)
        mlflow.set_tag("team", "a")
    return run.info.run_id


def test_a_server_that_is_away_fails_no_trial(
    sweep: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    began = time.monotonic()
    assert sweep.loop(a_loop, tracking="http://127.0.0.1:1") == ""
    assert sweep.loop(a_loop, tracking="postgresql://me@127.0.0.1:1/runs") == ""
    assert time.monotonic() - began < 60
    said = capfd.readouterr().err
    assert "--- mlflow.start_run: MlflowException: " in said
    assert "--- MLflow's server does not answer; what the loop logs is lost" in said
    assert sweep.loop(a_loop) == sweep.id(0)


@pytest.mark.slow
def test_a_locked_database_fails_no_trial(sweep: Any, capfd: pytest.CaptureFixture[str]) -> None:
    database = sqlite3.connect(sweep.uri.removeprefix("sqlite:///"), isolation_level=None)
    database.execute("begin exclusive")
    sweep.loop(a_loop)
    database.close()
    assert "locked" in capfd.readouterr().err


def test_a_refit_has_a_run_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    import mlflow

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    mlflow.set_tracking_uri(None)  # type: ignore[arg-type]
    with isolate_trial(), log_to(TrialRun(None, tmp_path, 0)):
        run = a_loop()
    assert mlflow.MlflowClient(f"sqlite:///{tmp_path}/mlflow-0.db").get_run(run)


@pytest.mark.integration
def test_a_loop_that_is_the_first_to_import_mlflow_logs_to_the_trials_run(sweep: Any) -> None:
    code = f"""
import sys
from sweeps.execution.worker import loop_mlflow
loop_mlflow.prepare({sweep.uri!r})
run = loop_mlflow.TrialRun({sweep.uri!r}, {str(sweep.folder(0))!r}, 0)
with loop_mlflow.log_to(run):
    pass
assert "mlflow" not in sys.modules and "sweeps.space" not in sys.modules
with loop_mlflow.log_to(run):
    from mlflow import log_metric, start_run
    with start_run():
        log_metric("loss", 0.5)
"""
    environment = {**os.environ, "PYTHONPATH": str(REPO)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, timeout=100)
    assert sweep.run(0).data.metrics == {"loss": 0.5}
