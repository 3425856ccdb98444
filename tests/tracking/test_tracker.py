"""MLflow gets everything once, in batches, whether its server is there or comes late."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sweeps.core.resources import Shape
from sweeps.core.trial import Report, Result, State, Trial
from sweeps.space import Step
from sweeps.tracking.mlflow.run_contents import described, flat, parameters, settings
from sweeps.tracking.mlflow.tracker import Tracker, default_uri
from sweeps.tracking.mlflow.views import legal
from tests.report.made import space_in
from tests.waiting import wait_until

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("made_before")]


def trial(number: int) -> Trial:
    shape = Shape(2, (("CPU", 1.0),))
    return Trial(number, f"{number:04d}", {"eta": 0.1, "nested": {"a": [1, 2]}}, (), shape, 7, {"params.eta": 0.1, "preprocessor": "Std"})


def reports(n: int, start: int = 1) -> tuple[Report, ...]:
    return tuple(Report(s, {"loss": 1 / s, "odd": math.nan}, 1_700_000_000.0 + s) for s in range(start, start + n))


def play(tracker: Tracker) -> None:
    tracker.tag_parent({"sweeps.data_fingerprint": "abc"})
    tracker.artifact("space.yaml", "name: x\n")
    for number, state in enumerate((State.COMPLETE, State.PRUNED, State.FAIL, State.RUNNING)):
        tracker.begin(trial(number), 1_700_000_000.0)
        tracker.reports(number, reports(3))
        error = "Traceback: no" if state is State.FAIL else None
        final = {"valid-auc@5": 0.75} if state is State.COMPLETE else {}
        tracker.end(number, Result(state, 0.25, 3, 3, None, error, 1.5, final=final), 1_700_000_100.0)
    tracker.metrics({"best": 0.25}, 1_700_000_200.0)
    tracker.finish("FINISHED", 1_700_000_200.0)


def check(client, tracker: Tracker) -> None:
    experiment = client.get_experiment_by_name("exp")
    parent = client.get_run(tracker.parent)
    assert parent.info.status == "FINISHED" and parent.info.end_time == 1_700_000_200_000
    assert parent.data.metrics["best"] == 0.25 and parent.data.tags["sweeps.data_fingerprint"] == "abc"
    runs = client.search_runs([experiment.experiment_id], f"tags.`mlflow.parentRunId` = '{tracker.parent}'")
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
    assert run.data.params["scaling.num_workers"] == "2" and run.data.params["preprocessor"] == "Std"
    history = client.get_metric_history(run.info.run_id, "loss")
    assert [(m.step, m.value) for m in history] == [(1, 1.0), (2, 0.5), (3, 1 / 3)]
    assert {t: r.data.metrics.get("final/valid-auc_5") for t, r in by_trial.items()} == {
        "0000": 0.75,
        "0001": None,
        "0002": None,
        "0003": None,
    }
    assert (run.data.metrics["objective"], run.data.metrics["steps"], run.data.metrics["seconds"]) == (0.25, 3.0, 1.5)


@pytest.mark.integration
def test_a_sweep_is_written_and_saying_it_again_doubles_nothing(tmp_path):
    from mlflow.tracking import MlflowClient

    client = MlflowClient(default_uri(tmp_path))
    for _ in range(2):
        tracker = Tracker(default_uri(tmp_path), tmp_path, "exp", "sweep-1", 1_700_000_000.0)
        play(tracker)
        assert tracker.close() and tracker.error is None
        check(client, tracker)
    runs = client.search_runs([client.get_experiment_by_name("exp").experiment_id])
    assert len(runs) == 5


@pytest.mark.integration
def test_sweeps_of_one_name_that_begin_in_the_same_second_have_runs_of_their_own(tmp_path):
    told = []
    for began in (1_700_000_000.123, 1_700_000_000.456):
        tracker = Tracker(default_uri(tmp_path), tmp_path, "exp", "own-20231114-221320", began)
        tracker.begin(trial(0), began)
        assert tracker.close() and tracker.error is None
        told.append(tracker.parent)
    assert told[0] != told[1]


@pytest.mark.integration
@pytest.mark.parametrize("began", [1_763_836_404.1234, 1_763_836_404.1237, 1_763_836_404.15, 1_763_836_404.9996])
def test_a_sweep_that_goes_on_finds_its_run_whatever_the_fraction_of_a_second(tmp_path, began):
    told = []
    for at in (began, round(began, 3)):  # which is what its folder keeps
        tracker = Tracker(default_uri(tmp_path), tmp_path, "exp", "sweep-1", at)
        tracker.begin(trial(0), 1.0)
        assert tracker.close() and tracker.error is None
        told.append(tracker.parent)
    assert told[0] == told[1]


@pytest.mark.integration
def test_a_study_that_cannot_be_read_now_is_read_later(tmp_path, monkeypatch):
    monkeypatch.setattr("sweeps.tracking.mlflow.tracker.RETRY_EVERY", 0.01)
    tracker, tried = Tracker(default_uri(tmp_path), tmp_path, "exp", "sweep-1", 1.0), []

    def told(whole):
        tried.append(1)
        if len(tried) < 3:
            raise RuntimeError("the database went away")
        yield trial(0), 1.0, reports(2), Result(State.COMPLETE, 0.5, 2, 2), 2.0

    tracker.go_on(told)
    assert tracker.close() and tracker.error is None and len(tried) == 3


@pytest.mark.integration
def test_the_best_trials_tags_are_those_of_the_latest_report(tmp_path):
    from mlflow.tracking import MlflowClient

    tracker = Tracker(default_uri(tmp_path), tmp_path, "exp", "sweep-1", 1.0)
    tracker.begin(trial(0), 1.0)
    tracker.tag_parent({"best.params.gone": "3"})
    tracker.report("# r", "<p>r</p>", trial(0))
    assert tracker.close() and tracker.error is None
    tracker = Tracker(default_uri(tmp_path), tmp_path, "exp", "sweep-1", 1.0)
    tracker.go_on(lambda whole: [(trial(0), 1.0, (), Result(State.COMPLETE, 0.5, 2, 2), 2.0)])
    tracker.report("# r", "<p>r</p>", trial(0))
    assert tracker.close() and tracker.error is None
    tags = MlflowClient(default_uri(tmp_path)).get_run(tracker.parent).data.tags
    assert "best.params.gone" not in tags and any(name.startswith("best.") for name in tags)


@pytest.mark.integration
@pytest.mark.parametrize("last", ["reports", "end"])
def test_a_driver_that_takes_over_sends_what_the_last_one_had_not(tmp_path, last):
    """Two trials ended, one whose end was lost, one that was never sent, one that runs: each is there once, and goes on."""
    from mlflow.tracking import MlflowClient

    done = Result(State.COMPLETE, 1 / 3, 3, 3, None, None, 1.5)
    first = Tracker(default_uri(tmp_path), tmp_path, "exp", "sweep-1", 1.0)
    for number in (0, 1, 3):
        first.begin(trial(number), 1_700_000_000.0)
        first.reports(number, reports(2 if number == 3 else 3))
        if number == 0 or (number == 1 and last == "end"):
            first.end(number, done, 1_700_000_100.0)
    assert first.close()
    asked = []

    def told(whole):
        asked.extend(number for number in range(4) if number not in whole)
        for number in asked:
            stands = Result(State.RUNNING, 0.5, 2, 2) if number == 3 else done
            yield trial(number), 1_700_000_000.0, reports(2 if number == 3 else 3), stands, 1_700_000_100.0

    again = Tracker(default_uri(tmp_path), tmp_path, "exp", "sweep-1", 1.0)
    again.go_on(told)
    again.begin(trial(3), 1_700_000_200.0)
    again.reports(3, reports(1, start=3))
    again.end(3, done, 1_700_000_300.0)
    again.finish("FINISHED", 1_700_000_400.0)
    assert again.close() and again.error is None
    assert asked == ([2, 3] if last == "end" else [1, 2, 3])
    client = MlflowClient(default_uri(tmp_path))
    runs = client.search_runs([client.get_experiment_by_name("exp").experiment_id])
    assert len(runs) == 5 and {r.info.status for r in runs} == {"FINISHED"}
    for run in (r for r in runs if "sweeps.trial" in r.data.tags):
        history = client.get_metric_history(run.info.run_id, "loss")
        assert [(m.step, m.value) for m in history] == [(1, 1.0), (2, 0.5), (3, 1 / 3)] and run.data.tags["sweeps.state"] == "COMPLETE"
        assert len(client.get_metric_history(run.info.run_id, "objective")) == 1


@pytest.mark.integration
def test_long_curves_and_many_parameters_go_in_batches(tmp_path):
    from mlflow.tracking import MlflowClient

    tracker = Tracker(default_uri(tmp_path), tmp_path, "exp", "sweep-1", 1.0)
    big = Trial(0, "0000", {f"p{i}": i for i in range(250)}, (), Shape(1, (("CPU", 1.0),)), 7, {})
    tracker.begin(big, 1.0)
    tracker.reports(0, reports(2500))
    assert tracker.close() and tracker.error is None
    client = MlflowClient(default_uri(tmp_path))
    run = client.get_run(tracker._runs[0])
    assert len([p for p in run.data.params if p.startswith("params.")]) == 250
    assert len(client.get_metric_history(run.info.run_id, "loss")) == 2500


@pytest.mark.integration
def test_files_of_a_trial_are_logged_when_it_ends_and_those_that_came_later_with_the_sweep(tmp_path):
    from mlflow.tracking import MlflowClient

    client, files = MlflowClient(default_uri(tmp_path)), tmp_path / "sweep-1" / "trials" / "0001" / "files"
    (files / "traces").mkdir(parents=True)
    (files / "traces" / "one.json").write_text("1")
    tracker = Tracker(default_uri(tmp_path), tmp_path, "exp", "sweep-1", 1.0)
    for number in (0, 1, 2):
        tracker.begin(trial(number), 1.0)
    for number, state in ((0, State.COMPLETE), (1, State.PRUNED), (2, State.RUNNING)):
        tracker.end(number, Result(state, 0.25), 2.0)
    run = wait_until(
        lambda: (files.parent / "mlflow.json").exists() and json.loads((files.parent / "mlflow.json").read_text()), 60, "a run"
    )
    assert (run["tracking_uri"], run["run_id"]) == (default_uri(tmp_path), tracker._runs[1])

    def there() -> dict[str, str]:
        found = client.list_artifacts(run["run_id"], "files/traces")
        return {file.path: Path(client.download_artifacts(run["run_id"], file.path)).read_text() for file in found}

    wait_until(lambda: there() == {"files/traces/one.json": "1"}, 60, "the file")
    (files / "traces" / "one.json").write_text("1, 2")  # a loop that a rung has stopped may not have ended yet
    (files / "traces" / "two.json").write_text("3")
    tracker.finish("FINISHED", 3.0)
    assert tracker.close() and tracker.error is None
    assert there() == {"files/traces/one.json": "1, 2", "files/traces/two.json": "3"}
    assert not client.list_artifacts(tracker._runs[0]) and not (tmp_path / "sweep-1" / "trials" / "0000").exists()


def test_a_name_that_mlflow_does_not_take_costs_nobody_anything(tmp_path):
    from mlflow.tracking import MlflowClient

    tracker = Tracker(default_uri(tmp_path), tmp_path, "exp", "sweep-1", 1.0)
    for number in (0, 1):
        tracker.begin(trial(number), 1.0)
        tracker.reports(number, (Report(1, {"loss": 0.5, "acc@5": 0.9, "loss[val]": 0.1}, 2.0),))
        tracker.end(number, Result(State.COMPLETE, 0.5), 3.0)
    assert tracker.close() and tracker.error is None
    client = MlflowClient(default_uri(tmp_path))
    for run in tracker._runs.values():
        shown = client.get_run(run)
        assert shown.info.status == "FINISHED" and shown.data.metrics["acc_5"] == 0.9 and shown.data.metrics["loss_val_"] == 0.1


def test_names_that_read_as_paths_cost_no_batch(tmp_path):
    from mlflow.tracking import MlflowClient

    odd = {"a/../b": 1.0, "/abs": 2.0, "a//b": 3.0, ".": 4.0, "..": 5.0, "end/": 6.0, "": 7.0, "n" * 250: 8.0}
    tracker = Tracker(default_uri(tmp_path), tmp_path, "exp", "sweep-1", 1.0)
    tracker.tag_parent({}, {"a/../b": "uniform"})
    tracker.begin(dataclasses.replace(trial(0), params=odd, labels={f"params.{name}": value for name, value in odd.items()}), 1.0)
    tracker.reports(0, (Report(1, {"loss": 0.5, **odd}, 2.0),))
    tracker.end(0, Result(State.COMPLETE, 0.5, final=odd), 3.0)
    tracker.report("# r", "<p>r</p>", dataclasses.replace(trial(0), labels={"a/../b": 1.0}))
    assert tracker.close() and tracker.error is None
    client = MlflowClient(default_uri(tmp_path))
    shown, parent = client.get_run(tracker._runs[0]).data, client.get_run(tracker.parent).data
    reported = {"loss": 0.5, "a/__/b": 1.0, "_abs": 2.0, "a/_b": 3.0, "__": 5.0, "end_": 6.0, "n" * 250: 8.0}
    assert reported.items() <= shown.metrics.items()
    assert (shown.metrics["final/a/__/b"], shown.metrics["final/" + "n" * 244]) == (1.0, 8.0)
    assert (shown.params["params.a/__/b"], shown.params["params./abs"]) == ("1.0", "2.0")
    assert parent.params == {"a/__/b": "uniform"} and parent.tags["best.a/__/b"] == "1.0"


@pytest.mark.parametrize(
    "name", ["...", "..a", "./..", "a/.", "a/..", "//", "///a", "a/./b", "/" * 300, "a" * 249 + "/b", "x" * 248 + "/..y"]
)
def test_every_name_becomes_one_that_mlflow_takes(name):
    from mlflow.utils.validation import _validate_metric_name, _validate_param_name

    _validate_metric_name(legal(name))
    _validate_param_name(legal(name))
    assert len(legal(name)) <= 250 and legal(legal(name)) == legal(name)


def test_text_that_cannot_be_encoded_is_escaped(tmp_path):
    from mlflow.tracking import MlflowClient

    bad = "caf\udce9"
    tracker = Tracker(default_uri(tmp_path), tmp_path, "exp", "sweep-1", 1.0)
    tracker.tag_parent({"sweeps.dir": bad}, {"p": bad})
    tracker.artifact("space.yaml", bad)
    for number, error in ((0, bad), (1, None)):
        tracker.begin(dataclasses.replace(trial(number), params={bad: bad}), 1.0)
        tracker.reports(number, (Report(1, {bad: 1.0}, 2.0),))
        tracker.end(number, Result(State.FAIL, 0.5, error=error), 3.0)
    tracker.report(bad, bad, trial(0))
    tracker.finish("FINISHED", 4.0)
    assert tracker.close() and tracker.error is None
    client = MlflowClient(default_uri(tmp_path))
    run, parent = client.get_run(tracker._runs[0]), client.get_run(tracker.parent)
    assert run.data.tags["sweeps.error"] == "caf\\udce9" and run.data.metrics["caf_"] == 1.0
    assert run.data.params["params.caf_"] == "caf\\udce9"
    assert parent.data.tags["sweeps.dir"] == parent.data.params["p"] == "caf\\udce9"
    assert [client.get_run(r).info.status for r in (*tracker._runs.values(), tracker.parent)] == ["FAILED", "FAILED", "FINISHED"]


def test_an_encoding_error_is_no_server_that_is_away(tmp_path, monkeypatch):
    """MLflow's store raises it as an internal error. It costs the run whose text it is, and the sweep goes on."""
    monkeypatch.setattr("sweeps.tracking.mlflow.client.encodable", lambda given: given)
    tracker = Tracker(default_uri(tmp_path), tmp_path, "exp", "sweep-1", 1.0)
    for number, error in ((0, "\udce9"), (1, "plain")):
        tracker.begin(trial(number), 1.0)
        tracker.end(number, Result(State.FAIL, 0.5, error=error), 3.0)
    tracker.finish("FINISHED", 4.0)
    assert tracker.close(20) and not tracker.waiting
    assert tracker.error is not None and "surrogates not allowed" in tracker.error
    from mlflow.tracking import MlflowClient

    client = MlflowClient(default_uri(tmp_path))
    assert client.get_run(tracker._runs[1]).data.tags["sweeps.error"] == "plain"
    assert [client.get_run(r).info.status for r in (*tracker._runs.values(), tracker.parent)] == ["FAILED", "FAILED", "FINISHED"]


def test_the_source_of_the_data_is_logged_without_its_secret(tmp_path):
    space = space_in(tmp_path)
    space = dataclasses.replace(space, data=dataclasses.replace(space.data, train="s3://KEY:hunter2@bucket/x.csv"))
    assert settings(space)["data.train"] == "s3://KEY:***@bucket/x.csv"


@pytest.mark.integration
def test_a_sweep_that_never_began_leaves_nothing(tmp_path):
    (tmp_path / "mlflow.db").unlink()
    tracker = Tracker(default_uri(tmp_path), tmp_path, "exp", "sweep-1", 1.0)
    tracker.finish("FAILED", 1.0)
    assert tracker.close() and not (tmp_path / "mlflow.db").exists()


@pytest.mark.integration
def test_nothing_waits_for_mlflow(tmp_path):
    tracker = Tracker(default_uri(tmp_path), tmp_path, "exp", "sweep-1", 1.0)
    began = time.monotonic()
    play(tracker)
    assert time.monotonic() - began < 1  # MLflow takes longer to make its database
    assert tracker.close()


@pytest.mark.long
@pytest.mark.integration
def test_a_server_that_comes_late_gets_everything(tmp_path):
    from mlflow.tracking import MlflowClient

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    uri = f"http://127.0.0.1:{port}"
    tracker = Tracker(uri, tmp_path, "exp", "sweep-1", 1.0)
    play(tracker)
    wait_until(lambda: tracker.waiting, 60, "the tracker to notice that nobody answers")
    command = [
        sys.executable,
        "-m",
        "mlflow",
        "server",
        "--port",
        str(port),
        "--backend-store-uri",
        default_uri(tmp_path),
        "--workers",
        "1",
    ]
    env = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true"}
    with open(tmp_path / "server.log", "w") as log:
        server = subprocess.Popen(command, cwd=tmp_path, env=env, stdout=log, stderr=log, start_new_session=True)
    try:
        assert tracker.close(90), (tmp_path / "server.log").read_text()[-2000:]
        assert tracker.error is None
        check(MlflowClient(uri), tracker)
    finally:
        os.killpg(server.pid, 15)
        server.wait(20)


@pytest.mark.integration
def test_a_server_that_stays_away_costs_a_bounded_time(tmp_path):
    tracker = Tracker("http://127.0.0.1:1", tmp_path, "exp", "sweep-1", 1.0)
    play(tracker)
    began = time.monotonic()
    assert not tracker.close(1.0)
    assert time.monotonic() - began < 5


@pytest.mark.integration
def test_the_parent_run_shows_what_was_asked_for_and_what_came_of_it(tmp_path):
    from mlflow.tracking import MlflowClient

    space = space_in(tmp_path)
    for seed in (0, 1):  # of a sweep that goes on; MLflow lets no parameter be changed
        tracker = Tracker(default_uri(tmp_path), tmp_path, "exp", "sweep-1", 1.0)
        tracker.describe(dataclasses.replace(space, search=dataclasses.replace(space.search, seed=seed)))
        tracker.begin(trial(3), 1.0)
        tracker.end(3, Result(State.COMPLETE, 0.5, 3, 3, None, None, 1.5), 2.0)
        tracker.report("# sweep-1\n\nThe best.\n\nMore.\n\n## Space file\n\nlong", "<html>", trial(3))
        tracker.finish("FINISHED", 3.0)
        assert tracker.close() and tracker.error is None
    client = MlflowClient(default_uri(tmp_path))
    experiment, parent = client.get_experiment_by_name("exp"), client.get_run(tracker.parent)
    views = {name.rpartition(".")[2]: json.loads(tag)["name"] for name, tag in experiment.tags.items() if "sharedViewState" in name}
    assert views == {"sweep-1": "sweep-1: trials", "all-sweeps": "all sweeps"}
    assert experiment.tags["mlflow.experimentKind"] == "custom_model_development"
    told = parent.data.params
    assert (told["search.seed"], told["objective.goal"], told["scheduler.max_t"]) == ("0", "maximize", "50")
    tags, run = parent.data.tags, tracker._runs[3]
    assert (tags["sweeps.best_run"], tags["best.params.eta"], tags["best.preprocessor"]) == (run, "0.1", "Std")
    assert "best.params.nested.a" not in tags  # a constant
    note = tags["mlflow.note.content"].split("\n\n")
    assert note[1:] == ["The best.", "More."]
    links = re.findall(r"\[(.*?)\]\((.*?)\)", note[0])
    assert [text for text, _ in links] == ["Trial 0003", "All trials, best first", "Charts", "Report with figures", "Space file"]
    assert all(link.startswith(f"#/experiments/{experiment.experiment_id}/runs") for _, link in links)
    assert {a.path for a in client.list_artifacts(tracker.parent)} == {"report.md", "report.html"}


def test_a_long_report_is_cut_at_a_line_and_outside_of_code():
    short = described("# x\n\nfirst\n\nrest", {"a": "#/b"})
    assert short == "[a](#/b)\n\nfirst\n\nrest"
    assert described("# x\n\n| a | b |\n| --- | --- |\n| 1 | 2 |", {}) == "\n\n| a&emsp;| b |\n| --- | --- |\n| 1&emsp;| 2 |"
    long = described("# x\n\nfirst\n\n```\n" + "line of code\n" * 1000 + "```", {"a": "#/b"})
    assert 7900 < len(long) <= 8000
    assert long.endswith("line of code\n```\n\nThe rest is in the artifact `report.md`.\n")


def test_the_preprocessor_is_a_parameter_by_which_trials_can_be_grouped():
    step = Step("features:Clip", None, {"quantile": 0.99})
    tuned = dataclasses.replace(trial(0), preprocessor=(step,), labels={"preprocessor.0.quantile": 0.99})
    logged = parameters(tuned)
    assert logged["preprocessor"] == "features:Clip" and logged["preprocessor.0.quantile"] == "0.99"
    assert parameters(dataclasses.replace(tuned, preprocessor=()))["preprocessor"] == "none"
    assert parameters(trial(0))["preprocessor"] == "Std"


def test_parameters_are_flat():
    assert flat({"a": 1, "b": {"c": [1]}}, "params") == {"params.a": "1", "params.b.c": "[1]"}
