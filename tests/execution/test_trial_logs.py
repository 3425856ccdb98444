"""What a rank prints lands in its trial's log, whoever prints it, and nowhere else."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from sweeps.execution import trial_logs

SAID = """
import ctypes, logging, os, sys
from sweeps.execution import trial_logs
logging.basicConfig(level=logging.INFO, format="%(message)s")
print("before")
with trial_logs.into(trial_logs.log_of(sys.argv[1], 0), "trial 0001") as say:
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
def test_all_that_a_process_prints_goes_to_the_trials_log(tmp_path, unbuffered):
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


def test_a_second_attempt_is_appended_and_an_error_passes_through(tmp_path):
    log = trial_logs.log_of(tmp_path, 1)
    for attempt in (1, 2):
        with pytest.raises(KeyError), trial_logs.into(log, f"attempt {attempt}"):
            raise KeyError
    assert [line.rpartition(" ")[2] for line in log.read_text().splitlines()] == ["1", "2"]
