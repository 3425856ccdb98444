"""Run a command, and measure its wall time and the CPU time of all processes that it starts: `...

RESULT.json SECONDS COMMAND...`.

This process adopts the processes whose parents have ended, as Ray's servers, so that all stay its
descendants. The CPU time is the larger of two sums, because each misses something. The kernel's sum
lacks processes whose parent does not wait for them, as Ray's workers. The sum of the samples lacks
what a process did after its last sample. The memory is the sum of the processes' shares of their
pages (PSS), which is read every `MEMORY_EVERY` samples, because reading it takes time. A process
that lives on `ENDS_WITHIN` seconds after the command is killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import psutil

INTERVAL = 0.5
MEMORY_EVERY = 4
ENDS_WITHIN = 20.0
PR_SET_CHILD_SUBREAPER = 36


def main(result: str, limit: str, *command: str) -> None:
    """Run the command, and write its exit code, its times and its peak memory.

    The exit code is null if the command took longer than the limit.
    """
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    used: dict[psutil.Process, float] = {}
    began = time.monotonic()
    process = subprocess.Popen(command)
    code, peak, samples = None, 0, 0
    while code is None and time.monotonic() - began < float(limit):
        sample(used)
        if samples % MEMORY_EVERY == 0:
            peak = max(peak, memory())
        samples += 1
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = process.wait(INTERVAL)
    seconds = time.monotonic() - began
    wait_for_children(used, ENDS_WITHIN if code is not None else 0.0)
    kernel = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_seconds = max(kernel.ru_utime + kernel.ru_stime, sum(used.values()))
    measured = {"code": code, "seconds": seconds, "cpu_seconds": cpu_seconds, "peak_bytes": peak}
    Path(result).write_text(json.dumps(measured))


def sample(used: dict[psutil.Process, float]) -> None:
    """Update the CPU time of each descendant of this process."""
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            times = child.cpu_times()
            used[child] = times.user + times.system


def memory() -> int:
    """Return the bytes that the descendants of this process hold."""
    total = 0
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            total += child.memory_full_info().pss
    return total


def wait_for_children(used: dict[psutil.Process, float], seconds: float) -> None:
    """Wait for the end of all children, and kill the descendants that are left after a time."""
    until = time.monotonic() + seconds
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid:
            continue
        if time.monotonic() > until:
            for child in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
        time.sleep(INTERVAL / 10)


if __name__ == "__main__":
    main(*sys.argv[1:])
