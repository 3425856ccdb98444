"""The tracker in its own process writes everything once, even if the process or the driver is
killed.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sweeps.core.trial import Result, State
from sweeps.study.events import ArtifactSaved, SweepEnded
from sweeps.tracking import Destination, TrackerProcess, default_uri
from tests.tracking.test_mlflow_tracker import check, play
from tests.tracking.tracker_events import begin, end, report, reports, trial
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(120),
    pytest.mark.usefixtures("empty_database"),
]


def started(tmp_path: Path) -> TrackerProcess:
    return TrackerProcess(
        Destination(default_uri(tmp_path), tmp_path, "exp", "sweep-1", 1_700_000_000.0),
        tmp_path / "sweep.log",
    )


def test_events_are_written_by_another_process(tmp_path: Path) -> None:
    from mlflow.tracking import MlflowClient

    tracker = started(tmp_path)
    play(tracker, tmp_path)
    assert tracker.close() and tracker.error is None
    assert tracker._process is not None
    assert tracker._process.poll() == 0 and not tracker._unwritten
    check(MlflowClient(default_uri(tmp_path)), tracker)


@pytest.mark.slow
def test_run_has_system_metrics_and_survives_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow.tracking import MlflowClient

    monkeypatch.setenv("MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL", "0.2")
    tracker = started(tmp_path)
    tracker.handle(begin(trial(7), 1.0))
    wait_until(
        lambda: tracker.parent and not tracker._unwritten, 60, "the first trial to be written"
    )
    parent = tracker.parent
    assert parent is not None
    client = MlflowClient(default_uri(tmp_path))

    def metrics() -> list[str]:
        return [name for name in client.get_run(parent).data.metrics if name.startswith("system/")]

    wait_until(lambda: "system/cpu_utilization_percentage" in metrics(), 30, "system metrics")
    first = tracker._process
    assert first is not None
    first.send_signal(signal.SIGSTOP)  # so that it cannot have read what is said now
    tracker.handle(report(7, reports(3)))
    tracker.handle(end(7, Result(State.COMPLETE, 0.5), 5.0))
    wait_until(lambda: len(tracker._unwritten) == 2, 10, "the news to be sent")
    first.kill()
    wait_until(lambda: tracker._process is not first, 20, "another process")
    assert tracker.close() and tracker.error is None
    assert tracker.parent is not None
    assert client.get_run(tracker.parent).info.status == "RUNNING"  # no event has ended the sweep
    experiment = client.get_experiment_by_name("exp")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id], "tags.`sweeps.kind` = 'trial'")
    assert len(runs) == 1 and runs[0].info.status == "FINISHED"
    assert [m.step for m in client.get_metric_history(runs[0].info.run_id, "loss")] == [1, 2, 3]


def test_a_sweep_that_never_started_creates_no_database(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").unlink()
    tracker = started(tmp_path)
    tracker.handle(SweepEnded(1.0, None))
    assert tracker.close() and tracker.error is None and not (tmp_path / "mlflow.db").exists()


def test_the_process_ignores_the_drivers_signals_and_ends_with_the_driver(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-c",
        "from sweeps.tracking.mlflow.tracker_process import main; main()",
    ]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )
    assert process.stdin is not None and process.stdout is not None
    pickle.dump(Destination("http://127.0.0.1:1", tmp_path, "exp", "sweep-1", 1.0), process.stdin)
    pickle.dump(ArtifactSaved(1.0, "a.txt", "a"), process.stdin)
    process.stdin.flush()
    assert any(b'"waiting": true' in line for line in process.stdout)  # it has begun
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.5)
    process.stdin.close()  # as if the driver were killed
    assert process.wait(20) == 0
    process.stdout.close()


def test_closing_waits_a_bounded_time_for_a_server_that_is_away(tmp_path: Path) -> None:
    tracker = TrackerProcess(
        Destination("http://127.0.0.1:1", tmp_path, "exp", "sweep-1", 0.0), tmp_path / "sweep.log"
    )
    play(tracker, tmp_path)
    assert not tracker.close(1.0)
    assert tracker._process is not None
    tracker._process.wait(10)
    tracker._thread.join(10)
    assert not tracker._thread.is_alive()
