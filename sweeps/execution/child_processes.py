"""At the end of a trial, kill the processes that the training loop has started.

They are killed even if they have started a session of their own.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection

import psutil

# Environment variable of the processes that a loop starts. Its value, the mark, is the trial's
# folder followed by /RANK.
MARK = "SWEEPS_PROCESS_OF"
END_WITHIN = 5.0
# Parts of the command lines of libraries' helper processes. A helper process is also used by later
# trials, and ends with this process.
HELPERS = (
    "resource_tracker",
    "multiprocessing.forkserver",
    "joblib.externals.loky",
    "torch/_inductor",
)


def marked(mark: str, among: Collection[int] | None = None) -> list[psutil.Process]:
    """Return this user's processes that are marked by `SWEEPS_PROCESS_OF`.

    This environment variable is `mark`, or starts with `mark` and a slash.

    Args:
        mark: Value or beginning of the variable. If it is a trial's folder, the result contains the
            processes of all ranks of the trial.
        among: Ids of the processes to search; None to search all processes of this machine, which
            takes milliseconds.
    """
    wanted, found = f"{MARK}={mark}".encode(), []
    for pid in psutil.pids() if among is None else among:
        if pid == os.getpid():
            continue
        with contextlib.suppress(OSError, psutil.Error):
            with open(f"/proc/{pid}/environ", "rb") as file:
                own = file.read()
            if any(
                entry == wanted or entry.startswith(wanted + b"/") for entry in own.split(b"\0")
            ):
                found.append(psutil.Process(pid))
    return found


def started() -> set[psutil.Process]:
    """Return the children of this process and the descendants of these children."""
    with contextlib.suppress(psutil.Error):
        return set(psutil.Process().children(recursive=True))
    return set()


def end(mark: str, before: Collection[int] | None = None) -> int:
    """Kill the processes that a training loop has started, except helper processes of libraries.

    An example is joblib's workers.

    For a forked process, `/proc` shows the environment with which the parent was started. The mark
    is missing in this environment, so a forked process is found only because it is a descendant of
    this process.

    Args:
        mark: Value or beginning of the environment variable; see `marked`.
        before: Ids of all processes of this machine before the trial. Newer processes are killed if
            they have the mark or are descendants of this process. If None, all processes with the
            mark are killed, and no others.

    Returns:
        The number of killed processes.
    """
    new = None if before is None else set(psutil.pids()).difference(before)
    if new is not None and not new:
        return 0
    found = {
        *marked(mark, new),
        *(process for process in started() if new is not None and process.pid in new),
    }
    ended = []
    for process in found:
        with contextlib.suppress(psutil.Error):
            if process.uids().real == os.getuid() and not any(
                helper in part for part in process.cmdline() for helper in HELPERS
            ):
                process.kill()
                ended.append(process)
    psutil.wait_procs(ended, END_WITHIN)
    return len(ended)
