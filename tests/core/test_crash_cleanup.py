"""The clean-up after a dead driver uses its notes, and touches nothing else."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from sweeps.core.files.sweep_folder import RAY
from sweeps.core.host import crash_cleanup
from tests.waiting import wait_until

HOLD = (
    "import sys, time; f = open(sys.argv[1], 'w') if len(sys.argv) > 1 else None; print('up', "
    "flush=True); time.sleep(60)"
)


@pytest.fixture
def start() -> Iterator[Any]:
    started = []

    def start(*args: object) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, *map(str, args)], stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        assert process.stdout is not None and process.stdout.readline() == "up\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The folder of a session in a temporary folder of Ray's. The session's driver is dead."""
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / "tmp"))
    driver = subprocess.Popen([sys.executable, "-c", ""])
    driver.wait()
    return session_folder(
        tmp_path / "tmp" / "ray" / f"session_2026-11-23_10-00-00_123456_{driver.pid}"
    )


def session_folder(session: Path) -> Path:
    (session / "logs").mkdir(parents=True)
    return session


def noting(folder: Path, session: object, pids: dict[int, float] | None = None) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / RAY).write_text(json.dumps({"session": str(session), "pids": pids or {}}))
    return folder


def test_the_processes_of_a_dead_sweep_are_ended_and_no_other(
    tmp_path: Path, start: Any, session: Any
) -> None:
    folder = tmp_path / "sweep"
    folder.mkdir()
    noted, worker = start(), start(session / "logs" / "worker.out")
    other, reader = (
        start(session_folder(Path(f"{session}2")) / "logs" / "worker.out"),
        start(session / "space.yaml"),
    )
    crash_cleanup.record_ray(folder, str(session), [noted.pid])
    assert crash_cleanup.end_leftover_ray(folder) == 2
    wait_until(lambda: noted.poll() is not None and worker.poll() is not None, 10, "both to end")
    assert (
        other.poll() is None
        and reader.poll() is None
        and not session.exists()
        and not (folder / RAY).exists()
    )
    assert crash_cleanup.end_leftover_ray(folder) == 0


def test_a_process_that_has_the_number_of_a_dead_one_is_let_be(tmp_path: Path, start: Any) -> None:
    process = start()
    began = psutil.Process(process.pid).create_time()
    noting(tmp_path, "/tmp/session_none", {process.pid: began - 100})
    assert crash_cleanup.end_leftover_ray(tmp_path) == 0 and process.poll() is None


def test_this_process_is_never_ended(tmp_path: Path, session: Any) -> None:
    with open(session / "logs" / "log", "w"):
        crash_cleanup.record_ray(tmp_path, str(session), [os.getpid()])
        assert crash_cleanup.end_leftover_ray(tmp_path) == 0
    assert os.getpid()


def test_r1_foreign_session_folder_is_left_alone(
    tmp_path: Path, start: Any, session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever `ray.json` of a sweep's folder says: the folder may come from anyone."""
    name = session.name
    live = session_folder(session.with_name(f"session_2026-11-23_10-00-00_123456_{os.getpid()}"))
    live = live.rename(
        live.with_name(f"session_{datetime.datetime.now():%Y-%m-%d_%H-%M-%S_%f}_{os.getpid()}")
    )
    (latest := session.with_name("session_latest")).symlink_to(live)
    (linked := session.with_name(name.replace("123456", "654321"))).symlink_to(
        session_folder(tmp_path / "target")
    )
    crafted = [
        "/dev",
        "/",
        "",
        ".",
        session_folder(tmp_path / "session_x"),
        session_folder(tmp_path / name),
        session_folder(session / name),
        session.parent,
        session.with_name("session_x"),
        session_folder(session.parent / ".." / name),
        live,
        latest,
        linked,
    ]
    for number, noted in enumerate(crafted):
        folder = Path(noted, "logs")
        held = start(folder / "held.log") if folder.is_dir() else start()
        assert crash_cleanup.end_leftover_ray(noting(tmp_path / f"sweep-{number}", noted)) == 0, (
            noted
        )
        assert held.poll() is None and (
            Path(noted).exists() or noted == session.with_name("session_x")
        ), noted
    monkeypatch.setattr(os, "getuid", lambda: 54321)
    held = start(session / "logs" / "held.log")
    began = psutil.Process(held.pid).create_time()
    folder = noting(tmp_path / "another user", session, {held.pid: began})
    assert crash_cleanup.end_leftover_ray(folder) == 0 and held.poll() is None and session.exists()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"session": 1}',
        '{"session": "/tmp", "pids": {"x": 1}}',
        '{"session": "/tmp", "pids": []}',
        '{"session": null, "pids": {"1": 1e999}}',
        '{"session": "\\u0000", "pids": {"99999999999999999999": 1}}',
    ],
)
def test_a_note_that_cannot_be_read_is_no_note(tmp_path: Path, text: str) -> None:
    (tmp_path / RAY).write_text(text)
    assert crash_cleanup.end_leftover_ray(tmp_path) == 0


def test_half_written_files_and_checkpoints_that_nobody_needs_go(tmp_path: Path) -> None:
    kept = [
        "trials/0000/checkpoint_000004/a",
        "trials/0000/logs/rank-0.log",
        "trials/0001/checkpoint_000002/a",
        "prepared/facts.pkl",
    ]
    gone = [
        "trials/0000/checkpoint_000003/a",
        ".bundle-x/a",
        "prepared/.facts.part",
        "exports/.0001.part/a",
        "tune/a",
        "gangs/a",
    ]
    for name in (*kept, *gone):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    crash_cleanup.remove_partial_files(tmp_path, {"0000": {"checkpoint_000004"}, "0009": set()})
    assert all((tmp_path / name).exists() for name in kept)
    assert not [name for name in gone if (tmp_path / name).exists()]
