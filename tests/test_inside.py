"""A loop in a whole sweep logs to MLflow itself, and keeps files in its trial's folder."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import sweeps
from sweeps.core.trial import State
from sweeps.study import record_reader
from sweeps.tracking import MlflowTracker
from tests.commands import mlflow_database, space_of

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(240)]

POINTS = (
    "search.initial_points=[{params.x: 0.25}, {params.x: 0.75}, {params.x: 0.95}]",
    "limits.max_trials=3",
)


def runs_of(result: Any) -> Any:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(result.mlflow["tracking_uri"])
    # other tests of this process may share the database
    mine = f"tags.`mlflow.parentRunId` = '{result.mlflow['parent_run']}'"
    experiment = client.get_experiment_by_name("own")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id], mine)
    return client, {run.info.run_name: run for run in runs}


def test_what_a_loop_logs_and_keeps_lands_in_its_trials_run_and_folder(
    clean_ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        "MLFLOW_TRACKING_URI", f"sqlite:///{shutil.copy(mlflow_database(), tmp_path)}"
    )
    over = (
        *POINTS,
        "space.scaling={num_workers: 2}",
        "scheduler={name: asha, max_t: 5, grace_period: 3}",
    )
    result = sweeps.run(space_of(tmp_path, "logs_to_mlflow"), dir=tmp_path / "runs", overrides=over)
    client, runs = runs_of(result)
    assert sorted(runs) == ["0000", "0001", "0002"]
    everything = client.search_runs([client.get_experiment_by_name("own").experiment_id])
    assert len(everything) == 4, "no run beside those of the trials and of the sweep"
    study = record_reader.read(result.dir)
    assert study is not None and {t.result.state.name for t in study.trials} > {"COMPLETE"}
    for trial in study.trials:
        run = runs[trial.id]
        ended = {"COMPLETE": "FINISHED", "PRUNED": "FINISHED", "FAIL": "FAILED"}
        assert run.info.status == ended[trial.result.state.name]
        ranks = (
            (0, 1) if trial.result.state is State.COMPLETE else (0,)
        )  # a trial may be stopped before its second rank has logged
        assert {run.data.metrics[f"rank-{rank}"] for rank in ranks} == {
            trial.params["x"]
        } and run.data.params["batch"] == "32"
        assert "objective" in run.data.metrics and run.data.tags["sweeps.trial"] == trial.id
        assert {f.path for f in client.list_artifacts(run.info.run_id, "files/traces")} == {
            f"files/traces/rank-{r}.json" for r in (0, 1)
        }
        kept = result.dir / "trials" / trial.id / "files" / "traces"
        assert [json.loads((kept / f"rank-{rank}.json").read_text()) for rank in (0, 1)] == [
            trial.params["x"]
        ] * 2
    assert not os.path.exists("mlflow.db")


@pytest.mark.extended
def test_unused_folder_is_not_kept_and_mlflow_not_imported(clean_ray: Any, tmp_path: Path) -> None:
    result = sweeps.run(
        space_of(tmp_path, "asks_for_its_folder", limits="max_trials: 2, max_concurrent_trials: 1"),
        dir=tmp_path / "runs",
    )
    client, runs = runs_of(result)
    for trial in ("0000", "0001"):
        assert not (result.dir / "trials" / trial / "files").exists()
        assert client.list_artifacts(runs[trial].info.run_id) == []
        assert runs[trial].data.metrics["imported"] == 0.0


@pytest.mark.extended
def test_without_a_server_the_sweep_and_its_loops_continue(
    clean_ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # in place of a minute, which a server that restarts may need
    monkeypatch.setattr(
        MlflowTracker,
        "close",
        lambda self, *_, close=MlflowTracker.close: close(self, 1.0),
    )
    file = space_of(tmp_path, "logs_to_mlflow", limits="max_trials: 1", x="0.25")
    result = sweeps.run(file, dir=tmp_path / "runs", tracking_uri="http://127.0.0.1:1")
    assert result.trials["completed"] == 1
    log = (result.dir / "trials" / "0000" / "logs" / "rank-0.log").read_text()
    assert "--- mlflow.start_run: MlflowException: " in log
