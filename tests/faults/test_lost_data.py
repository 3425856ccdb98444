"""The process that holds the data is killed: a new one prepares the data again, and no trial fails
because of this.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray

from sweeps.core.trial import State
from tests.commands import command, invoke
from tests.execution.driving import Driving, job, trial
from tests.processes import actor_of
from tests.waiting import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(240)]

STEPS = """\
import os
import signal
import time
from pathlib import Path
from typing import Any


def latched(frame):
    here = Path({folder!r})
    (here / f"fit-{{os.getpid()}}").touch()
    while not (here / "fit").exists():
        time.sleep(0.02)
    return frame / 2


def deadly(frame):
    os.kill(os.getpid(), signal.SIGSEGV)
"""
SPACE = """\
name: own
trainer: {{loop: "tests.user_loops:held", backend: none}}
data: {{train: rows.csv, label: y, valid: 0.5}}
objective: {{metric: loss, goal: minimize}}
limits: {{max_trials: 4, max_failures: 0, max_concurrent_trials: 1}}
space:
  preprocessor: {{grid: [{chains}]}}
  params: {{x: {{uniform: [0.0, 1.0]}}, latch: {folder}}}
"""


def sweep(folder: Path, chains: str) -> subprocess.Popen[str]:
    """Run a sweep of four trials. The first one holds until the file `go` exists."""
    (folder / "rows.csv").write_text("a,y\n" + "".join(f"{i},{i % 2}\n" for i in range(40)))
    (folder / "lost_data_steps.py").write_text(STEPS.format(folder=str(folder)))
    (folder / "own.yaml").write_text(SPACE.format(folder=folder, chains=chains))
    return command("run", folder / "own.yaml", "--dir", folder / "runs", "--json")


def kill_data_actor(process: subprocess.Popen[str], how: signal.Signals = signal.SIGKILL) -> None:
    driver = psutil.Process(process.pid)
    # Ray changes the title of the process when a call begins.
    data_process = wait_until(
        lambda: actor_of(driver, "data actor"), 30, "the process that holds the data"
    )
    os.kill(data_process.pid, how)
    wait_until(lambda: not psutil.pid_exists(data_process.pid), 10, "the process to end")


def recorded(folder: str) -> list[dict[str, Any]]:
    """Return the trials of a sweep, as `sweeps show --json` prints them."""
    shown = invoke("show", folder, "--json")
    assert shown.exit_code == 0, shown.stderr
    trials: list[dict[str, Any]] = json.loads(shown.stdout)["all"]
    return trials


def test_sweep_outlives_its_data_actor(
    tmp_path: Path,
) -> None:
    process = sweep(tmp_path, '["StandardScaler"], ["lost_data_steps:latched"]')
    wait_until(lambda: list(tmp_path.glob("own-0000.two")), 120, "the first trial to hold")
    kill_data_actor(process)
    (tmp_path / "go").touch()
    wait_until(lambda: list(tmp_path.glob("fit-*")), 60, "the second chain to be fitted")
    kill_data_actor(process)
    (tmp_path / "fit").touch()
    out, err = process.communicate(timeout=180)
    assert process.returncode == 0, err
    result = json.loads(out)
    assert result["trials"] == {"completed": 4, "pruned": 0, "failed": 0} and result["fits"] == 2
    assert len(list(tmp_path.glob("fit-*"))) == 2, "the fit was repeated in a new process"
    trials = recorded(result["dir"])
    assert [one["attempts"] for one in trials] == [1, 1, 1, 1], (
        "no trial had to run again: each had its data, or waited for it"
    )


def test_changed_data_ends_sweep_and_fails_no_trial(clean_ray: Any, tmp_path: Path) -> None:
    process = sweep(tmp_path, '["StandardScaler"], ["lost_data_steps:latched"]')
    (tmp_path / "go").touch()
    wait_until(lambda: list(tmp_path.glob("fit-*")), 120, "the second chain to be fitted")
    kill_data_actor(process)
    before = (tmp_path / "rows.csv").read_text()
    (tmp_path / "rows.csv").write_text(before + "99,1\n")
    (tmp_path / "fit").touch()
    out, err = process.communicate(timeout=120)
    assert process.returncode == 1 and not out and "Traceback" not in err, err
    assert (
        "own.yaml:3:15: data.train: the data has changed since the sweep began: its fingerprint "
        "was" in err.splitlines()[-1]
    )
    assert "Restore the data, then continue: " in err.splitlines()[-1]
    (tmp_path / "rows.csv").write_text(before)
    done = invoke("resume", next((tmp_path / "runs").glob("own-*")), "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["trials"] == {"completed": 4, "pruned": 0, "failed": 0}


@pytest.mark.long
def test_chain_that_kills_data_actor_fails_only_its_trials(tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    process = sweep(tmp_path, '["StandardScaler"], ["lost_data_steps:deadly"]')
    out, err = process.communicate(timeout=180)
    assert process.returncode == 0, err
    result = json.loads(out)
    assert result["trials"] == {"completed": 2, "pruned": 0, "failed": 2}
    trials = recorded(result["dir"])
    error = next(one["error"] for one in trials if one["error"])
    assert (
        "the process that holds the data was lost: the process died of SIGSEGV" in error
        and "3 times in a row" in error
    )
    assert "\n" not in error.strip()


@pytest.mark.long
def test_unreadable_data_is_retried_without_counting_failure(
    clean_ray: Any, tmp_path: Path
) -> None:
    with Driving(
        job("tests.execution.loops:reads_late", "none"), tmp_path, max_failures=0
    ) as driving:
        one = trial(0, {"folder": str(tmp_path)}, 1, "none")
        driving.start(one)
        wait_until((tmp_path / "begun").exists, 60, "the loop to begin")
        pid = ray.get(driving.data_actor.pid.remote())
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not psutil.pid_exists(pid), 10, "the process to end")
        (tmp_path / "go").touch()
        outcome, reports = driving.finish(one)
        assert outcome.state is State.COMPLETE and outcome.attempt == 2, outcome.error
        assert [report.metrics["loss"] for report in reports] == [256.0], (
            "it read the rows that the new process has prepared"
        )
        assert ray.get(driving.data_actor.pid.remote()) != pid
