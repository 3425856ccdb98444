"""The quickstart, and a sweep that is interrupted, as a user runs them: each a command in a process
of its own.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import signal
import time
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import psutil
import pytest

import sweeps
from docs.generate import sweep_files
from sweeps.exports import sweep_exports
from tests.commands import REPO, command, invoke, space_of
from tests.waiting import wait_until

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.tracking import MlflowClient

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(240)]
SPACES = REPO / "search_spaces"
STOPS_WITHIN = 30  # seconds


def children(client: MlflowClient, result: Any) -> list[Run]:
    experiment = client.get_experiment_by_name(result["mlflow"]["experiment"])
    assert experiment is not None
    where = f"tags.`mlflow.parentRunId` = '{result['mlflow']['parent_run']}'"
    return list(client.search_runs([experiment.experiment_id], where))


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> Any:
    root = tmp_path_factory.mktemp("quickstart")
    process = command("run", SPACES / "quickstart.yaml", "--dir", root, "--json", new_database=True)
    out, err = process.communicate(timeout=230)
    assert process.returncode == 0, err
    return root, json.loads(out), err


def test_quickstart_prints_only_one_json_object(quickstart: Any) -> None:
    root, result, err = quickstart
    assert err == ""
    assert set(result) == {"sweep", "dir", "trials", "best", "bundle", "mlflow", "fits", "seconds"}
    assert set(result["best"]) == {
        "trial",
        "value",
        "test",
        "choice",
        "metrics",
        "params",
        "preprocessor",
        "scaling",
        "bytes",
        "rows_per_second",
        "new_rows",
    }
    assert set(result["trials"]) == {"completed", "pruned", "failed"}
    assert (
        sum(result["trials"].values()) == 16
        and result["trials"]["failed"] == 0
        and result["trials"]["pruned"] > 0
    )
    assert result["fits"] == 2
    assert result["best"]["value"] < 0.3 and result["best"]["test"] < 0.4
    assert Path(result["bundle"]).is_dir() and Path(result["dir"]).parent == root


def test_every_file_of_the_sweep_is_in_the_reference(quickstart: Any) -> None:
    root, result, _ = quickstart
    folder = Path(result["dir"])
    inside = [path for path in folder.rglob("*") if path.is_file()]
    patterns = [
        pattern.replace("/ID/", "/*/").replace("-N", "-*").replace("ID", "*")
        for pattern in sweep_files.FILES
    ]
    for path in inside:
        name = path.relative_to(folder).as_posix()
        assert any(
            fnmatch(name, pattern + "*" if pattern.endswith("/") else pattern)
            for pattern in patterns
        ), name
    beside = {f"{path.name}/" if path.is_dir() else path.name for path in root.iterdir()} - {
        folder.name + "/"
    }
    assert beside <= set(sweep_files.ROOT)


def test_two_workers_run_every_trial_of_the_quickstart(quickstart: Any) -> None:
    """Half of the trials have one worker, the others two."""
    _, result, _ = quickstart
    logs = [log.read_text() for log in Path(result["dir"]).glob("trials/*/logs/rank-*.log")]
    assert len(logs) == 24 and {
        worker for log in logs for worker in re.findall(r"on (worker-\d+)", log)
    } == {"worker-001", "worker-002"}


def test_mlflow_has_every_trial_of_the_quickstart(quickstart: Any) -> None:
    from mlflow.tracking import MlflowClient

    _, result, _ = quickstart
    client = MlflowClient(result["mlflow"]["tracking_uri"])
    runs = children(client, result)
    assert len(runs) == 16 and {r.info.status for r in runs} == {"FINISHED"}
    assert (
        sorted(r.data.tags["sweeps.state"] for r in runs).count("PRUNED")
        == result["trials"]["pruned"]
    )
    cells = [(r.data.params["preprocessor"], r.data.params["scaling.num_workers"]) for r in runs]
    assert {cells.count(c) for c in cells} == {4}, "every cell gets the same number of trials"
    best = next(r for r in runs if r.data.tags["sweeps.trial"] == result["best"]["trial"])
    assert best.data.metrics["objective"] == result["best"]["value"]
    assert float(best.data.params["params.eta"]) == result["best"]["params"]["eta"]
    assert len(client.get_metric_history(best.info.run_id, "valid-logloss")) == 50
    others = {
        f"final/{name}"
        for name in (
            "train-logloss",
            "train-error",
            "train-auc",
            "valid-error",
            "valid-accuracy",
            "valid-auc",
        )
    }
    for run in runs:
        final = {name for name in run.data.metrics if name.startswith("final/")}
        assert final == (others if run.data.tags["sweeps.state"] == "COMPLETE" else set())
    parent = client.get_run(result["mlflow"]["parent_run"])
    assert (
        parent.info.status == "FINISHED" and len(parent.data.tags["sweeps.data_fingerprint"]) == 64
    )
    artifacts = {a.path for a in client.list_artifacts(parent.info.run_id)}
    assert {"space.yaml", "result.json"} <= artifacts


def test_quickstart_bundle_predicts_from_raw_rows(quickstart: Any, tmp_path: Path) -> None:
    import sklearn.datasets

    _, result, _ = quickstart
    data = sklearn.datasets.load_breast_cancer(as_frame=True)
    data.data.to_csv(tmp_path / "rows.csv", index=False)
    done = invoke(
        "predict", result["bundle"], tmp_path / "rows.csv", "-o", tmp_path / "out.parquet"
    )
    assert done.exit_code == 0, done.stderr
    out = pd.read_parquet(tmp_path / "out.parquet")
    assert len(out) == len(data.data) and (out["prediction"] == data.target).mean() > 0.9


def test_quickstart_other_trials_can_be_exported(
    quickstart: Any, checked_in_this_process: Any, tmp_path: Path
) -> None:
    _, result, _ = quickstart
    other = "0001" if result["best"]["trial"] != "0001" else "0000"
    bundle = sweep_exports.export(result["dir"], trial=other, output=tmp_path / "other")[0].path
    assert (bundle / "MLmodel").is_file() and sweeps.load_bundle(bundle).manifest.training[
        "trial"
    ] == other
    done = invoke("export", result["dir"], "--trial", "99")
    assert done.exit_code == 2 and "no trial `99`" in done.stderr


def test_registry_alias_stays_with_the_better_trial(
    quickstart: Any, checked_in_this_process: Any
) -> None:
    from mlflow.tracking import MlflowClient

    _, result, _ = quickstart
    shown = json.loads(invoke("show", result["dir"], "--json").stdout)["all"]
    worse = next(
        t["trial"]
        for t in shown
        if t["state"] == "COMPLETE" and t["trial"] != result["best"]["trial"]
    )

    def exported(*options: str) -> tuple[Path, list[str]]:
        done = invoke(
            "export", result["dir"], "--register", "tumours", "--alias", "champion", *options
        )
        assert done.exit_code == 0, done.stderr
        return Path(done.stdout.strip()), done.stderr.splitlines()

    first, said = exported()
    digest = (first / "manifest.sha256").read_text().split()[0]
    assert (
        first == Path(result["dir"], "exports", result["best"]["trial"])
        and said[0] == f"SHA-256 of the bundle's manifest: {digest}"
    )
    assert (
        said[1].startswith("registered this bundle as tumours version 1, for the MLflow run ")
        and said[2] == "alias champion now refers to version 1"
    )
    _, said = exported("--trial", worse)
    assert said[2].startswith("alias champion stays at version 1: valid-logloss ") and said[
        2
    ].endswith("is not better; to move the alias anyway, use --force")
    again, said = exported()
    assert again == first, "what lies there is taken again"
    assert said[1:] == [
        "this bundle is already registered as tumours version 1",
        "alias champion already refers to version 1",
    ]
    assert exported("--trial", worse, "--force")[1][1:] == [
        "this bundle is already registered as tumours version 2",
        "alias champion moved from version 1 to version 2: because of --force",
    ]
    client = MlflowClient(result["mlflow"]["tracking_uri"])
    champion, was = (
        client.get_model_version_by_alias("tumours", "champion"),
        client.get_model_version("tumours", "1"),
    )
    assert (champion.tags["sweeps.trial"], was.tags["sweeps.trial"]) == (
        worse,
        result["best"]["trial"],
    )
    assert was.tags["sweeps.manifest_sha256"] == digest
    assert champion.run_id is not None
    assert client.get_run(champion.run_id).data.tags["sweeps.trial"] == worse


def test_quickstart_can_be_moved_and_exported(
    quickstart: Any, checked_in_this_process: Any, tmp_path: Path
) -> None:
    _, result, _ = quickstart
    shutil.copytree(result["dir"], tmp_path / "moved")
    hidden = Path(result["dir"]).with_name("gone")
    Path(result["dir"]).rename(hidden)
    try:
        sweep_exports.export(tmp_path / "moved", output=tmp_path / "bundle")
        assert (tmp_path / "bundle" / "MLmodel").is_file()
    finally:
        hidden.rename(result["dir"])


def group_int(pid: int) -> None:
    os.killpg(pid, signal.SIGINT)


def one_term(pid: int) -> None:
    os.kill(pid, signal.SIGTERM)


def group_term(pid: int) -> None:
    """As `timeout` does: to the process, then to its group."""
    os.kill(pid, signal.SIGTERM)
    os.killpg(pid, signal.SIGTERM)


def group_hup(pid: int) -> None:
    """As a terminal that is closed: from the kernel and from the shell."""
    os.killpg(pid, signal.SIGHUP)
    os.killpg(pid, signal.SIGHUP)


# A terminal sends Ctrl-C to every process of the group; Slurm, Kubernetes and systemd end the one
# they started.
@pytest.mark.parametrize(
    "send",
    [
        group_int,
        pytest.param(one_term, marks=pytest.mark.long),
        pytest.param(group_term, id="r4_group_term", marks=pytest.mark.faults),
        pytest.param(group_hup, id="r4_group_hup", marks=pytest.mark.long),
    ],
)
def test_ctrl_c_keeps_finished_trials_and_the_others_can_be_resumed(
    tmp_path: Path, send: Any
) -> None:
    file = space_of(
        tmp_path,
        "held",
        limits="max_trials: 6, max_concurrent_trials: 1",
        x="{grid: [0.1, 0.2, 0.3]}",
        data=False,
    )
    process = command("run", file, "--dir", tmp_path / "runs", "--json")

    def holding(number: int) -> list[Path]:
        return list(tmp_path.glob(f"*-{number:04d}.two"))

    for number in range(2):
        wait_until(functools.partial(holding, number), 90, f"trial {number} to hold")
        holding(number)[0].with_suffix(".go").touch()
    wait_until(functools.partial(holding, 2), 60, "the third trial to hold")
    mine = psutil.Process(process.pid).children(recursive=True)
    # By Ray's default the training would stand behind everything else, MLflow's process but a step
    # behind it
    assert {p.nice() for p in mine if "ray::" in " ".join(p.cmdline())} == {psutil.Process().nice()}
    asked = time.monotonic()
    send(process.pid)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    result = json.loads(out)
    assert (
        result["reason"] == "interrupted"
        and result["trials"]["interrupted"] == 1
        and result["trials"]["completed"] >= 2
    )
    assert Path(result["checkpoint"], "state.json").is_file()
    assert time.monotonic() - asked < STOPS_WITHIN
    _, alive = psutil.wait_procs(mine, timeout=20)
    assert not alive, alive

    from mlflow.tracking import MlflowClient

    client = MlflowClient(result["mlflow"]["tracking_uri"])
    assert "RUNNING" not in {r.info.status for r in children(client, result)}


@pytest.mark.long
def test_a_second_ctrl_c_stops_at_once(tmp_path: Path) -> None:
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
