"""Kill the Tune runner of a trial: Tune starts another, and the trial is not affected."""

from __future__ import annotations

import json
import os
import signal

import psutil
import pytest

from tests.commands import command, space_of
from tests.waiting import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(180)]


def test_a_killed_runner_costs_the_trial_nothing(tmp_path):
    file = space_of(tmp_path, "held", limits="max_trials: 1")
    process = command("run", file, "--dir", tmp_path / "runs", "--json")
    wait_until(lambda: list(tmp_path.glob("*-0000.two")), 90, "the trial to hold")
    driver = psutil.Process(process.pid)

    def said(p: psutil.Process) -> list[str]:
        try:
            return p.cmdline()
        except psutil.NoSuchProcess:
            return []

    def runners_of() -> list[psutil.Process]:
        return [p for p in driver.children(recursive=True) if any(part.startswith("ray::") and part.endswith(".train") for part in said(p))]

    runners = wait_until(runners_of, 60, "the runner to follow the trial")
    assert len(runners) == 1
    os.kill(runners[0].pid, signal.SIGKILL)
    runners[0].wait(20)
    (tmp_path / "go").touch()
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    result = json.loads(out)
    assert result["trials"] == {"completed": 1, "pruned": 0, "failed": 0}
    starts = {f.name.split("started-at-")[1].split(".")[0] for f in tmp_path.glob("own-0000.started-at-*")}
    assert starts == {"0"}, "the loop was not started again"
