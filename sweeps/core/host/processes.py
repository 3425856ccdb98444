"""Look up processes of this machine by their ids."""

import os
import time
from pathlib import Path

# Time limit in seconds until a deleted folder must exist again. Ray needs milliseconds, unless the
# machine is busy.
RECREATED_WITHIN = 10.0


def is_alive(pid: int) -> bool:
    """Return whether a process with this id is running. A zombie process counts as ended."""
    import psutil

    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except (psutil.Error, ValueError, OverflowError):
        return False


def start_time(pid: int) -> float | None:
    """Return when a process started. Return None if there is no such process.

    Later processes with the same id have other times. On Linux, the time is counted in clock
    ticks from the start of the machine, so that it does not change if the machine's clock is set.
    Elsewhere, it is counted in seconds since the epoch.
    """
    import psutil

    try:
        if psutil.LINUX:
            # The name of the program is in parentheses and may have spaces. The start time is the
            # 20th field after it (see proc_pid_stat(5)).
            after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
            return float(after_name.split()[19])
        return float(psutil.Process(pid).create_time())
    except (psutil.Error, OSError, ValueError, OverflowError):
        return None


def working_directory() -> str:
    """Return the working directory of this process.

    If it was deleted, wait until it exists again, and change to the new directory.

    Ray deletes and creates the folder with the user's code when a second node on the same machine
    joins the cluster.

    Raises:
        FileNotFoundError: The directory was deleted and did not exist again within
            `RECREATED_WITHIN` seconds.
    """
    until = time.monotonic() + RECREATED_WITHIN
    while True:
        try:
            return os.getcwd()
        except FileNotFoundError:
            deleted = os.readlink("/proc/self/cwd").removesuffix(" (deleted)")
        try:
            os.chdir(deleted)
        except FileNotFoundError:
            if time.monotonic() > until:
                raise
            time.sleep(0.01)
