"""The MLflow tracker loses nothing if somebody deletes runs or the server has an accident, and
sends nothing twice.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from sweeps.core.trial import Result, State
from sweeps.study.events import SweepEnded
from sweeps.tracking.mlflow.mlflow_tracker import MlflowTracker, default_uri
from sweeps.tracking.mlflow.run_writer import is_kept
from sweeps.tracking.mlflow.sweep_runs import Destination
from tests.tracking.tracker_events import (
    begin,
    end,
    report,
    reports,
    sweep_result,
    sweep_started,
    trial,
)
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(120),
    pytest.mark.usefixtures("empty_database"),
]
DONE = Result(State.COMPLETE, 0.25, 4, 4)


@pytest.fixture(autouse=True)
def _retry_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweeps.tracking.mlflow.mlflow_tracker.RETRY_EVERY", 0.01)


@pytest.fixture
def client(tmp_path: Path) -> Any:
    from mlflow.tracking import MlflowClient

    return MlflowClient(default_uri(tmp_path))


def tracker_in(folder: Any) -> MlflowTracker:
    return MlflowTracker(Destination(default_uri(folder), folder, "exp", "sweep-1", 1.0))


def history(skip: Any) -> Any:
    """The events of two trials of an earlier driver."""
    for number in {0, 1} - set(skip):
        yield begin(trial(number), 1.0)
        yield report(number, reports(4))
        yield end(number, DONE, 5.0)


def curves(client: Any, tracker: MlflowTracker) -> dict[int, list[int]]:
    return {
        number: [m.step for m in client.get_metric_history(run, "loss")]
        for number, run in tracker.writer.runs.items()
    }


def finish(tracker: MlflowTracker, folder: Any) -> None:
    tracker.handle(SweepEnded(9.0, sweep_result(folder)))
    assert tracker.close()


def test_a_curve_is_thinned_by_its_steps_alone() -> None:
    kept = [step for step in range(1, 20_001) if is_kept(step)]
    assert kept[:999] == list(range(1, 1000)) and len(kept) == 999 + 900 + 101
    assert kept[-2:] == [19_900, 20_000]


def test_resume_sends_deleted_run_of_running_trial_again(client: Any, tmp_path: Path) -> None:
    tracker = tracker_in(tmp_path)
    for number in (0, 1):
        tracker.handle(begin(trial(number), 1.0))
    wait_until(lambda: len(tracker.writer.runs) == 2 and not tracker.writer.left, 60, "the runs")
    client.delete_run(tracker.writer.runs[0])
    for number in (0, 1):
        tracker.handle(report(number, reports(4)))
        tracker.handle(end(number, DONE, 5.0))
    finish(tracker, tmp_path)
    assert tracker.error is not None and "'active' state" in tracker.error
    again = tracker_in(tmp_path)
    again.handle(sweep_started(tmp_path, history=history))
    finish(again, tmp_path)
    assert again.error is None and again.writer.runs[1] == tracker.writer.runs[1]
    assert curves(client, again) == {0: [1, 2, 3, 4], 1: [1, 2, 3, 4]}


def test_a_deleted_experiment_is_an_error_and_no_endless_wait(client: Any, tmp_path: Path) -> None:
    first = tracker_in(tmp_path)
    first.handle(sweep_started(tmp_path))
    finish(first, tmp_path)
    client.delete_experiment(first.writer.experiment_id)
    tracker = tracker_in(tmp_path)
    tracker.handle(sweep_started(tmp_path, history=history))
    finish(tracker, tmp_path)
    assert tracker.error is not None and "'active' state" in tracker.error and not tracker.waiting


def test_a_database_without_tables_is_tried_again_and_no_sql_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sqlalchemy.exc import OperationalError

    from sweeps.tracking.mlflow import run_writer

    errors = [
        OperationalError("SELECT secrets FROM experiments", {}, Exception("no such table: runs")),
        KeyError("run"),
    ]
    shown = []
    plain = run_writer.RunWriter.open

    def open_(self: Any) -> None:
        if errors:
            raise errors.pop(0)
        plain(self)

    monkeypatch.setattr(run_writer.RunWriter, "open", open_)
    monkeypatch.setattr(
        "sweeps.tracking.mlflow.mlflow_tracker.log.warning",
        lambda text, *args: shown.append(text % args),
    )
    tracker = tracker_in(tmp_path)
    tracker.handle(begin(trial(0), 1.0))
    assert tracker.close() and tracker.error is None and list(tracker.writer.runs) == [0]
    assert len(shown) == 1 and "no such table" in shown[0] and "SELECT" not in shown[0]


def test_a_slow_writer_is_not_a_dead_server_and_says_how_much_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow.tracking import MlflowClient

    plain, slow = MlflowClient.log_batch, threading.Event()
    monkeypatch.setattr(
        MlflowClient, "log_batch", lambda *args, **more: (slow.wait(0.4), plain(*args, **more))
    )
    tracker = tracker_in(tmp_path)
    messages: list[str] = []
    tracker.handle(sweep_started(tmp_path))
    for number in range(8):
        tracker.handle(begin(trial(number), 1.0))
    wait_until(lambda: tracker.parent, 60, "the run of the sweep")
    assert tracker.close(3.0, messages.append) and tracker.error is None
    assert (
        "sending runs to MLflow, 9 left" in messages
        and "sending runs to MLflow, 5 left" in messages
    )
