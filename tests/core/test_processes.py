from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from sweeps.core.host import processes
from sweeps.core.host.processes import is_alive, start_time, working_directory
from tests.waiting import wait_until


def test_this_process_is_alive() -> None:
    started = start_time(os.getpid())
    assert is_alive(os.getpid()) and started is not None and started > 0


def test_the_start_of_a_process_stays_the_same_if_the_clock_is_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started = start_time(os.getpid())
    monkeypatch.setattr(psutil._psplatform, "boot_time", lambda: 86400.0)
    monkeypatch.setattr(psutil._psplatform, "BOOT_TIME", 86400.0, raising=False)
    assert start_time(os.getpid()) == started


def test_a_zombie_is_not_alive() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    wait_until(lambda: not is_alive(process.pid), 10, "the process to end")
    process.wait()
    assert not is_alive(process.pid) and start_time(process.pid) is None


@pytest.mark.parametrize("pid", [-1, 10**30])
def test_an_impossible_id_is_no_process(pid: Any) -> None:
    assert not is_alive(pid) and start_time(pid) is None


def test_a_deleted_working_directory_is_entered_when_it_exists_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "code"
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert working_directory() == str(folder)
    folder.rmdir()
    monkeypatch.setattr(time, "sleep", lambda seconds: folder.mkdir())
    assert working_directory() == str(folder) == os.getcwd()


def test_a_working_directory_that_stays_deleted_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "code"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    monkeypatch.setattr(processes, "RECREATED_WITHIN", 0.0)
    with pytest.raises(FileNotFoundError):
        working_directory()
