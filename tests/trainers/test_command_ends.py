"""The end of a script that the trainer `command` runs: signals, failures, processes left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from sweeps.trainers._script_run import ScriptFailed
from tests.commands import REPO
from tests.trainers.command_scripts import LINES, losses, record, run
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("script_environment")


STOPS = """
import os, signal, subprocess, sys, time
from pathlib import Path
import sweeps

child = subprocess.Popen(["sh", "-c", "trap '' TERM; while :; do sleep 0.1; done"])
Path("pids").write_text(f"{os.getpid()} {child.pid}")

def stop(*args):
    Path("terminated").touch()
    if IGNORES:
        return
    child.kill()
    sys.exit(0)

signal.signal(signal.SIGTERM, stop)
while True:
    sweeps.report(loss=1)
    time.sleep(0.01)
"""


def alive(folder: Path) -> list[int]:
    return [pid for pid in map(int, (folder / "pids").read_text().split()) if runs(pid)]


def runs(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize(("ignores", "code"), [(False, 0), (True, -9)])
def test_a_stopped_script_gets_sigterm_and_after_the_grace_time_sigkill(
    tmp_path: Path, ignores: bool, code: int
) -> None:
    done = run(
        tmp_path,
        f"IGNORES = {ignores}\n{STOPS}",
        stop_at=2,
        options={"grace_seconds": 1.0 if ignores else 30.0},
    )
    assert (
        len(done.metrics) == 2
        and (tmp_path / "terminated").exists()
        and record(tmp_path)["exit_code"] == code
    )
    wait_until(lambda: not alive(tmp_path), 5, "the processes to end")


def test_a_paused_script_that_is_stopped_gets_sigterm(tmp_path: Path) -> None:
    script = LINES.replace("import json, sys", "import signal, json, sys").replace(
        "step, loss = 0", "signal.signal(signal.SIGTERM, lambda *a: sys.exit(5))\nstep, loss = 0"
    )
    assert len(run(tmp_path, script, stop_at=3).metrics) == 3
    assert record(tmp_path)["exit_code"] == 5


def test_processes_that_a_script_leaves_behind_are_killed(tmp_path: Path) -> None:
    script = """
import subprocess
child = subprocess.Popen(["sh", "-c", "while :; do echo still here >&2; sleep 0.01; done"])
open("pids", "w").write(str(child.pid))
print('{"loss": 1}', flush=True)
"""
    assert losses(run(tmp_path, script)) == [1]
    wait_until(lambda: not alive(tmp_path), 5, "the child to end")
    with pytest.raises(ScriptFailed, match="ended by the signal SIGSEGV"):
        run(tmp_path, f"import os\nos.kill(os.getpid(), {int(signal.SIGSEGV)})\n")


def test_exit_code_fails_trial_with_end_of_standard_error(tmp_path: Path) -> None:
    script = (
        "import sys\nprint('x' * 10**6, file=sys.stderr)\n"
        "print('{\"loss\": 1}')\nraise ZeroDivisionError('by zero')\n"
    )
    with pytest.raises(ScriptFailed) as e:
        run(tmp_path, script)
    text = str(e.value)
    assert (
        "train.py 0.5 4" in text
        and "ended with exit code 1; its last lines on standard error:\n" in text
    )
    assert text.endswith("ZeroDivisionError: by zero") and len(text) < 20_000
    assert record(tmp_path)["exit_code"] == 1


def test_script_without_report_fails_with_three_ways_to_report(tmp_path: Path) -> None:
    with pytest.raises(
        ScriptFailed,
        match=r"has not reported `loss`; call sweeps.report\(loss=...\), print a line of JSON"
        r".*; its output has lines such as `loss: 1`, which sweeps does not read$",
    ):
        run(tmp_path, "print('epoch 1 | val_loss: 3 | loss: 1')\nprint('done')")


def test_a_script_that_prints_another_metric_gets_a_hint(tmp_path: Path) -> None:
    with pytest.raises(
        ScriptFailed,
        match=r"has not reported `loss`; .*; its last line of JSON has `epoch` and `valid.lose`$",
    ):
        run(tmp_path, 'print(\'{"epoch": 1, "valid": {"lose": 1}, "note": "x"}\')')


def test_a_program_that_does_not_exist_fails_the_trial(tmp_path: Path) -> None:
    with pytest.raises(ScriptFailed, match="`pyton` cannot be started: No such file or directory"):
        run(tmp_path, "", "pyton", "train.py")


WORKER = """
import sys
from pathlib import Path
from tests.trainers.command_scripts import run
from tests.trainers.test_command_ends import STOPS

run(Path(sys.argv[1]), f"IGNORES = True\\n{STOPS}")
"""


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.parametrize("with_children", [False, True], ids=["alone", "with its children"])
def test_nothing_is_left_when_the_worker_is_killed(tmp_path: Path, with_children: bool) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    environment = os.environ | {"TMPDIR": str(temporary), "PYTHONPATH": str(REPO)}
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, str(tmp_path)], env=environment, cwd=REPO
    )
    try:
        checkpoints = tmp_path / "trial" / "script_checkpoint"
        wait_until(
            lambda: (
                (tmp_path / "pids").exists() and len((tmp_path / "pids").read_text().split()) == 2
            ),
            60,
            "the script to start",
        )
        assert len(alive(tmp_path)) == 2 and checkpoints.exists()
    finally:
        for child in psutil.Process(worker.pid).children() if with_children else ():
            child.kill()  # Ray does so before it ends a worker.
        worker.kill()
        worker.wait()
    wait_until(lambda: not alive(tmp_path), 10, "the script and its child to end")
    wait_until(
        lambda: not [*temporary.glob("sweeps-script-*"), *checkpoints.parent.glob("script_*")],
        10,
        "the folders to be removed",
    )
