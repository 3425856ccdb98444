"""Processes that a loop has started, and that are ended with its trial, even if they made a session of their own."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection

import psutil

# In the environment of what a loop starts: SWEEP/TRIAL/RANK.
MARK = "SWEEPS_PROCESS_OF"
END_WITHIN = 5.0
# Helpers of libraries, which know nothing of trials, serve the next one as well and end with this process.
HELPERS = ("resource_tracker", "multiprocessing.forkserver", "joblib.externals.loky", "torch/_inductor")


def marked(mark: str) -> list[psutil.Process]:
    """Return the processes of this user that have the mark in their environment, or one that it is a folder of."""
    wanted, found = f"{MARK}={mark}".encode(), []
    for pid in psutil.pids():
        if pid == os.getpid():
            continue
        with contextlib.suppress(OSError, psutil.Error):
            with open(f"/proc/{pid}/environ", "rb") as file:
                own = file.read()
            if any(entry == wanted or entry.startswith(wanted + b"/") for entry in own.split(b"\0")):
                found.append(psutil.Process(pid))
    return found


def started() -> set[psutil.Process]:
    """Return the processes below this one."""
    with contextlib.suppress(psutil.Error):
        return set(psutil.Process().children(recursive=True))
    return set()


def end(mark: str, before: Collection[psutil.Process] | None = None) -> int:
    """End the processes that a loop has started.

    A process that was forked has the environment of its parent, without the mark; it is found while it is below this process.

    Args:
        mark: what they have in their environment.
        before: processes that were below this one already; those that came since end as well. None: only those with the mark.

    Returns:
        How many there were.
    """
    found = {*marked(mark), *(() if before is None else started() - set(before))}
    ended = []
    for process in found:
        with contextlib.suppress(psutil.Error):
            if process.uids().real == os.getuid() and not any(helper in part for part in process.cmdline() for helper in HELPERS):
                process.kill()
                ended.append(process)
    psutil.wait_procs(ended, END_WITHIN)
    return len(ended)
