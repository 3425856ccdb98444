"""What a driver that died may have left behind: processes of its Ray, files half written. Found by what the sweep's folder says of them."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

import psutil

from sweeps import lock

# Which Ray drives a sweep, as long as it does.
RAY = "ray.json"
END_WITHIN = 10.0
# What Tune and Ray Train keep for a restore of their own.
SCRATCH = ("tune", "gangs")


def note(folder: Path, session: str, pids: Iterable[int]) -> None:
    """Leave word of the Ray that was started for a sweep: its session's folder, and its processes with the time they began."""
    began = {str(pid): at for pid in pids if (at := _began(pid)) is not None}
    write(folder / RAY, json.dumps({"session": session, "pids": began}) + "\n")


def end(folder: Path) -> int:
    """End what is left of the Ray that a dead driver had noted, and remove its session; the processes ended."""
    try:
        noted = json.loads((folder / RAY).read_text())
        session, pids = Path(noted["session"]), {int(pid): at for pid, at in noted["pids"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return 0
    left = [psutil.Process(pid) for pid, at in pids.items() if _began(pid) == at]
    for process in list(left):
        with contextlib.suppress(psutil.Error):
            left += process.children(recursive=True)
    left += [process for process in psutil.process_iter() if process.pid != os.getpid() and _writes_to(process.pid, session)]
    left = list({process.pid: process for process in left}.values())
    for process in left:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(left, END_WITHIN)
    if session.name.startswith("session_"):
        shutil.rmtree(session, ignore_errors=True)
    forget(folder)
    return len(left)


def forget(folder: Path) -> None:
    """The Ray of a sweep has ended in order."""
    (folder / RAY).unlink(missing_ok=True)


def _began(pid: int) -> float | None:
    try:
        return psutil.Process(pid).create_time()
    except psutil.Error:
        return None


def _writes_to(pid: int, session: Path) -> bool:
    """Whether a process has a file of the session open, as every worker has its log: its name and parent say nothing any more."""
    try:
        files = [os.readlink(f.path) for f in os.scandir(f"/proc/{pid}/fd")]
    except OSError:
        return False
    return any(f.startswith(f"{session}/") for f in files)


def tidy(folder: Path, kept: Mapping[str, set[str]]) -> None:
    """Remove what was half written, and checkpoints that nobody needs.

    Args:
        folder: the sweep's.
        kept: of each trial that has ended, by its id, the names of the checkpoints on record. Trials that go on are left to the pool.
    """
    for scratch in SCRATCH:
        shutil.rmtree(folder / scratch, ignore_errors=True)
    for pattern in (".bundle-*", ".checkpoint-*", "prepared/.*.part", "exports/.*", ".*.part"):
        for path in folder.glob(pattern):
            _remove(path)
    for rerun in folder.glob(".rerun-*"):  # of one that was killed
        if not lock.driven(rerun):
            _remove(rerun)
    for trial, names in kept.items():
        with contextlib.suppress(FileNotFoundError):
            for entry in os.scandir(folder / "trials" / trial):
                if entry.name.startswith("checkpoint_") and entry.name not in names:
                    _remove(Path(entry.path))


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def write(file: Path, text: str) -> None:
    """Write a file whole or not at all."""
    part = file.with_name(f".{file.name}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(file)
