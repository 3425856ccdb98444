"""Faults in the environment of a sweep: clock, disk, MLflow's database, other commands, stopped
processes, memory.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from sweeps.core.trial import State
from sweeps.study import record_reader
from tests.commands import command, invoke, space_of
from tests.faults.test_crash import runs_of
from tests.processes import actor_of
from tests.waiting import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(240)]

THREE = "max_trials: 3, max_concurrent_trials: 1"
GRID = "{grid: [0.1, 0.2, 0.3]}"


def ended(process: subprocess.Popen[str], timeout: float = 150) -> dict[str, Any]:
    """Wait for a command with --json to succeed; what it printed."""
    out, err = process.communicate(timeout=timeout)
    assert process.returncode == 0 and "Traceback" not in err, err
    printed: dict[str, Any] = json.loads(out)
    return printed


def test_a_folder_that_cannot_be_written_to(finished_sweep: Any, tmp_path: Path) -> None:
    mounted = tmp_path / "read-only"
    mounted.mkdir()
    if subprocess.run(
        ["mount", "--bind", finished_sweep.parent, mounted], capture_output=True
    ).returncode:
        pytest.skip("only root can mount a folder")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", mounted], check=True)
        for args, code in (
            (("show", "latest"), 0),
            (("ls",), 0),
            (("resume", "latest", "--trust"), 2),
            (("export", "latest", "--trust"), 2),
        ):
            done = invoke(*args, "--dir", mounted)
            assert done.exit_code == code and "Traceback" not in done.output, done.output
            err = done.stderr
            assert (err.count("\n") == 1 and str(mounted) in err) if code else not err
        done = invoke("run", space_of(tmp_path, "plain"), "--dir", mounted)
        assert done.exit_code == 2 and "--dir" in done.stderr, done.stderr
        assert done.stderr.count("\n") == 1, done.stderr
    finally:
        subprocess.run(["umount", "--lazy", mounted], check=True)


@pytest.mark.long
def test_two_sweeps_of_one_name_and_two_resumes_of_one_sweep_at_once(tmp_path: Path) -> None:
    file = space_of(tmp_path, "plain", limits=THREE, x=GRID)
    both = [
        command("run", file, "--dir", tmp_path / "runs", "--cpus", 1, "--json") for _ in range(2)
    ]
    results = [ended(process) for process in both]
    assert len({result["dir"] for result in results}) == 2
    folder = Path(results[0]["dir"])
    both = [command("resume", folder, "--add-trials", 1, "--json") for _ in range(2)]
    said = [(process.communicate(timeout=150), process.returncode) for process in both]
    assert sorted(code for _, code in said) in ([0, 0], [0, 1]), said
    refused = [err for (_, err), code in said if code]
    assert all("is running this sweep" in err and "Traceback" not in err for err in refused)
    study = record_reader.read(folder)
    assert (
        study is not None
        and len({t.number for t in study.trials}) == len(study.trials) >= 3
        and all(t.result.steps == 5 for t in study.trials)
    )
    assert len(runs_of(f"sqlite:///{tmp_path / 'runs' / 'mlflow.db'}", folder.name)) == 1 + len(
        study.trials
    )


@pytest.mark.long  # each waits the minute that MLflow's server may be away
@pytest.mark.parametrize("how", ["locked", "read-only", "deleted"])
def test_mlflows_database(tmp_path: Path, how: str) -> None:
    """The sweep continues. Once the database is writable, a resume sends what MLflow missed."""
    file, database = space_of(tmp_path, "held", limits=THREE, x=GRID), tmp_path / "mlflow.db"
    process = command(
        "run", file, "--dir", tmp_path / "runs", "--tracking-uri", f"sqlite:///{database}", "--json"
    )
    wait_until(lambda: list(tmp_path.glob("*-0000.two")), 90, "the first trial to hold")
    wait_until(
        lambda: list(tmp_path.glob("runs/*/trials/0000/mlflow.json")), 60, "its run in MLflow"
    )
    with contextlib.ExitStack() as lock:
        if how == "locked":
            held = lock.enter_context(
                contextlib.closing(sqlite3.connect(database, timeout=30, isolation_level=None))
            )
            held.execute("begin exclusive")
        elif how == "read-only":
            subprocess.run(["chattr", "+i", database], check=False)
            lock.callback(lambda: subprocess.run(["chattr", "-i", database], check=False))
        else:
            database.unlink()
        (tmp_path / "go").touch()
        result = ended(process)
    assert result["trials"]["completed"] == 3
    folder = Path(result["dir"])
    if result["mlflow"].get("missed"):
        ended(command("resume", folder, "--json"))
    if how != "deleted":
        assert len(runs_of(f"sqlite:///{database}", folder.name)) == 4


@pytest.mark.long
def test_processes_that_stand_still_for_a_while(tmp_path: Path) -> None:
    file = space_of(tmp_path, "held", limits=THREE, x=GRID)
    process = command("run", file, "--dir", tmp_path / "runs", "--json")
    wait_until(lambda: list(tmp_path.glob("*-0000.two")), 90, "the first trial to hold")
    driver = psutil.Process(process.pid)
    names = {p.name(): p for p in driver.children(recursive=True)}
    actors = [actor_of(driver, kind) for kind in ("pool", "data actor", "worker")]
    victims = [
        p for p in (names.get("raylet"), names.get("gcs_server"), *actors, driver) if p is not None
    ]
    assert len(victims) >= 6
    for victim in victims:
        victim.send_signal(signal.SIGSTOP)
        time.sleep(1)  # it is the time that it stands still
        victim.send_signal(signal.SIGCONT)
    (tmp_path / "go").touch()
    result = ended(process)
    assert result["trials"]["completed"] == 3
    study = record_reader.read(Path(result["dir"]))
    assert study is not None and [t.attempt for t in study.trials] == [1, 1, 1]


def low_on_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> subprocess.Popen[str]:
    """Run a sweep of two trials. The second takes memory up to 4 GiB more than is used now."""
    used, total = (
        psutil.virtual_memory().total - psutil.virtual_memory().available,
        psutil.virtual_memory().total,
    )
    monkeypatch.setenv("RAY_memory_usage_threshold", f"{(used + (4 << 30)) / total:.4f}")
    file = space_of(
        tmp_path,
        "grows",
        limits="max_trials: 2, max_concurrent_trials: 1, max_failures: 0",
        x="{grid: [0.0, 1.0]}",
    )
    return command("run", file, "--dir", tmp_path / "runs", "--json")


def test_a_trial_that_takes_too_much_memory_fails_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = ended(low_on_memory(tmp_path, monkeypatch))
    assert result["trials"] == {"completed": 1, "pruned": 0, "failed": 1}
    study = record_reader.read(Path(result["dir"]))
    assert study is not None
    (failed,) = (t for t in study.trials if t.result.state is State.FAIL)
    assert failed.params["x"] == 1.0 and "memory" in (failed.result.error or "")


@pytest.mark.long
def test_no_process_of_mlflow_or_of_the_sweep_is_left(tmp_path: Path) -> None:
    """Check that no process of these tests is left."""
    left = [p for p in psutil.process_iter() if _of(p, tmp_path.parent)]
    assert not left, left


def _of(process: psutil.Process, folder: Path) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.pid != os.getpid() and any(str(folder) in part for part in process.cmdline())
    return False
