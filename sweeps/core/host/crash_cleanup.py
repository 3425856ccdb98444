"""Clean up after a driver that died: end its Ray processes, and delete half-written files.

A driver is the process that runs a sweep.
"""

import contextlib
import datetime
import json
import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import psutil

from sweeps.core.files import folder_lock, stores
from sweeps.core.files.atomic_files import remove, write_text
from sweeps.core.files.json_files import read_json_object
from sweeps.core.files.sweep_folder import CHECKPOINTS, SCRATCH, SweepFolder

from .processes import start_time

# Time limit in seconds for the end of killed processes.
END_WITHIN = 10.0
# Most rounds of killing. A process of Ray may start another process before it is killed.
MOST_KILL_ROUNDS = 5
# The name of a Ray session's folder. The name contains the time at which the folder was made, and
# the id of the process that made it.
SESSION_NAME = re.compile(
    r"session_(?P<time>\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d_\d{6})_(?P<pid>\d{1,9})"
)
# Glob patterns of half-written files and folders in a sweep's folder.
PARTIAL = (
    ".bundle-*",
    ".checkpoint-*",
    "prepared/.*.part",
    "exports/.*",
    "trials/*/.*.part",
    ".*.part",
)


def record_ray(folder: Path, session: str, pids: Iterable[int]) -> None:
    """Write `ray.json`, which describes the Ray session that the driver started.

    It has the folder of the session, and the start time of each of its processes.

    Args:
        folder: The sweep's folder.
        session: Folder of the Ray session, such as
            `/tmp/ray/session_2026-01-02_12-00-00_000000_4711`.
        pids: Ids of the session's processes. Processes that have ended meanwhile are not recorded.
    """
    started = {str(pid): time for pid in pids if (time := start_time(pid)) is not None}
    write_text(SweepFolder(folder).ray, json.dumps({"session": session, "pids": started}) + "\n")


def delete_ray_record(folder: Path) -> None:
    """Delete `ray.json`. Call this function after the processes that the file lists have ended."""
    SweepFolder(folder).ray.unlink(missing_ok=True)


def end_leftover_ray(folder: Path) -> int:
    """End the Ray processes that a dead driver left behind, and delete their session folder.

    `ray.json` names the processes and the folder.

    The sweep's folder may come from a stranger, so `ray.json` is not trusted. A process is ended
    only if it belongs to this user. The process must also have the start time that `ray.json`
    records for it, or have a log file of the recorded session open. The recorded session is used
    only if `leftover_session` accepts it.

    Returns:
        The number of processes that were ended. 0 if `ray.json` is missing or invalid.
    """
    try:
        record = read_json_object(SweepFolder(folder).ray) or {}
        session = leftover_session(record["session"])
        started = {int(pid): time for pid, time in record["pids"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return 0
    pids = {pid for pid, time in started.items() if start_time(pid) == time}
    if session is not None:
        pids |= {pid for pid in psutil.pids() if _writes_to(pid, session / "logs")}
    ended = _kill(pids)
    if session is not None:
        shutil.rmtree(session, ignore_errors=True)
    delete_ray_record(folder)
    return ended


def _kill(pids: Iterable[int]) -> int:
    """Kill those of these processes that belong to this user, but never this process.

    Returns:
        The number of processes that were killed.
    """
    killed = []
    for pid in {*pids} - {os.getpid()}:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            if process.uids().real == os.getuid():
                process.kill()
                killed.append(process)
    psutil.wait_procs(killed, END_WITHIN)
    return len(killed)


@contextlib.contextmanager
def clean_up_on_failure() -> Iterator[None]:
    """Clean up if the `with` block, which starts Ray, fails.

    All processes of the new Ray session are ended, and the session's folder is deleted. The
    parent of some of these processes, the raylet, may have died already.
    """
    before = _own_sessions()
    try:
        yield
    except BaseException:
        for session in _own_sessions() - before:
            for _ in range(MOST_KILL_ROUNDS):
                if not _kill(pid for pid in psutil.pids() if _belongs_to(pid, session)):
                    break
            shutil.rmtree(session, ignore_errors=True)
        raise


def _own_sessions() -> set[Path]:
    """Return the folders of the Ray sessions that this process has started."""
    from ray._common.utils import get_default_ray_temp_dir

    temporary = Path(get_default_ray_temp_dir())
    return set(temporary.glob(f"session_*_{os.getpid()}"))


def leftover_session(recorded: object) -> Path | None:
    """Check that a recorded path is a Ray session folder that a dead driver of this user left.

    The folder must be in Ray's temporary folder, have a name in Ray's format
    (`session_<time>_<process id>`), and belong to this user. The path must not be a symbolic link,
    because the link `session_latest` points to a live session. The process whose id is part of the
    name must have ended.

    Returns:
        The path of the folder. None if a check fails.
    """
    from ray._common.utils import get_default_ray_temp_dir

    if not isinstance(recorded, str):
        return None
    session = Path(recorded)
    if (name := SESSION_NAME.fullmatch(session.name)) is None:
        return None
    try:
        status = session.lstat()
        if session.parent.resolve() != Path(get_default_ray_temp_dir()).resolve():
            return None
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
            return None
        created = datetime.datetime.strptime(name["time"], "%Y-%m-%d_%H-%M-%S_%f").timestamp()
    except (OSError, ValueError, RuntimeError):
        return None
    pid = int(name["pid"])
    is_live = _started_before(pid, created) or _writes_to(pid, session / "logs")
    return None if is_live else session


def _started_before(pid: int, moment: float) -> bool:
    """Return whether a process runs that started before a moment.

    A process that started later has only reused the id.
    """
    try:
        return bool(psutil.Process(pid).create_time() <= moment)
    except psutil.Error:
        return False


def _writes_to(pid: int, logs: Path) -> bool:
    """Return whether a process has a file in the folder `logs` open.

    Every Ray worker keeps its log file open.
    """
    try:
        files = [os.readlink(f.path) for f in os.scandir(f"/proc/{pid}/fd")]
    except OSError:
        return False
    return any(f.startswith(f"{logs}/") for f in files)


def _belongs_to(pid: int, session: Path) -> bool:
    """Return whether a process belongs to a Ray session.

    Such a process has a log of the session open, or the session's path in its command line.
    """
    try:
        command = psutil.Process(pid).cmdline()
    except psutil.Error:
        return False
    return _writes_to(pid, session / "logs") or any(str(session) in part for part in command)


def remove_partial_files(folder: Path, checkpoints: Mapping[str, set[str]]) -> None:
    """Delete half-written files.

    If a trial has ended, also delete its checkpoints that are not in `checkpoints`.

    Args:
        folder: The sweep's folder.
        checkpoints: The names of the checkpoints to keep, by the id of the ended trial. Trials that
            are not listed keep all their checkpoints: they will be resumed, and the pool then
            deletes what they do not need.
    """
    for scratch in SCRATCH:
        shutil.rmtree(folder / scratch, ignore_errors=True)
    for pattern in PARTIAL:
        for path in folder.glob(pattern):
            remove(path)
    # `sweeps rerun` works in such a folder.
    for rerun in folder.glob(".rerun-*"):
        if not folder_lock.is_driven(rerun):  # its driver was killed
            remove(rerun)
    if (store := stores.store_of(folder)) is not None:
        _remove_stored_checkpoints(store, checkpoints)
        return
    for trial, names in checkpoints.items():
        for path in SweepFolder(folder).trial(trial).glob(CHECKPOINTS):
            if path.name not in names:
                remove(path)


def _remove_stored_checkpoints(address: str, checkpoints: Mapping[str, set[str]]) -> None:
    """Delete the checkpoints of ended trials in a sweep's store that are not in `checkpoints`.

    Also delete the files of killed reruns.
    """
    store = stores.open_store(address)
    unneeded = set()
    for path in store.files():
        if path.startswith(".rerun-"):
            unneeded.add(path.partition("/")[0])
        elif match := re.match(r"trials/([^/]+)/(checkpoint_[^/]+)/", path):
            trial, name = match.groups()
            if trial in checkpoints and name not in checkpoints[trial]:
                unneeded.add(f"trials/{trial}/{name}")
    for path in sorted(unneeded):
        store.delete(path)
