"""Whole sweeps, as a user runs them."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import pandas as pd
import psutil
import pytest

import sweeps
from tests.commands import REPO, command, space_of
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]
SPACES = REPO / "search_spaces"


def children(client, result) -> list:
    experiment = client.get_experiment_by_name(result["mlflow"]["experiment"])
    where = f"tags.`mlflow.parentRunId` = '{result['mlflow']['parent_run']}'"
    return client.search_runs([experiment.experiment_id], where)


@pytest.fixture(autouse=True)
def _one_mlflow(tmp_path_factory, monkeypatch):
    """One database for the sweeps of this file that name none: making one takes two seconds."""
    root = tmp_path_factory.getbasetemp() / "mlflow"
    root.mkdir(exist_ok=True)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{root / 'mlflow.db'}")


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory):
    root = tmp_path_factory.mktemp("quickstart")
    process = command("run", SPACES / "quickstart.yaml", "--dir", root, "--json")
    out, err = process.communicate(timeout=230)
    assert process.returncode == 0, err
    return root, json.loads(out), err


def test_quickstart_prints_one_object_and_nothing_else(quickstart):
    root, result, err = quickstart
    assert err == ""
    assert set(result) == {"sweep", "dir", "trials", "best", "bundle", "mlflow", "fits", "seconds"}
    assert set(result["best"]) == {"trial", "value", "test", "params", "preprocessor", "scaling"}
    assert set(result["trials"]) == {"completed", "pruned", "failed"}
    assert sum(result["trials"].values()) == 16 and result["trials"]["failed"] == 0 and result["trials"]["pruned"] > 0
    assert result["fits"] == 2
    assert result["best"]["value"] < 0.3 and result["best"]["test"] < 0.4
    assert Path(result["bundle"]).is_dir() and Path(result["dir"]).parent == root


def test_quickstart_is_in_mlflow_as_it_happened(quickstart):
    from mlflow.tracking import MlflowClient

    _, result, _ = quickstart
    client = MlflowClient(result["mlflow"]["tracking_uri"])
    runs = children(client, result)
    assert len(runs) == 16 and {r.info.status for r in runs} == {"FINISHED"}
    assert sorted(r.data.tags["sweeps.state"] for r in runs).count("PRUNED") == result["trials"]["pruned"]
    cells = [(r.data.params["preprocessor"], r.data.params["scaling.num_workers"]) for r in runs]
    assert {cells.count(c) for c in cells} == {4}, "every cell gets the same number of trials"
    best = next(r for r in runs if r.data.tags["sweeps.trial"] == result["best"]["trial"])
    assert best.data.metrics["objective"] == result["best"]["value"]
    assert float(best.data.params["params.eta"]) == result["best"]["params"]["eta"]
    assert len(client.get_metric_history(best.info.run_id, "valid-logloss")) == 50
    parent = client.get_run(result["mlflow"]["parent_run"])
    assert parent.info.status == "FINISHED" and len(parent.data.tags["sweeps.data_fingerprint"]) == 64
    artifacts = {a.path for a in client.list_artifacts(parent.info.run_id)}
    assert {"space.yaml", "result.json"} <= artifacts


def test_quickstart_bundle_predicts_from_raw_rows(quickstart, tmp_path):
    import sklearn.datasets

    _, result, _ = quickstart
    data = sklearn.datasets.load_breast_cancer(as_frame=True)
    data.data.to_csv(tmp_path / "rows.csv", index=False)
    process = command("predict", result["bundle"], tmp_path / "rows.csv", "-o", tmp_path / "out.parquet")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    out = pd.read_parquet(tmp_path / "out.parquet")
    assert len(out) == len(data.data) and (out["prediction"] == data.target).mean() > 0.9


def test_quickstart_other_trials_can_be_exported(quickstart, tmp_path):
    _, result, _ = quickstart
    other = "0001" if result["best"]["trial"] != "0001" else "0000"
    process = command("export", result["dir"], "--trial", other, "-o", tmp_path / "other")
    _, err = process.communicate(timeout=60)
    assert (process.returncode == 0 and (tmp_path / "other" / "MLmodel").is_file()) or "left no checkpoint" in err, err
    process = command("export", result["dir"], "-o", tmp_path / "best")
    assert process.wait(timeout=60) == 0 and (tmp_path / "best" / "MLmodel").is_file()
    process = command("export", result["dir"], "--trial", "99")
    assert process.wait(timeout=60) == 2 and "no trial `99`" in process.stderr.read()


def test_quickstart_can_be_moved_and_exported(quickstart, tmp_path):
    _, result, _ = quickstart
    shutil.copytree(result["dir"], tmp_path / "moved")
    hidden = Path(result["dir"]).with_name("gone")
    Path(result["dir"]).rename(hidden)
    try:
        process = command("export", tmp_path / "moved", "-o", tmp_path / "bundle")
        _, err = process.communicate(timeout=60)
        assert process.returncode == 0 and (tmp_path / "bundle" / "MLmodel").is_file(), err
    finally:
        hidden.rename(result["dir"])


def test_digits_mlp_on_two_workers(clean_ray, tmp_path):
    result = sweeps.run(SPACES / "digits_mlp.yaml", dir=tmp_path)
    assert sum(result.trials.values()) == 12 and not result.trials["failed"]
    assert result.best["scaling"]["num_workers"] == 2 and result.best["value"] < 1.5
    assert result.bundle is not None and (result.bundle / "MLmodel").is_file()


def test_a_users_loop_without_load_leaves_its_best_checkpoint(clean_ray, tmp_path):
    result = sweeps.run(space_of(tmp_path, "plain"), dir=tmp_path / "runs")
    assert result.trials == {"completed": 4, "pruned": 0, "failed": 0}
    assert result.bundle is None and result.checkpoint is not None
    state = json.loads((result.checkpoint / "state.json").read_text())
    assert state["step"] == 5 and state["loss"] == result.best["value"]


def test_a_users_loop_with_load_leaves_a_bundle(clean_ray, tmp_path):
    import sklearn.datasets

    file = space_of(tmp_path, "plain", extra=', load: "tests.user_loops:load"')
    result = sweeps.run(file, dir=tmp_path / "runs", overrides=("data.train=sklearn:diabetes",))
    assert result.bundle is not None and result.checkpoint is None
    rows = sklearn.datasets.load_diabetes(as_frame=True).data
    assert (sweeps.load_bundle(result.bundle).model_output(rows) == result.best["value"]).all()


def test_a_loop_without_checkpoints_is_searched_all_the_same(clean_ray, tmp_path):
    result = sweeps.run(space_of(tmp_path, "no_checkpoint"), dir=tmp_path / "runs")
    assert result.trials["completed"] == 4 and result.bundle is None and result.checkpoint is None
    assert result.best["value"] < 1.4


def test_five_failures_from_the_start_end_the_sweep_with_the_first_error(clean_ray, tmp_path):
    with pytest.raises(sweeps.SweepFailed, match="the user's own mistake") as e:
        sweeps.run(space_of(tmp_path, "broken", limits="max_trials: 50"), dir=tmp_path / "runs")
    assert "tests/user_loops.py" in str(e.value) and "sweeps/gangs" not in str(e.value), "the user's frames, not ours"
    result = json.loads(next((tmp_path / "runs").glob("own-*/result.json")).read_text())
    assert 5 <= result["trials"]["failed"] <= 7


def test_a_trial_that_fails_leaves_the_others_alone(clean_ray, tmp_path):
    result = sweeps.run(space_of(tmp_path, "sometimes_broken", x="{grid: [0.1, 0.9, 0.2, 0.8]}"), dir=tmp_path / "runs")
    assert result.trials == {"completed": 2, "pruned": 0, "failed": 2}
    assert result.best["params"]["x"] == 0.1


def test_a_metric_that_is_never_reported_is_named_with_those_that_are(clean_ray, tmp_path):
    with pytest.raises(sweeps.InputError) as e:
        sweeps.run(space_of(tmp_path, "unreported"), dir=tmp_path / "runs")
    said = "objective.metric: the objective's metric `loss` was not reported at step 1; the loop reports: accuracy, f1"
    assert str(e.value) == f"{tmp_path / 'own.yaml'}:4:21: {said}"
    assert not (tmp_path / "runs").exists(), "nothing is left behind"


def test_a_metric_that_is_no_number_is_shown(clean_ray, tmp_path):
    with pytest.raises(sweeps.SweepFailed, match=r"`loss` must be a number, got 'good' at step 1"):
        sweeps.run(space_of(tmp_path, "reports_text", limits="max_trials: 1"), dir=tmp_path / "runs")


def test_ranks_that_report_unequally_often_fail(clean_ray, tmp_path):
    with pytest.raises(sweeps.SweepFailed, match="every rank must report equally often; reports were: rank 0 3, rank 1 2"):
        sweeps.run(
            space_of(tmp_path, "reports_unequally", limits="max_trials: 1"),
            dir=tmp_path / "runs",
            overrides=("space.scaling.num_workers=2",),
        )


def test_a_shape_that_can_never_fit_is_refused_with_both_numbers(clean_ray, tmp_path):
    with pytest.raises(sweeps.InputError, match=r"needs 64 CPU \(there are 2\)"):
        sweeps.run(space_of(tmp_path, "plain"), dir=tmp_path / "runs", overrides=("space.scaling.num_workers=64",))


def test_bad_data_is_the_users_error(clean_ray, tmp_path):
    with pytest.raises(sweeps.InputError, match=r"data.label: .*`targt`"):
        sweeps.run(space_of(tmp_path, "plain"), dir=tmp_path / "runs", overrides=("data.label=targt",))


def test_a_time_limit_stops_what_runs_and_keeps_what_finished(clean_ray, tmp_path):
    file = space_of(tmp_path, "held", limits="max_trials: 4, timeout: 15s, max_concurrent_trials: 1", x="{grid: [0.1, 0.2]}")
    result = sweeps.run(file, dir=tmp_path / "runs")
    assert result.reason == "limits.timeout" and result.trials["pruned"] == 1
    assert result.checkpoint is not None, "the best of what there is leaves all the same"


@pytest.mark.parametrize("chain", ["[StandardScaler]", "{choice: [[StandardScaler]]}"], ids=["known beforehand", "sampled"])
def test_trials_that_share_a_preprocessor_fit_it_once_though_they_start_together(clean_ray, tmp_path, chain):
    result = sweeps.run(
        space_of(tmp_path, "plain", limits="max_trials: 4"),
        dir=tmp_path / "runs",
        overrides=(f"space.preprocessor={chain}", "limits.max_concurrent_trials=2"),
    )
    assert result.fits == 1 and result.trials["completed"] == 4


TASKS = {"binary": ("breast_cancer", "logloss"), "multiclass": ("wine", "mlogloss"), "regression": ("diabetes", "rmse")}


# binary with xgboost is the quickstart, multiclass with torch_tabular the digits
@pytest.mark.parametrize(
    "trainer, task", [("xgboost", "multiclass"), ("xgboost", "regression"), ("torch_tabular", "binary"), ("torch_tabular", "regression")]
)
def test_every_trainer_does_every_task_and_leaves_a_bundle_that_knows_its_test_score(clean_ray, tmp_path, trainer, task):
    import sklearn.datasets

    data, metric = TASKS[task]
    tuned = "eta: {loguniform: [0.1, 0.5]}" if trainer == "xgboost" else "lr: {loguniform: [1e-3, 1e-2]}, width: 16"
    file = tmp_path / "task.yaml"
    file.write_text(
        f"""\
trainer: {trainer}
data: {{train: "sklearn:{data}", label: target, valid: 0.2, test: 0.2}}
objective: {{metric: valid-{metric}, goal: minimize}}
search: {{algorithm: random}}
scheduler: {{max_t: 4, name: none}}
limits: {{max_trials: 2}}
space: {{preprocessor: [StandardScaler], params: {{{tuned}}}}}
"""
    )
    result = sweeps.run(file, dir=tmp_path / "runs")
    assert result.trials == {"completed": 2, "pruned": 0, "failed": 0} and result.fits == 1 and not result.notes
    assert 0 < result.best["test"] < 1000
    bundle = sweeps.load_bundle(result.bundle)
    rows = getattr(sklearn.datasets, f"load_{data}")(as_frame=True)
    predicted = bundle.predict(rows.data)["prediction"]
    assert len(predicted) == len(rows.target)
    if task != "regression":
        assert set(predicted) <= set(rows.target)


def test_ctrl_c_keeps_what_finished_and_leaves_the_rest_resumable(tmp_path):
    file = space_of(tmp_path, "held", limits="max_trials: 6, max_concurrent_trials: 1", x="{grid: [0.1, 0.2, 0.3]}")
    process = command("run", file, "--dir", tmp_path / "runs", "--json")
    wait_until(lambda: list(tmp_path.glob("*-0000.two")), 90, "the first trial to hold")
    (tmp_path / "go").touch()
    wait_until(lambda: list(tmp_path.glob("*-0001.two")), 60, "the second trial to begin")
    (tmp_path / "go").unlink()
    wait_until(lambda: list(tmp_path.glob("*-0002.two")) or list(tmp_path.glob("*-0003.two")), 60, "a trial to hold")
    mine = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, signal.SIGINT)  # what a terminal sends: to every process of the group
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    result = json.loads(out)
    assert result["reason"] == "interrupted" and result["trials"]["interrupted"] == 1 and result["trials"]["completed"] >= 2
    assert Path(result["checkpoint"], "state.json").is_file()
    _, alive = psutil.wait_procs(mine, timeout=20)
    assert not alive, alive

    from mlflow.tracking import MlflowClient

    client = MlflowClient(result["mlflow"]["tracking_uri"])
    assert "RUNNING" not in {r.info.status for r in children(client, result)}


def test_a_second_ctrl_c_stops_at_once(tmp_path):
    file = space_of(tmp_path, "held", limits="max_trials: 2, max_concurrent_trials: 1")
    process = command("run", file, "--dir", tmp_path / "runs", "--json")
    wait_until(lambda: list(tmp_path.glob("*-0000.two")), 90, "the first trial to hold")
    mine = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, signal.SIGINT)
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode in (130, -signal.SIGINT)
    _, alive = psutil.wait_procs(mine, timeout=20)
    assert not alive, alive
