"""Whole sweeps, as a user runs them."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

import sweeps
from tests.commands import invoke, mlflow_database, space_of

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]


BESIDE = """\
class Clip:
    def fit(self, frame):
        self.upper = frame.quantile(0.9)
        return self
    def transform(self, frame):
        return frame.clip(upper=self.upper, axis=1)
"""


def test_own_loop_with_load_gives_bundle_and_step_is_fitted_once(
    clean_ray: Any, checked_in_this_process: Any, tmp_path: Path
) -> None:
    import sklearn.datasets

    (tmp_path / "beside_it.py").write_text(BESIDE)
    file = space_of(
        tmp_path,
        "plain",
        extra=', load: "tests.user_loops:load"',
        limits="max_trials: 4, max_concurrent_trials: 2",
    )
    changed = (
        "data.train=sklearn:diabetes",
        "checkpoints={per_trial: 1, top: 1}",
        'space.preprocessor={choice: [["beside_it:Clip"]]}',
    )
    result = sweeps.run(file, dir=tmp_path / "runs", overrides=changed)
    assert result.fits == 1 and result.trials["completed"] == 4
    assert result.best is not None and result.bundle is not None and result.checkpoint is None
    left = {
        folder.name: len(list(folder.glob("checkpoint_*")))
        for folder in (result.dir / "trials").iterdir()
    }
    assert {name for name, n in left.items() if n} == {result.best["trial"]} and sum(
        left.values()
    ) == 1
    assert result.freed is not None and result.freed["trials"] >= 3 and result.freed["left"] > 0
    rows = sklearn.datasets.load_diabetes(as_frame=True).data
    assert (sweeps.load_bundle(result.bundle).model_output(rows) == result.best["value"]).all()


@pytest.mark.slow
def test_resume_only_sends_what_mlflow_missed(
    clean_ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow.tracking import MlflowClient

    from sweeps.study import record_reader
    from sweeps.tracking import MlflowTracker

    with monkeypatch.context() as patch:
        patch.setattr(
            MlflowTracker,
            "close",
            lambda self, *_, close=MlflowTracker.close: close(self, 0.5),
        )
        patch.setattr(
            "sweeps.core.files.provenance.git_state",
            lambda folder: {"commit": "c0ffee", "dirty": "no"},
        )
        file = space_of(
            tmp_path, "plain", limits="max_trials: 4, target: 100", data=False
        )  # reached by the first
        before = sweeps.run(file, dir=tmp_path / "runs", tracking_uri="http://127.0.0.1:9")
    assert before.best is not None and before.reason is not None
    assert (
        before.mlflow["missed"]
        and before.mlflow["parent_run"] is None
        and before.reason.startswith("limits.target")
    )
    assert "and this command sends the data again: " in before.notes[-1] and before.notes[
        -1
    ].endswith(f"sweeps resume {before.dir}")
    with monkeypatch.context() as patch:
        patch.setattr(
            MlflowTracker,
            "close",
            lambda self, timeout=60.0, on_wait=None, close=MlflowTracker.close: close(self, 0.5),
        )
        still = sweeps.resume(before.dir, tracking_uri="http://127.0.0.1:9")
    assert still.mlflow == before.mlflow and still.notes[:-1] == before.notes, (
        "of its end it tells as it did at first"
    )
    assert still.notes[-1].startswith("nothing is left to do: the sweep has ended (limits.target")
    assert json.loads((before.dir / "result.json").read_text())["notes"] == list(before.notes)
    study = record_reader.read(before.dir)
    uri = f"sqlite:///{shutil.copy(mlflow_database(), tmp_path)}"
    files = {
        path: path.stat().st_mtime_ns
        for path in before.dir.rglob("*")
        if path.is_file() and "trials" not in path.parts
    }
    with monkeypatch.context() as patch:
        patch.setattr(
            "sweeps.execution.cluster.ray_cluster.ray_connection", None
        )  # neither Ray nor the data is wanted
        after = sweeps.resume(before.dir, tracking_uri=uri)
    changed = {path.name for path, at in files.items() if path.stat().st_mtime_ns != at}
    assert (
        changed <= {"result.json", "sweep.log", "lock", "study.journal"}
        and after.mlflow["tracking_uri"] == uri
    )
    assert "missed" not in after.mlflow and (after.trials, after.best, after.reason) == (
        before.trials,
        before.best,
        before.reason,
    )
    assert record_reader.read(before.dir) == study
    assert after.best is not None
    client = MlflowClient(uri)
    parent = client.get_run(after.mlflow["parent_run"])
    assert (
        parent.info.status == "FINISHED"
        and parent.data.tags["sweeps.best_trial"] == after.best["trial"]
    )
    assert parent.info.end_time == int(1000 * before.mlflow["ended"])
    assert parent.data.tags["mlflow.source.git.commit"] == "c0ffee"
    shown = json.loads(
        Path(
            client.download_artifacts(parent.info.run_id, "result.json", str(tmp_path))
        ).read_text()
    )
    assert (
        "missed" not in shown["mlflow"]
        and "ended" not in shown["mlflow"]
        and not any("MLflow" in note for note in shown.get("notes", ()))
    )
    runs = client.search_runs(
        [parent.info.experiment_id], f"tags.`mlflow.parentRunId` = '{parent.info.run_id}'"
    )
    assert sorted(run.data.tags["sweeps.state"] for run in runs) == sorted(
        ["COMPLETE"] * after.trials["completed"] + ["PRUNED"] * after.trials["pruned"]
    )
    assert "nothing is left to do" in sweeps.resume(before.dir, tracking_uri=uri).notes[-1]
    said = sweeps.resume(before.dir, tracking_uri=uri, add_trials=3).notes[-1]
    assert said.startswith("nothing is left to do: the sweep has ended (limits.target"), (
        "which still ends it"
    )
    (before.dir / "result.json").write_text('{"sweep": "own-')  # cut off, as by a full disk
    mended = sweeps.resume(before.dir, tracking_uri=uri)
    assert (mended.trials, mended.best) == (before.trials, before.best)
    assert mended.reason is not None
    assert mended.reason.startswith(
        "limits.target"
    )  # by the best, which may have ended after the one that the search ended for


@pytest.mark.extended
def test_a_loop_without_checkpoints_is_searched_all_the_same(
    clean_ray: Any, tmp_path: Path
) -> None:
    result = sweeps.run(
        space_of(
            tmp_path,
            "no_checkpoint",
            limits="max_trials: 50, patience: 3, max_concurrent_trials: 1",
        ),
        dir=tmp_path / "runs",
    )
    assert (
        4 <= result.trials["completed"] < 50 and result.bundle is None and result.checkpoint is None
    )
    assert result.best is not None
    assert (
        result.best["value"] < 1.4
        and result.reason == "limits.patience: 3 trials without an improvement"
    )
    assert result.best["metrics"]["seconds"] == result.best["metrics"]["cpu_seconds"] > 0


@pytest.mark.extended
def test_five_failures_from_the_start_end_the_sweep_with_the_first_error(
    clean_ray: Any, tmp_path: Path
) -> None:
    with pytest.raises(sweeps.SweepFailed, match="the user's own mistake") as e:
        sweeps.run(space_of(tmp_path, "broken", limits="max_trials: 50"), dir=tmp_path / "runs")
    assert "tests/user_loops.py" in str(e.value) and "sweeps/execution" not in str(e.value), (
        "the user's frames, not ours"
    )
    result = json.loads(next((tmp_path / "runs").glob("own-*/result.json")).read_text())
    assert 5 <= result["trials"]["failed"] <= 7


def test_failed_trial_leaves_other_trials_alone(clean_ray: Any, tmp_path: Path) -> None:
    rows = pd.DataFrame({"a": range(40), "y": ["no", "yes"] * 20})
    rows.to_csv(tmp_path / "rows.csv", index=False)
    file = space_of(
        tmp_path, "sometimes_broken", limits="max_trials: 3", x="{grid: [0.1, 0.9, 0.8]}"
    )
    file.write_text(file.read_text().replace('"sklearn:iris", label: target', "rows.csv, label: y"))
    more = ("space.params.y={uniform: [0, 1]}",)  # else the resume would have nothing to do
    result = sweeps.run(file, dir=tmp_path / "runs", overrides=more)
    assert result.trials == {"completed": 1, "pruned": 0, "failed": 2}
    assert result.best is not None and result.best["params"]["x"] == 0.1
    check_failed_runs(result)
    rows.assign(a=rows.a + 1).to_csv(tmp_path / "rows.csv", index=False)
    check_refused_resume(result.dir)


def check_failed_runs(result: sweeps.SweepResult) -> None:
    """Check that MLflow and the logs have the errors of the two failed trials."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient(result.mlflow["tracking_uri"])
    where = (
        f"tags.`mlflow.parentRunId` = '{result.mlflow['parent_run']}' and tags.`sweeps.state` = "
        "'FAIL'"
    )
    experiment = client.get_experiment_by_name("own")
    assert experiment is not None
    failed = client.search_runs([experiment.experiment_id], where)
    errors = [run.data.tags["sweeps.error"] for run in failed]
    logs = [
        (result.dir / "trials" / run.data.tags["sweeps.trial"] / "logs" / "rank-0.log").read_text()
        for run in failed
    ]
    for text in (*errors, *logs):
        assert "tests/user_loops.py" in text and text.rstrip().endswith(
            "ZeroDivisionError: the user's own mistake"
        ), text
    assert len(errors) == 2 and {run.info.status for run in failed} == {"FAILED"}


def test_a_metric_that_is_never_reported_is_named_with_those_that_are(
    clean_ray: Any, tmp_path: Path
) -> None:
    with pytest.raises(sweeps.InputError) as e:
        sweeps.run(
            space_of(tmp_path, "unreported", limits="max_trials: 1", data=False),
            dir=tmp_path / "runs",
        )
    said = (
        "objective.metric: the objective's metric `loss` was not reported at step 1; the loop "
        "reported: accuracy, f1"
    )
    assert str(e.value) == f"{tmp_path / 'own.yaml'}:3:21: {said}"
    assert not (tmp_path / "runs").exists(), "nothing is left behind"


@pytest.mark.extended
def test_a_time_limit_stops_what_runs_and_keeps_what_finished(
    clean_ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def an_hour_later_once_the_study_knows_of_a_report() -> Any:
        return time.monotonic() + 3600 * any(
            '"reports":[{' in study.read_text() for study in tmp_path.glob("runs/*/study.journal")
        )

    clock = SimpleNamespace(
        time=time.time, monotonic=an_hour_later_once_the_study_knows_of_a_report
    )
    monkeypatch.setattr("sweeps.controller.controller.clock", clock)
    file = space_of(
        tmp_path,
        "held",
        limits="max_trials: 4, timeout: 30m, max_concurrent_trials: 1",
        x="{grid: [0.1, 0.2]}",
        data=False,
    )
    result = sweeps.run(file, dir=tmp_path / "runs")
    assert result.reason == "limits.timeout" and result.trials["pruned"] == 1
    assert result.checkpoint is not None, "the best of what there is leaves all the same"


def kept_of(folder: Path) -> list[Path]:
    """Return the files of prepared data in a sweep's folder."""
    return [path for path in (folder / "prepared").rglob("*") if path.is_file()]


def check_refused_resume(folder: Path) -> None:
    """Check that a resume of a sweep whose data has changed is refused and changes nothing."""
    before = {
        path: path.read_bytes()
        for path in [folder / "origin.json", folder / "result.json", *kept_of(folder)]
    }
    with pytest.raises(
        sweeps.InputError,
        match=r"space.yaml:\d+:\d+: data.train: the data has changed since the sweep began",
    ):
        sweeps.resume(folder, add_trials=1)
    assert {path: path.read_bytes() for path in before} == before
    assert len(before) == 2 + len(kept_of(folder))


@pytest.mark.extended
def test_a_loop_that_learns_from_images_leaves_a_bundle_that_predicts_them(
    clean_ray: Any, tmp_path: Path
) -> None:
    import ray.data

    from tests.user_loops import images

    file = space_of(
        tmp_path, "looks", extra=', load: "tests.user_loops:load_looks"', limits="max_trials: 1"
    )
    data = 'data={train: "tests.user_loops:images", label: bright, valid: 0.2}'
    result = sweeps.run(
        file, dir=tmp_path / "runs", overrides=(data, "space={params: {lr: {uniform: [0.1, 0.2]}}}")
    )
    assert result.bundle is not None, result.notes
    bundle, rows = sweeps.load_bundle(result.bundle), images("frame")
    assert bundle.manifest.checked and [c.type for c in bundle.manifest.columns] == [
        "tensor",
        "integer",
    ]
    ray.data.from_pandas(rows).write_parquet(str(tmp_path / "rows"))
    (parquet,) = (tmp_path / "rows").glob("*.parquet")
    done = invoke("predict", result.bundle, parquet, "-o", tmp_path / "out.parquet")
    assert done.exit_code == 0, done.stderr
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "out.parquet"), bundle.predict(rows))


READS_ITS_OWN = """
import json
from pathlib import Path

import ray.train

from helper import loss_of
from tests.user_loops import load_named as load  # noqa: F401 - which the bundle needs
from tests.user_loops import _report, _start

def train(config):
    known = json.loads(Path(config["file"]).read_text())
    try:
        ray.train.get_dataset_shard("train")
    except KeyError as e:
        assert "has no section `data`" in str(e)
    else:
        raise AssertionError("there is data")
    for step in range(_start() + 1, 4):
        _report(step, loss_of(config["x"], known["best"]) + 1 / step)
"""
HELPER = "def loss_of(x, best):\n    return abs(x - best)\n"


@pytest.mark.extended
def test_loop_with_own_data_runs_resumes_exports_and_reruns(
    clean_ray: Any, checked_in_this_process: Any, tmp_path: Path
) -> None:
    from mlflow.tracking import MlflowClient

    from sweeps.bundle.predict_rows import predict_file
    from sweeps.exports.rerun import rerun
    from sweeps.exports.sweep_exports import export

    for name, text in {
        "reads_its_own.py": READS_ITS_OWN,
        "helper.py": HELPER,
        "known.json": '{"best": 0.25}',
    }.items():
        (tmp_path / name).write_text(text)
    file = tmp_path / "own.yaml"
    file.write_text(f"""\
name: own
trainer: {{loop: "reads_its_own:train", load: "reads_its_own:load"}}
objective: {{metric: loss, goal: minimize}}
limits: {{max_trials: 2}}
space:
  params: {{x: {{uniform: [0.0, 1.0]}}, file: {tmp_path / "known.json"}}}
  scaling: {{num_workers: {{grid: [1, 2]}}}}
""")
    first = sweeps.run(file, dir=tmp_path / "runs")
    assert first.trials["completed"] == 2 and first.fits == 0, first.notes
    assert not [note for note in first.notes if "fingerprint" in note]
    assert first.best is not None
    client = MlflowClient(first.mlflow["tracking_uri"])
    assert "data.train" not in client.get_run(first.mlflow["parent_run"]).data.params
    assert rerun(first.dir, first.best["trial"]).equal

    (tmp_path / "helper.py").write_text(HELPER + "\nCHANGED = True\n")
    more = sweeps.resume(first.dir, add_trials=1)
    assert more.trials["completed"] == 3
    assert more.best is not None and more.bundle is not None
    (note,) = (note for note in more.notes if "fingerprint" in note)
    assert "reads_its_own:train" in note
    drivers = json.loads((more.dir / "provenance.json").read_text())
    assert len({driver["data_fingerprint"] for driver in drivers}) == 2

    bundle, rows = (
        sweeps.load_bundle(more.bundle),
        pd.DataFrame({"word": ["a", "abcd"]}, index=[7, 8]),
    )
    expected = rows.assign(loss=more.best["value"], long=[False, True])
    pd.testing.assert_frame_equal(bundle.predict(rows), expected)
    assert (
        bundle.manifest.columns == []
        and bundle.manifest.training["data_fingerprint"] == drivers[1]["data_fingerprint"]
    )
    rows.assign(other=1).to_csv(tmp_path / "rows.csv", index=False)
    pd.testing.assert_frame_equal(
        predict_file(more.bundle, tmp_path / "rows.csv"),
        expected.reset_index(drop=True),
        check_dtype=False,
    )
    (again,) = export(more.dir, trial=more.best["trial"], output=tmp_path / "again")
    assert sweeps.load_bundle(again.path).predict(rows).equals(bundle.predict(rows))
    with pytest.raises(sweeps.InputError) as e:
        export(more.dir, refit=True)
    assert e.value.problems[0].place == "--refit"
