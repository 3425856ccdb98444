"""The content of a sweep's runs in MLflow: files, settings, reports, groups and data sets."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

from sweeps.core.trial import Report, Result, State
from sweeps.space import Step, load
from sweeps.study.events import ArtifactSaved, SweepEnded, SweepStarted
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
    sweep_result,
    sweep_started,
    trial,
)
from tests.waiting import wait_until

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("empty_database")]


@pytest.mark.integration
def test_files_are_logged_when_the_trial_ends(tmp_path: Path) -> None:
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


def test_text_that_cannot_be_encoded_is_escaped(tmp_path: Path) -> None:
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
    assert tracker.parent is not None
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
def test_the_parent_run_shows_the_settings_and_the_result(tmp_path: Path) -> None:
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
    assert tracker.parent is not None
    experiment, parent = client.get_experiment_by_name("exp"), client.get_run(tracker.parent)
    assert experiment is not None
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


def test_a_long_report_is_cut_at_a_line() -> None:
    short = description("# x\n\nfirst\n\nrest", {"a": "#/b"})
    assert short == "[a](#/b)\n\nfirst\n\nrest"
    long = description("# x\n\nfirst\n\n" + "line\n" * 3000, {"a": "#/b"})
    assert 7900 < len(long) <= 8000
    assert long.endswith("line\n\nThe rest is in the artifact `report.md`.\n")


def test_the_preprocessor_parameter_groups_trials() -> None:
    step = Step("features:Clip", None, {"quantile": 0.99})
    tuned = dataclasses.replace(
        trial(0), preprocessor=(step,), labels={"preprocessor.0.quantile": 0.99}
    )
    logged = trial_params(tuned)
    assert logged["preprocessor"] == "features:Clip" and logged["preprocessor.0.quantile"] == "0.99"
    assert trial_params(dataclasses.replace(tuned, preprocessor=()))["preprocessor"] == "none"
    assert trial_params(trial(0))["preprocessor"] == "Std"


def test_a_dimension_inside_an_option_is_logged_once() -> None:
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
def test_the_data_set_is_an_input_of_mlflow(
    tmp_path: Path, train: str, name: str, kind: str, source: Any
) -> None:
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
