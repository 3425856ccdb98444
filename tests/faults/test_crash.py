"""SIGKILL of the driver, of Ray and of everything: `sweeps resume` continues as if nothing had
happened.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from sweeps import space as space_file
from sweeps.space.python.saved_space import save_space
from sweeps.study import record_reader
from tests.commands import command, invoke, mlflow_database, space_of
from tests.faults.crashing import POINTS
from tests.search.test_crash import drive
from tests.waiting import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(240)]

SPACE = """\
name: crash
trainer: {{loop: "tests.user_loops:plain", backend: none}}
data: {{train: "sklearn:iris", label: target, valid: 0.2}}
objective: {{metric: loss, goal: minimize}}
search: {{algorithm: tpe, seed: 3}}
scheduler: {{name: asha, max_t: 4, grace_period: 2, reduction_factor: 2}}
limits: {{max_trials: {trials}, max_concurrent_trials: 1}}
space:
  preprocessor: {{grid: [StandardScaler, none]}}
  params: {{x: {{uniform: [0.0, 1.0]}}, latch: /tmp}}
"""


def outcome(folder: Path) -> tuple[Any, ...]:
    """Return the result of a sweep without times: every trial with its values, and the best one."""
    study = record_reader.read(folder)
    assert study is not None and study.best is not None
    trials = [
        (t.id, t.result.state.name, t.params, t.trial.chain, t.trial.seed, t.result.value, t.curve)
        for t in study.trials
    ]
    return trials, study.best.id


def runs_of(uri: str, name: str) -> dict[str, tuple[str, str, dict[str, list[tuple[int, float]]]]]:
    """Return status, tag and metrics of each trial of a sweep in MLflow.

    Check that none appears twice and none is RUNNING.
    """
    from mlflow.tracking import MlflowClient

    client = MlflowClient(uri)
    run_of_trial = {}
    for run in client.search_runs(
        [e.experiment_id for e in client.search_experiments()], f"tags.`sweeps.sweep` = '{name}'"
    ):
        assert run.info.status != "RUNNING"
        trial = run.data.tags.get("sweeps.trial", "sweep")
        assert trial not in run_of_trial, "a run is there twice"
        history = {
            m: [(p.step, p.value) for p in client.get_metric_history(run.info.run_id, m)]
            for m in ("loss", "objective")
        }
        run_of_trial[trial] = (run.info.status, run.data.tags.get("sweeps.state", ""), history)
    return run_of_trial


def in_mlflow(folder: Path, uri: str) -> None:
    """Check that MLflow has every trial once, as the study has it."""
    study, runs = record_reader.read(folder), runs_of(uri, folder.name)
    assert (
        study is not None
        and set(runs) == {"sweep", *(t.id for t in study.trials)}
        and runs["sweep"][0] == "FINISHED"
    )
    for t in study.trials:
        status, state, history = runs[t.id]
        assert (status, state) == ("FINISHED", t.result.state.name)
        assert tuple(history["loss"]) == t.curve and history["objective"] == [(0, t.result.value)]


def ended(process: subprocess.Popen[str], code: int = 0) -> str:
    out, err = process.communicate(timeout=150)
    assert process.returncode == code, err
    return out


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{shutil.copy(mlflow_database(), tmp_path_factory.mktemp('mlflow'))}"


def crashing(point: str, *args: object) -> subprocess.Popen[str]:
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    full = [sys.executable, "-m", "tests.faults.crashing", point, *map(str, args)]
    return subprocess.Popen(
        full,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
        start_new_session=True,
    )


def through(
    points: list[str],
    tmp_path: Path,
    uri: str,
    trials: int,
    text: str = SPACE,
    end_here: bool = False,
) -> Path:
    """Kill one sweep at each point in turn, resume it after each kill, and return its folder.

    With `end_here`, the last resume runs in this process.
    """
    file = tmp_path / "crash.yaml"
    file.write_text(text.format(trials=trials))
    first = True
    for point in points:
        args = ("run", file, "--tracking-uri", uri) if first else ("resume", "latest")
        ended(crashing(point, *args, "--dir", tmp_path / "runs", "-q"), -signal.SIGKILL)
        first = False
    last = ("resume", "latest", "--dir", tmp_path / "runs", "--json")
    result = json.loads(invoke(*last).stdout if end_here else ended(command(*last)))
    assert sum(result["trials"].values()) == trials and "interrupted" not in result["trials"]
    assert Path(result.get("checkpoint") or result["bundle"]).is_dir()
    folder = Path(result["dir"])
    assert not list(folder.glob(".*")) and not (folder / "ray.json").exists()
    assert sorted(f.name for f in folder.glob("trials/*/checkpoint_*")) != []
    return folder


def test_kill_before_recorded_end_gives_the_same_result(
    clean_ray: Any, tmp_path: Path, uri: Any
) -> None:
    file, _, whole = written(tmp_path / "whole", 3)
    space = space_file.load(file)
    whole.mkdir()
    save_space(whole, space, 0.0)
    drive(
        space, whole, lambda trial, step: trial.params["x"] + 1 / step, max_t=4
    )  # what `plain` reports, without Ray
    folder = through(["end"], tmp_path, uri, 3, end_here=True)
    assert outcome(folder) == outcome(whole)
    in_mlflow(folder, uri)


@pytest.mark.long
@pytest.mark.timeout(400)
def test_paused_trials_survive_kill_with_the_same_result(tmp_path: Path, uri: Any) -> None:
    text = SPACE.replace("reduction_factor: 2}}", "reduction_factor: 2, type: promotion}}")
    file, _, whole = written(tmp_path / "whole", 5, text)
    space = space_file.load(file)
    whole.mkdir()
    save_space(whole, space, 0.0)
    drive(space, whole, lambda trial, step: trial.params["x"] + 1 / step, max_t=4)
    folder = through(["rung", "pause"], tmp_path, uri, 5, text)
    assert outcome(folder) == outcome(whole)
    in_mlflow(folder, uri)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_sweep_killed_where_state_is_written_ends_with_the_same_result(
    tmp_path: Path, uri: Any
) -> None:
    whole = json.loads(
        ended(command("run", *written(tmp_path / "whole", 12), "--tracking-uri", uri, "--json"))
    )
    folder = through(list(POINTS), tmp_path, uri, 12)
    assert outcome(folder) == outcome(Path(whole["dir"]))
    in_mlflow(folder, uri)


def written(folder: Path, trials: int, text: str = SPACE) -> tuple[Path, str, Path]:
    folder.mkdir()
    (folder / "crash.yaml").write_text(text.format(trials=trials))
    return folder / "crash.yaml", "--dir", folder / "runs"


def processes_of(folder: Path) -> list[psutil.Process]:
    """Return the sweep's record of its Ray."""
    noted = json.loads((folder / "ray.json").read_text())
    return [psutil.Process(int(pid)) for pid in noted["pids"]]


@pytest.mark.long
def test_resume_continues_from_checkpoint_after_ray_was_killed(tmp_path: Path, uri: Any) -> None:
    file = space_of(tmp_path, "held", limits="max_trials: 2, max_concurrent_trials: 1")
    process = command("run", file, "--dir", tmp_path / "runs", "--tracking-uri", uri)
    wait_until(lambda: list(tmp_path.glob("own-0000.two")), 120, "the first trial to hold")
    folder = next((tmp_path / "runs").glob("own-*"))
    wait_until(
        lambda: "checkpoint_000002" in (folder / "study.journal").read_text(),
        60,
        "its checkpoint to be on record",
    )
    refused = command("resume", folder)
    assert "is running this sweep" in refused.communicate(timeout=60)[1] and refused.returncode == 1
    rays = processes_of(folder)
    raylet = next(p for p in rays if "raylet" in p.name())
    raylet.kill()
    _, err = process.communicate(timeout=60)
    assert (
        process.returncode == 1
        and f"sweeps resume {folder}" in err
        and "has died; everything that was recorded is safe" in err
    )
    (folder / "trials" / "0000" / "checkpoint_000003").mkdir()
    (tmp_path / "go").touch()
    result = json.loads(ended(command("resume", folder, "--json")))
    assert result["trials"] == {"completed": 2, "pruned": 0, "failed": 0}
    starts = sorted(
        f.name.split("started-at-")[1].split(".")[0] for f in tmp_path.glob("own-0000.started-at-*")
    )
    assert starts == ["0", "2"], "it went on from its checkpoint"
    assert not [p for p in rays if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
    in_mlflow(folder, uri)
    again = command("resume", folder)
    assert "nothing is left to do: every trial has ended" in ended(again)
    more = json.loads(ended(command("resume", folder, "--add-trials", "1", "--json")))
    assert (
        more["trials"]["completed"] == 3
        and json.loads((folder / "origin.json").read_text())["max_trials"] == 3
    )
    in_mlflow(folder, uri)


@pytest.mark.long
def test_ctrl_c_prints_the_resume_command_which_continues(tmp_path: Path, uri: Any) -> None:
    file = space_of(tmp_path, "held", limits="max_trials: 2, max_concurrent_trials: 1")
    process = command("run", file, "--dir", tmp_path / "runs", "--tracking-uri", uri)
    wait_until(lambda: list(tmp_path.glob("own-0000.two")), 120, "the first trial to hold")
    process.send_signal(signal.SIGINT)
    out = ended(process, 130)
    folder = next((tmp_path / "runs").glob("own-*"))
    assert f"sweeps resume {folder}" in out
    (tmp_path / "go").touch()
    result = json.loads(ended(command("resume", folder, "--json")))
    assert result["trials"] == {"completed": 2, "pruned": 0, "failed": 0} and "reason" not in result
    in_mlflow(folder, uri)
