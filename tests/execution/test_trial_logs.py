"""The output of a rank goes to the log of its trial, and nowhere else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sweeps.core.text.secrets import remember
from sweeps.execution.worker import trial_logs

SAID = """
import ctypes, logging, os, sys
from sweeps.execution.worker import trial_logs
logging.basicConfig(level=logging.INFO, format="%(message)s")
print("before")
with trial_logs.redirect_output(trial_logs.log_of(sys.argv[1], 0), "trial 0001") as say:
    print("printed")
    print("to stderr", file=sys.stderr)
    logging.info("by a handler that was made earlier")
    ctypes.CDLL(None).puts(b"by C")
    os.system("echo by a child")
    sys.stdout = open(os.devnull, "w"); sys.stdout.close()
    say("the end")
sys.stdout = sys.__stdout__
print("after")
"""


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_all_that_a_process_prints_goes_to_the_trials_log(tmp_path: Path, unbuffered: str) -> None:
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(
        [sys.executable, "-c", SAID, tmp_path],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    assert done.stdout == "before\nafter\n" and done.stderr == ""
    lines = (tmp_path / "logs" / "rank-0.log").read_text().splitlines()
    assert (
        lines[0].startswith("--- 20")
        and lines[0].endswith("trial 0001")
        and lines[-1] == "--- the end"
    )
    said = {"printed", "to stderr", "by a handler that was made earlier", "by C", "by a child"}
    assert set(lines[1:-1]) == said


LEAKS = """
import os, sys
from sweeps.core.text.secrets import remember
from sweeps.execution.worker import trial_logs
remember(os.environ["MY_TOKEN"])
with trial_logs.redirect_output(trial_logs.log_of(sys.argv[1], 0), "trial 0001"):
    print("printed", os.environ["MY_TOKEN"])
    os.write(2, b"by native code " + os.environb[b"MY_TOKEN"] + b"\\xff\\n")
    os.system("echo by a child $MY_TOKEN")
"""


def test_a_log_has_no_secret_of_any_process(tmp_path: Path) -> None:
    environment = {**os.environ, "MY_TOKEN": "a/secret é"}
    subprocess.run([sys.executable, "-c", LEAKS, tmp_path], check=True, env=environment)
    lines = (tmp_path / "logs" / "rank-0.log").read_bytes().splitlines()
    assert lines[1:] == [b"printed ***", b"by native code ***\xff", b"by a child ***"]


def test_the_log_of_a_killed_worker_has_no_secret_but_links_stay(tmp_path: Path) -> None:
    remember("my-own-secret")
    mine = tmp_path / "mine"
    mine.write_text("my-own-secret")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "rank-0.log").write_text("my-own-secret")
    logs = [tmp_path / "sweep" / "trials" / trial / "logs" for trial in ("0000", "0001")]
    logs[0].mkdir(parents=True)
    (logs[0] / "rank-0.log").write_text("it is my-own-secret\n")
    (logs[0] / "rank-1.log").symlink_to(mine)
    logs[1].parent.mkdir()
    logs[1].symlink_to(tmp_path / "other")
    trial_logs.hide_secrets_in(tmp_path / "sweep")
    assert (logs[0] / "rank-0.log").read_text() == "it is ***\n"
    assert mine.read_text() == (logs[1] / "rank-0.log").read_text() == "my-own-secret"


def test_a_cut_log_has_no_part_of_a_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_logs, "MOST_BYTES", 60)
    monkeypatch.setattr(trial_logs, "FIRST_BYTES", 20)
    monkeypatch.setattr(trial_logs, "LAST_BYTES", 20)
    log = tmp_path / "rank-0.log"
    log.write_text("first\nbefore my-own-secret\n" + "x" * 30 + "\nmy-own-secret after\nlast\n")
    trial_logs.shorten(log)
    assert log.read_text().splitlines()[0] == "first"
    assert "my-own" not in log.read_text() and log.read_text().endswith("\nlast\n")


def test_what_sweeps_adds_to_a_log_cannot_control_a_terminal(tmp_path: Path) -> None:
    log = trial_logs.log_of(tmp_path, 0)
    with trial_logs.redirect_output(log, "trial \x1b[2J") as say:
        say("\x9b31m\ud800")
    trial_logs.append_line(log, "ended: \x1b]0;title\x07")
    lines = [line.rpartition(" ")[2] for line in log.read_text().split("\n")]
    assert lines == [r"\x1b[2J", r"\x9b31m\ud800", r"\x1b]0;title\x07", ""]
