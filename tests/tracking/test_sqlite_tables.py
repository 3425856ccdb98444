"""MLflow's tables in a new SQLite file are created all or none."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from sweeps.tracking import default_uri
from sweeps.tracking.mlflow import sqlite_tables

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

KILLED = """
import os, signal
from mlflow.store.db import utils

utils._upgrade_db = lambda engine: os.kill(os.getpid(), signal.SIGKILL)
from sweeps.tracking.mlflow import sqlite_tables

sqlite_tables.create({uri!r})
"""


def experiments(uri: str) -> list[str]:
    from mlflow.tracking import MlflowClient

    return [e.name for e in MlflowClient(uri).search_experiments()]


def test_a_process_that_is_killed_while_it_creates_tables_blocks_nobody(tmp_path: Path) -> None:
    uri = default_uri(tmp_path)
    env = {**os.environ, "TMPDIR": str(tmp_path / "elsewhere")}
    (tmp_path / "elsewhere").mkdir()
    died = subprocess.run(
        [sys.executable, "-c", KILLED.format(uri=uri)], env=env, capture_output=True, timeout=60
    )
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["elsewhere"]
    sqlite_tables.create(uri)
    assert experiments(uri) == ["Default"]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["elsewhere", "mlflow.db"]


def test_two_processes_create_the_tables_at_the_same_time(
    tmp_path: Path, database: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri, second = default_uri(tmp_path), threading.Event()
    link = os.link

    def slow(here: Path, there: Path) -> None:
        if not second.is_set():  # another has made them meanwhile, and written to them
            second.set()
            shutil.copy(database, there)
            from mlflow.tracking import MlflowClient

            MlflowClient(uri).create_experiment("theirs")
        link(here, there)

    monkeypatch.setattr(os, "link", slow)
    sqlite_tables.create(uri)
    assert second.is_set() and "theirs" in experiments(uri)
    assert [file.name for file in tmp_path.iterdir()] == ["mlflow.db"]
