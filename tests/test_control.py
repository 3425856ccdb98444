"""All commands to one running sweep: watch, pause, enqueue, stop a trial, resume, stop."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import sweeps
from sweeps.core.trial import State
from sweeps.stored.sweep_lookup import find
from sweeps.study import record_reader
from sweeps.study.record_reader import STOPPED
from sweeps.study.states import TrialState
from tests.commands import command, invoke, space_of
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


def trials_of(folder: Path) -> list[TrialState]:
    study = record_reader.read(folder)
    return list(study.trials) if study is not None else []


@contextmanager
def running(file: Path, root: Path) -> Iterator[Future[sweeps.SweepResult]]:
    """Run the sweep of `file` in a thread, and stop it if the test fails before its end.

    The shared Ray has its CPUs back then, so later tests do not fail, too.
    """
    driver = ThreadPoolExecutor(1).submit(sweeps.run, file, dir=root)
    try:
        yield driver
    finally:
        if not driver.done():
            command("stop", find("own", root)).communicate(timeout=60)
            driver.exception(60)


def test_a_running_sweep_obeys_commands_and_records_them(clean_ray: Any, tmp_path: Path) -> None:
    file = space_of(tmp_path, "held", limits="max_trials: 6, max_concurrent_trials: 2", data=False)
    file.write_text(file.read_text() + "trackers: [mlflow, jsonl]\n")
    with running(file, tmp_path / "runs") as driver:
        folder, result = obeyed(driver, tmp_path)
    check_trackers(folder, result)


def obeyed(driver: Future[sweeps.SweepResult], tmp_path: Path) -> tuple[Path, sweeps.SweepResult]:
    """Send all commands to the sweep, check their effects, and return its folder and result."""
    root, go = tmp_path / "runs", tmp_path / "go"
    wait_until(
        lambda: (tmp_path / "own-0000.two").exists() and (tmp_path / "own-0001.two").exists(),
        120,
        "two trials to wait",
    )
    folder = find("own", root)

    def run(*args: object, code: int = 0) -> str:
        done = invoke(args[0], folder, *args[1:])
        assert done.exit_code == code, done.output
        return done.output.removeprefix(f"{folder.name}: ").strip()

    assert run("pause") == "paused; 2 trials are still running, and no new trial starts"
    # The stages of trials come from the pool, some time after the trials' reports.
    wait_until(lambda: run("show").startswith("paused; 2 running of 6"), 30, "two running trials")
    assert (
        run("enqueue", "--params", "x=0.25")
        == "trial 0002 is the next trial to start, when the sweep is resumed"
    )
    assert run("enqueue", "--params", "x=7,y=1", code=2).splitlines() == [
        "--params: params.x: must be within its bounds, 0 to 1, got 7",
        "--params: the space has no dimension `y`; valid: x",
    ]
    assert run("stop", "0") == "trial 0000 is stopped, after 2 steps"
    assert "has ended already (PRUNED)" in run("stop", "0", code=1)
    go.touch()
    wait_until(
        lambda: [t.result.state for t in trials_of(folder)] == [State.PRUNED, State.COMPLETE],
        60,
        "both trials to end",
    )
    go.unlink()
    assert run("resume") == "running again; 4 trials left to start"
    wait_until(
        lambda: (tmp_path / "own-0002.two").exists() and (tmp_path / "own-0003.two").exists(),
        60,
        "two more trials to wait",
    )
    # A process of its own: at its end, the sweep redirects what this process prints.
    out, err = command("stop", folder).communicate(timeout=60)
    assert out == f"{folder.name}: stopped; 1 completed, 1 pruned, 2 interrupted\n", err
    result = driver.result(60)
    assert result.reason == "interrupted"
    assert "no process runs this sweep (interrupted), so it takes no commands" in run(
        "pause", code=1
    )

    trials = trials_of(folder)
    assert [(t.trial.enqueued, t.reason) for t in trials] == [
        (False, STOPPED),
        (False, None),
        (True, None),
        (False, None),
    ]
    assert trials[2].params["x"] == 0.25
    assert "the sweep was stopped by the command `sweeps stop`" in result.notes
    assert "- `sweeps enqueue`: 0002\n- `sweeps stop`: 0000" in (folder / "report.md").read_text()
    assert f"PRUNED ({STOPPED})" in run(
        "show", "--trial", "0"
    ) and "the command `sweeps enqueue`" in run("show", "--trial", "2")
    assert "ENQUEUED" in run("show")
    return folder, result


def check_trackers(folder: Path, result: sweeps.SweepResult) -> None:
    """Check that MLflow and the JSON lines have the cause of the stopped trial and the origin of
    the enqueued one.
    """
    from mlflow.tracking import MlflowClient

    client = MlflowClient(result.mlflow["tracking_uri"])
    experiment = client.get_experiment_by_name(result.mlflow["experiment"])
    assert experiment is not None
    runs = client.search_runs(
        [experiment.experiment_id], f"tags.`mlflow.parentRunId` = '{result.mlflow['parent_run']}'"
    )
    tags = {run.data.tags["sweeps.trial"]: run.data.tags for run in runs}
    assert tags["0000"]["sweeps.reason"] == STOPPED and tags["0002"]["sweeps.enqueued"] == "true"
    assert "sweeps.reason" not in tags["0001"] and "sweeps.enqueued" not in tags["0001"]
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    assert {e["trial"]: e["reason"] for e in events if e["type"] == "TrialEnded"}["0000"] == STOPPED
    assert {e["trial"]: e["enqueued"] for e in events if e["type"] == "TrialStarted"}[
        "0002"
    ] is True
