"""The MLflow tracker writes every event once, in batches, although the server is away a while."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

from sweeps.core.resources import Shape
from sweeps.core.trial import Report, Result, State, Trial
from sweeps.space import Step, load
from sweeps.study.events import ArtifactSaved, SweepEnded, SweepStarted, TrialPaused
from sweeps.tracking.mlflow.mlflow_tracker import MlflowTracker, default_uri
from sweeps.tracking.mlflow.run_contents import (
    datasets,
    description,
    legal_name,
    trial_params,
)
from sweeps.tracking.mlflow.sweep_runs import Destination
from tests.sweep_report.report_data import SPACE, space_in
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


def check(client, tracker: MlflowTracker) -> None:
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
def test_events_that_are_written_twice_change_nothing(tmp_path):
    from mlflow.tracking import MlflowClient

    client = MlflowClient(default_uri(tmp_path))
    for _ in range(2):
        tracker = MlflowTracker(
            Destination(default_uri(tmp_path), tmp_path, "exp", "sweep-1", 1_700_000_000.0)
        )
        play(tracker, tmp_path)
        assert tracker.close() and tracker.error is None
        check(client, tracker)
    runs = client.search_runs([client.get_experiment_by_name("exp").experiment_id])
    assert len(runs) == 5


@pytest.mark.integration
@pytest.mark.parametrize("began", [1_763_836_404.1237, 1_763_836_404.9996])
def test_a_resumed_sweep_finds_its_run_by_the_millisecond_it_started(tmp_path, began):
    parents = []
    for at in (began, round(began, 3)):  # which is what its folder keeps
        tracker = MlflowTracker(Destination(default_uri(tmp_path), tmp_path, "exp", "sweep-1", at))
        tracker.handle(begin(trial(0), 1.0))
        assert tracker.close() and tracker.error is None
        parents.append(tracker.parent)
    assert parents[0] == parents[1]


@pytest.mark.integration
def test_a_study_that_cannot_be_read_is_read_again(tmp_path, monkeypatch):
    monkeypatch.setattr("sweeps.tracking.mlflow.mlflow_tracker.RETRY_EVERY", 0.01)
    tracker, tried = (
        MlflowTracker(Destination(default_uri(tmp_path), tmp_path, "exp", "sweep-1", 1.0)),
        [],
    )

    def history(skip):
        tried.append(1)
        if len(tried) < 3:
            raise RuntimeError("the database went away")
        yield begin(trial(0), 1.0)
        yield report(0, reports(2))
        yield end(0, Result(State.COMPLETE, 0.5, 2, 2), 2.0)

    tracker.handle(sweep_started(tmp_path, history=history))
    assert tracker.close() and tracker.error is None and len(tried) == 3


@pytest.mark.integration
def test_a_paused_trial_is_scheduled_until_it_continues(tmp_path):
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

    def history(skip):
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
def test_a_second_driver_sends_what_the_first_did_not(tmp_path, last):
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
    asked = []

    def history(skip):
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
    runs = client.search_runs([client.get_experiment_by_name("exp").experiment_id])
    assert len(runs) == 5 and {r.info.status for r in runs} == {"FINISHED"}
    for run in (r for r in runs if "sweeps.trial" in r.data.tags):
        history = client.get_metric_history(run.info.run_id, "loss")
        assert [(m.step, m.value) for m in history] == [
            (1, 1.0),
            (2, 0.5),
            (3, 1 / 3),
        ] and run.data.tags["sweeps.state"] == "COMPLETE"
        assert len(client.get_metric_history(run.info.run_id, "objective")) == 1


@pytest.mark.integration
def test_long_curves_and_many_parameters_go_in_batches(tmp_path):
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


@pytest.mark.integration
def test_files_are_logged_when_the_trial_ends(tmp_path):
    from mlflow.tracking import MlflowClient

    client, files = (
        MlflowClient(default_uri(tmp_path)),
        tmp_path / "sweep-1" / "trials" / "0001" / "files",
    )
    (files / "traces").mkdir(parents=True)
    (files / "traces" / "one.json").write_text("1")
    (tmp_path / "secret").touch()
    (files / "traces" / "link.json").symlink_to(tmp_path / "secret")
    tracker = MlflowTracker(Destination(default_uri(tmp_path), tmp_path, "exp", "sweep-1", 1.0))
    for number in (0, 1, 2):
        tracker.handle(begin(trial(number), 1.0))
    for number, state in ((0, State.COMPLETE), (1, State.PRUNED), (2, State.RUNNING)):
        tracker.handle(end(number, Result(state, 0.25), 2.0))
    run = wait_until(
        lambda: (
            (files.parent / "mlflow.json").exists()
            and json.loads((files.parent / "mlflow.json").read_text())
        ),
        60,
        "a run",
    )
    assert (run["tracking_uri"], run["run_id"]) == (default_uri(tmp_path), tracker.writer.runs[1])

    def there() -> dict[str, str]:
        files = client.list_artifacts(run["run_id"], "files/traces")
        return {
            file.path: Path(client.download_artifacts(run["run_id"], file.path)).read_text()
            for file in files
        }

    wait_until(lambda: there() == {"files/traces/one.json": "1"}, 60, "the file")
    tracker.handle(SweepEnded(3.0, sweep_result(tmp_path)))
    assert tracker.close() and tracker.error is None
    assert (
        not client.list_artifacts(tracker.writer.runs[0])
        and not (tmp_path / "sweep-1" / "trials" / "0000").exists()
    )


def test_text_that_cannot_be_encoded_is_escaped(tmp_path):
    from mlflow.tracking import MlflowClient

    bad = "caf\udce9"
    tracker = MlflowTracker(Destination(default_uri(tmp_path), tmp_path, "exp", "sweep-1", 1.0))
    tracker.handle(SweepStarted(1.0, space_in(tmp_path), Path(bad), bad))
    tracker.handle(ArtifactSaved(1.0, "environment.json", bad))
    for number, error in ((0, bad), (1, None)):
        tracker.handle(begin(dataclasses.replace(trial(number), params={bad: bad}), 1.0))
        tracker.handle(report(number, (Report(1, {bad: 1.0}, 2.0),)))
        tracker.handle(end(number, Result(State.FAIL, 0.5, error=error), 3.0))
    tracker.handle(ArtifactSaved(4.0, "report.html", bad))
    tracker.handle(SweepEnded(4.0, sweep_result(tmp_path), trial(0), f"# {bad}\n\n{bad}"))
    assert tracker.close() and tracker.error is None
    client = MlflowClient(default_uri(tmp_path))
    run, parent = client.get_run(tracker.writer.runs[0]), client.get_run(tracker.parent)
    assert (
        run.data.tags["sweeps.error"] == "caf\\udce9" and run.data.metrics[legal_name(bad)] == 1.0
    )
    assert run.data.params[legal_name(f"params.{bad}")] == "caf\\udce9"
    assert parent.data.tags["sweeps.dir"] == "caf\\udce9"
    assert [
        client.get_run(r).info.status for r in (*tracker.writer.runs.values(), tracker.parent)
    ] == ["FAILED", "FAILED", "FINISHED"]


@pytest.mark.integration
def test_the_parent_run_shows_the_settings_and_the_result(tmp_path):
    from mlflow.tracking import MlflowClient

    space = space_in(tmp_path)
    for seed in (0, 1):  # of a sweep that goes on; MLflow lets no parameter be changed
        tracker = MlflowTracker(Destination(default_uri(tmp_path), tmp_path, "exp", "sweep-1", 1.0))
        tracker.handle(
            sweep_started(
                tmp_path,
                dataclasses.replace(space, search=dataclasses.replace(space.search, seed=seed)),
            )
        )
        tracker.handle(begin(trial(3), 1.0))
        tracker.handle(end(3, Result(State.COMPLETE, 0.5, 3, 3, None, None, 1.5), 2.0))
        markdown = "# sweep-1\n\nThe best.\n\nMore.\n\n## Space file\n\nlong"
        tracker.handle(ArtifactSaved(3.0, "report.md", markdown))
        tracker.handle(ArtifactSaved(3.0, "report.html", "<html>"))
        tracker.handle(SweepEnded(3.0, sweep_result(tmp_path), trial(3), markdown))
        assert tracker.close() and tracker.error is None
    client = MlflowClient(default_uri(tmp_path))
    experiment, parent = client.get_experiment_by_name("exp"), client.get_run(tracker.parent)
    assert experiment.tags["mlflow.experimentKind"] == "custom_model_development"
    settings = parent.data.params
    assert (settings["search.seed"], settings["objective.goal"], settings["scheduler.max_t"]) == (
        "0",
        "maximize",
        "50",
    )
    tags, run = parent.data.tags, tracker.writer.runs[3]
    assert tags["sweeps.best_run"] == run
    note = tags["mlflow.note.content"].split("\n\n")
    assert note[1:] == ["The best.", "More."]
    links = re.findall(r"\[(.*?)\]\((.*?)\)", note[0])
    assert [text for text, _ in links] == [
        "Trial 0003",
        "All trials, best first",
        "Report with figures",
        "Space file",
    ]
    assert all(
        link.startswith(f"#/experiments/{experiment.experiment_id}/runs") for _, link in links
    )
    assert {a.path for a in client.list_artifacts(tracker.parent)} == {
        "report.md",
        "report.html",
        "space.yaml",
    }


def test_a_long_report_is_cut_at_a_line():
    short = description("# x\n\nfirst\n\nrest", {"a": "#/b"})
    assert short == "[a](#/b)\n\nfirst\n\nrest"
    long = description("# x\n\nfirst\n\n" + "line\n" * 3000, {"a": "#/b"})
    assert 7900 < len(long) <= 8000
    assert long.endswith("line\n\nThe rest is in the artifact `report.md`.\n")


def test_the_preprocessor_parameter_groups_trials():
    step = Step("features:Clip", None, {"quantile": 0.99})
    tuned = dataclasses.replace(
        trial(0), preprocessor=(step,), labels={"preprocessor.0.quantile": 0.99}
    )
    logged = trial_params(tuned)
    assert logged["preprocessor"] == "features:Clip" and logged["preprocessor.0.quantile"] == "0.99"
    assert trial_params(dataclasses.replace(tuned, preprocessor=()))["preprocessor"] == "none"
    assert trial_params(trial(0))["preprocessor"] == "Std"


def test_a_dimension_inside_an_option_is_logged_once():
    labels = {
        "params.optimizer": "sgd",
        "params.optimizer.choice.0.momentum": 0.3,
        "params.eta": 0.01,
    }
    tuned = dataclasses.replace(
        trial(0), params={"eta": 0.01, "optimizer": {"name": "sgd", "momentum": 0.3}}, labels=labels
    )
    logged = trial_params(tuned)
    assert {name: value for name, value in logged.items() if name.startswith("params.")} == {
        "params.eta": "0.01",
        "params.optimizer": "sgd",
        "params.optimizer.name": "sgd",
        "params.optimizer.choice.0.momentum": "0.3",
    }


@pytest.mark.parametrize(
    ("train", "name", "kind", "source"),
    [
        ("sklearn:wine", "sklearn:wine", "code", {"uri": "sklearn:wine"}),
        (
            "hdfs://me:secret@host/rows.csv",
            "rows.csv",
            "hdfs",
            {"uri": "hdfs://me:***@host/rows.csv"},
        ),
        ("data/rows.csv", "rows.csv", "local", {"uri": "data/rows.csv"}),
    ],
)
def test_the_data_set_is_an_input_of_mlflow(tmp_path, train, name, kind, source):
    text = SPACE.replace('"sklearn:wine"', json.dumps(train)).replace(
        "valid: 0.25", "valid: valid.csv"
    )
    (tmp_path / "space.yaml").write_text(text)
    (tmp_path / "loaders.py").write_text("def load(): ...\n")
    training, validation = datasets(load(tmp_path / "space.yaml"), "f" * 64)
    dataset = training.dataset
    assert (dataset.name, dataset.source_type, json.loads(dataset.source), dataset.digest) == (
        name,
        kind,
        source,
        "f" * 36,
    )
    assert [(tag.key, tag.value) for tag in training.tags] == [("mlflow.data.context", "training")]
    assert validation.dataset.name == "valid.csv" and validation.tags[0].value == "validation"
