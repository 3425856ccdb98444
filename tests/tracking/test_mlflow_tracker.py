"""The MLflow tracker writes every event once, in batches, although the server is away a while."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sweeps.core.resources import Shape
from sweeps.core.trial import Result, State, Trial
from sweeps.study.events import SweepEnded, TrialPaused
from sweeps.tracking.mlflow.mlflow_tracker import MlflowTracker, default_uri
from sweeps.tracking.mlflow.run_contents import (
    legal_name,
)
from sweeps.tracking.mlflow.sweep_runs import Destination
from tests.tracking.tracker_events import (
    begin,
    end,
    report,
    reports,
    sweep_events,
    sweep_result,
    sweep_started,
    trial,
)
from tests.waiting import wait_until

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("empty_database")]


def play(tracker: MlflowTracker, folder: Path) -> None:
    for event in sweep_events(folder):
        tracker.handle(event)


def check(client: Any, tracker: MlflowTracker) -> None:
    experiment = client.get_experiment_by_name("exp")
    parent = client.get_run(tracker.parent)
    assert parent.info.status == "FINISHED" and parent.info.end_time == 1_700_000_200_000
    assert (
        parent.data.metrics["best"] == 0.25 and parent.data.tags["sweeps.data_fingerprint"] == "abc"
    )
    runs = client.search_runs(
        [experiment.experiment_id], f"tags.`mlflow.parentRunId` = '{tracker.parent}'"
    )
    by_trial = {r.data.tags["sweeps.trial"]: r for r in runs}
    assert len(runs) == len(by_trial) == 4
    shown = {t: (r.data.tags["sweeps.state"], r.info.status) for t, r in by_trial.items()}
    assert shown == {
        "0000": ("COMPLETE", "FINISHED"),
        "0001": ("PRUNED", "FINISHED"),
        "0002": ("FAIL", "FAILED"),
        "0003": ("INTERRUPTED", "KILLED"),
    }
    run = by_trial["0002"]
    assert run.data.tags["sweeps.error"] == "Traceback: no"
    assert run.data.params["params.eta"] == "0.1" and run.data.params["params.nested.a"] == "[1, 2]"
    assert (
        run.data.params["scaling.num_workers"] == "2" and run.data.params["preprocessor"] == "Std"
    )
    history = client.get_metric_history(run.info.run_id, "loss")
    assert [(m.step, m.value) for m in history] == [(1, 1.0), (2, 0.5), (3, 1 / 3)]
    assert {
        t: r.data.metrics.get(legal_name("final/valid-auc@5")) for t, r in by_trial.items()
    } == {
        "0000": 0.75,
        "0001": None,
        "0002": None,
        "0003": None,
    }
    assert (
        run.data.metrics["objective"],
        run.data.metrics["steps"],
        run.data.metrics["seconds"],
    ) == (0.25, 3.0, 1.5)


@pytest.mark.integration
def test_events_that_are_written_twice_change_nothing(tmp_path: Path) -> None:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(default_uri(tmp_path))
    for _ in range(2):
        tracker = MlflowTracker(
            Destination(default_uri(tmp_path), tmp_path, "exp", "sweep-1", 1_700_000_000.0)
        )
        play(tracker, tmp_path)
        assert tracker.close() and tracker.error is None
        check(client, tracker)
    experiment = client.get_experiment_by_name("exp")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    assert len(runs) == 5


@pytest.mark.integration
@pytest.mark.parametrize("began", [1_763_836_404.1237, 1_763_836_404.9996])
def test_a_resumed_sweep_finds_its_run_by_the_millisecond_it_started(
    tmp_path: Path, began: float
) -> None:
    parents = []
    for at in (began, round(began, 3)):  # which is what its folder keeps
        tracker = MlflowTracker(Destination(default_uri(tmp_path), tmp_path, "exp", "sweep-1", at))
        tracker.handle(begin(trial(0), 1.0))
        assert tracker.close() and tracker.error is None
        parents.append(tracker.parent)
    assert parents[0] == parents[1]


@pytest.mark.integration
def test_a_study_that_cannot_be_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweeps.tracking.mlflow.mlflow_tracker.RETRY_EVERY", 0.01)
    tracker, tried = (
        MlflowTracker(Destination(default_uri(tmp_path), tmp_path, "exp", "sweep-1", 1.0)),
        [],
    )

    def history(skip: Any) -> Iterator[Any]:
        tried.append(1)
        if len(tried) < 3:
            raise RuntimeError("the database went away")
        yield begin(trial(0), 1.0)
        yield report(0, reports(2))
        yield end(0, Result(State.COMPLETE, 0.5, 2, 2), 2.0)

    tracker.handle(sweep_started(tmp_path, history=history))
    assert tracker.close() and tracker.error is None and len(tried) == 3


@pytest.mark.integration
def test_a_paused_trial_is_scheduled_until_it_continues(tmp_path: Path) -> None:
    """Trial 0 stays paused. Trial 1 continues before its pause is written, and trial 2 after it.

    An earlier driver paused trial 3.
    """
    from mlflow.tracking import MlflowClient

    def states() -> dict[str, tuple[str, str | None]]:
        runs = client.search_runs(["1"], "tags.`sweeps.kind` = 'trial'")
        return {
            r.data.tags["sweeps.trial"]: (r.info.status, r.data.tags.get("sweeps.state"))
            for r in runs
        }

    def history(skip: Any) -> Iterator[Any]:
        yield begin(trial(3))
        yield TrialPaused(1_700_000_050.0, 3, 2)

    tracker, client = (
        MlflowTracker(Destination(default_uri(tmp_path), tmp_path, "exp", "sweep-1", 1.0)),
        MlflowClient(default_uri(tmp_path)),
    )
    tracker.handle(sweep_started(tmp_path, history=history))
    for number in range(3):
        tracker.handle(begin(trial(number), 1_700_000_000.0))
        tracker.handle(TrialPaused(1_700_000_100.0, number, 2))
    tracker.handle(begin(trial(1), 1_700_000_200.0))
    expected = {
        "0000": ("SCHEDULED", "PAUSED"),
        "0001": ("RUNNING", "RUNNING"),
        "0003": ("SCHEDULED", "PAUSED"),
    }
    wait_until(
        lambda: states() == {**expected, "0002": ("SCHEDULED", "PAUSED")},
        60,
        "the pauses to be written",
    )
    tracker.handle(begin(trial(2), 1_700_000_300.0))
    wait_until(
        lambda: states() == {**expected, "0002": ("RUNNING", "RUNNING")}, 60, "trial 2 to continue"
    )
    for number in range(4):
        tracker.handle(begin(trial(number), 1_700_000_400.0))
        tracker.handle(end(number, Result(State.PRUNED, 0.5, 2, 2), 1_700_000_400.0))
    assert tracker.close() and tracker.error is None
    assert states() == {f"{number:04d}": ("FINISHED", "PRUNED") for number in range(4)}


@pytest.mark.integration
@pytest.mark.parametrize("last", ["reports", "end"])
def test_a_second_driver_sends_what_the_first_did_not(tmp_path: Path, last: str) -> None:
    """Two trials ended, one end was lost, one trial was never sent, and one still runs.

    MLflow has each of them once.
    """
    from mlflow.tracking import MlflowClient

    done = Result(State.COMPLETE, 1 / 3, 3, 3, None, None, 1.5)
    first = MlflowTracker(Destination(default_uri(tmp_path), tmp_path, "exp", "sweep-1", 1.0))
    for number in (0, 1, 3):
        first.handle(begin(trial(number), 1_700_000_000.0))
        first.handle(report(number, reports(2 if number == 3 else 3)))
        if number == 0 or (number == 1 and last == "end"):
            first.handle(end(number, done, 1_700_000_100.0))
    assert first.close()
    asked: list[int] = []

    def history(skip: Any) -> Iterator[Any]:
        asked.extend(number for number in range(4) if number not in skip)
        for number in asked:
            stands = Result(State.RUNNING, 0.5, 2, 2) if number == 3 else done
            yield begin(trial(number))
            yield report(number, reports(2 if number == 3 else 3))
            yield end(number, stands)

    again = MlflowTracker(Destination(default_uri(tmp_path), tmp_path, "exp", "sweep-1", 1.0))
    again.handle(sweep_started(tmp_path, history=history))
    again.handle(begin(trial(3), 1_700_000_200.0))
    again.handle(report(3, reports(1, start=3)))
    again.handle(end(3, done, 1_700_000_300.0))
    again.handle(SweepEnded(1_700_000_400.0, sweep_result(tmp_path)))
    assert again.close() and again.error is None
    assert asked == ([2, 3] if last == "end" else [1, 2, 3])
    client = MlflowClient(default_uri(tmp_path))
    experiment = client.get_experiment_by_name("exp")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    assert len(runs) == 5 and {r.info.status for r in runs} == {"FINISHED"}
    for run in (r for r in runs if "sweeps.trial" in r.data.tags):
        losses = client.get_metric_history(run.info.run_id, "loss")
        assert [(m.step, m.value) for m in losses] == [
            (1, 1.0),
            (2, 0.5),
            (3, 1 / 3),
        ] and run.data.tags["sweeps.state"] == "COMPLETE"
        assert len(client.get_metric_history(run.info.run_id, "objective")) == 1


@pytest.mark.integration
def test_long_curves_and_many_parameters_go_in_batches(tmp_path: Path) -> None:
    from mlflow.tracking import MlflowClient

    tracker = MlflowTracker(Destination(default_uri(tmp_path), tmp_path, "exp", "sweep-1", 1.0))
    big = Trial(0, {f"p{i}": i for i in range(250)}, (), Shape(1, (("CPU", 1.0),)), 7, {})
    tracker.handle(begin(big, 1.0))
    tracker.handle(report(0, reports(2500)))
    assert tracker.close() and tracker.error is None
    client = MlflowClient(default_uri(tmp_path))
    run = client.get_run(tracker.writer.runs[0])
    assert len([p for p in run.data.params if p.startswith("params.")]) == 250
    steps = [m.step for m in client.get_metric_history(run.info.run_id, "loss")]
    assert sorted(steps) == [*range(1, 1000), *range(1000, 2501, 10)]
