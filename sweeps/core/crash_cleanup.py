"""What a driver that died may have left behind: processes of its Ray, files half written. Found by what the sweep's folder says of them."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import re
import shutil
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

import psutil

from sweeps.core import folder_lock
from sweeps.core.json_files import object_in

# Which Ray drives a sweep, as long as it does.
RAY = "ray.json"
END_WITHIN = 10.0
# What Ray calls the folder of a session: when it was made, and the process that made it.
SESSION = re.compile(r"session_(?P<made>\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d_\d{6})_(?P<pid>\d{1,9})")
# What Tune and Ray Train keep for a restore of their own.
SCRATCH = ("tune", "gangs")


def note(folder: Path, session: str, pids: Iterable[int]) -> None:
    """Leave word of the Ray that was started for a sweep: its session's folder, and its processes with the time they began."""
    began = {str(pid): at for pid in pids if (at := _began(pid)) is not None}
    write(folder / RAY, json.dumps({"session": session, "pids": began}) + "\n")


def end(folder: Path) -> int:
    """End what is left of the Ray that a dead driver had noted, and remove its session.

    The folder may come from anyone, so the note is not believed. Ended are only processes of this user that were noted with the time at
    which they began, or that have a log of the noted session open. The session counts only if `session_of` accepts it.

    Returns:
        How many processes were ended.
    """
    try:
        noted = object_in(folder / RAY) or {}
        session, pids = session_of(noted["session"]), {int(pid): at for pid, at in noted["pids"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return 0
    left = {pid for pid, at in pids.items() if _began(pid) == at}
    if session is not None:
        left |= {pid for pid in psutil.pids() if _writes_to(pid, session / "logs")}
    ended = []
    for pid in left - {os.getpid()}:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            if process.uids().real == os.getuid():
                process.kill()
                ended.append(process)
    psutil.wait_procs(ended, END_WITHIN)
    if session is not None:
        shutil.rmtree(session, ignore_errors=True)
    forget(folder)
    return len(ended)


def session_of(noted: object) -> Path | None:
    """Return the folder of a Ray session that this user's dead driver left behind; None for anything else.

    It lies in Ray's temporary folder, has a name that Ray gives, is no link (`session_latest` leads to a live one), belongs to this user,
    and the process that its name ends with does not live any more.
    """
    from ray._common.utils import get_default_ray_temp_dir

    if not isinstance(noted, str) or (name := SESSION.fullmatch(Path(noted).name)) is None:
        return None
    session = Path(noted)
    try:
        ours = session.parent.resolve() == Path(get_default_ray_temp_dir()).resolve() and stat.S_ISDIR(session.lstat().st_mode)
        if not ours or session.lstat().st_uid != os.getuid():
            return None
        made = datetime.datetime.strptime(name["made"], "%Y-%m-%d_%H-%M-%S_%f").timestamp()
    except (OSError, ValueError, RuntimeError):
        return None
    began = _began(int(name["pid"]))
    return session if began is None or began > made else None  # one that began later has only got the number


def forget(folder: Path) -> None:
    """The Ray of a sweep has ended in order."""
    (folder / RAY).unlink(missing_ok=True)


def _began(pid: int) -> float | None:
    try:
        return psutil.Process(pid).create_time()
    except (psutil.Error, ValueError, OverflowError):
        return None


def _writes_to(pid: int, logs: Path) -> bool:
    """Return whether a process has a file below this folder open, as every worker has its log."""
    try:
        files = [os.readlink(f.path) for f in os.scandir(f"/proc/{pid}/fd")]
    except OSError:
        return False
    return any(f.startswith(f"{logs}/") for f in files)


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
        if not folder_lock.driven(rerun):
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
    """Write a file whole or not at all. What lies in its place, or in that of the half-written one, is replaced and never followed."""
    part = file.with_name(f".{file.name}.part")
    part.unlink(missing_ok=True)
    with open(part, "x", encoding="utf-8") as f:
        f.write(text)
    part.replace(file)
