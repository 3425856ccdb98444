"""At the end of a trial, kill the processes that the training loop has started.

They are killed even if they have started a session of their own.
"""

import contextlib
import os
from collections.abc import Collection

import psutil

# Environment variable of the processes that a loop starts. Its value, the mark, is the trial's
# folder followed by /RANK.
MARK = "SWEEPS_PROCESS_OF"
# Time limit in seconds for the end of killed processes.
END_WITHIN = 5.0
# Parts of the command lines of libraries' helper processes. A helper process is also used by later
# trials, and ends with this process.
HELPERS = (
    "resource_tracker",
    "multiprocessing.forkserver",
    "joblib.externals.loky",
    "torch/_inductor",
)


def end(mark: str, before: Collection[int] | None = None) -> int:
    """Kill the processes that a training loop has started.

    Helper processes of libraries, such as joblib's workers, are not killed.

    For a forked process, `/proc` shows the environment with which the parent was started. The mark
    is missing in this environment, so a forked process is found only because it is a descendant of
    this process.

    Args:
        mark: Value of the environment variable, or its beginning before a slash. If it is a trial's
            folder, the processes of all ranks of the trial are found.
        before: Ids of all processes of this machine before the trial. Newer processes are killed if
            they have the mark or are descendants of this process. If None, all processes with the
            mark are killed, and no others. The search then takes milliseconds.

    Returns:
        The number of killed processes.
    """
    candidates = set(psutil.pids()) - set(before or ()) - {os.getpid()}
    descendants: Collection[psutil.Process] = ()
    if before is not None and candidates:
        descendants = psutil.Process().children(recursive=True)
    ended = []
    for pid in candidates:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            if process.uids().real != os.getuid():
                continue
            if process not in descendants and not _is_marked(process, mark):
                continue
            if any(helper in part for part in process.cmdline() for helper in HELPERS):
                continue
            process.kill()
            ended.append(process)
    psutil.wait_procs(ended, END_WITHIN)
    return len(ended)


def _is_marked(process: psutil.Process, mark: str) -> bool:
    """Return whether the mark of a process is `mark`, or begins with it before a slash."""
    value: str = process.environ().get(MARK, "")
    return value == mark or value.startswith(f"{mark}/")
