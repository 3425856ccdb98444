"""Look up processes of this machine by their ids."""

from __future__ import annotations


def is_alive(pid: int) -> bool:
    """Return whether a process with this id is running. A zombie process counts as ended."""
    import psutil

    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except (psutil.Error, ValueError, OverflowError):
        return False


def start_time(pid: int) -> float | None:
    """Return the time at which a process started, in seconds since the epoch; None if there is no such process."""
    import psutil

    try:
        return float(psutil.Process(pid).create_time())
    except (psutil.Error, ValueError, OverflowError):
        return None
