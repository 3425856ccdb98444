"""Ends the rank that holds most when the memory of this machine runs low, before the kernel ends anything.

In place of Ray's own monitor, which looks at who began a task last: that is the pool or a runner, which hold little, and the sweep with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Iterable

import psutil

log = logging.getLogger(__name__)

# Ray's own settings; a Ray that a sweep starts for itself has no monitor.
MONITOR, THRESHOLD = "RAY_memory_monitor_refresh_ms", "RAY_memory_usage_threshold"  # the first is "0" there
DEFAULT_THRESHOLD = 0.95
LOOK_EVERY = 0.25  # seconds
RANKS = ("ray::Worker",)


def victim(used: int, total: int, threshold: float, held: dict[int, int]) -> int | None:
    """Return the process to end; None while there is memory, or if no rank is there to end.

    Args:
        used, total: bytes of memory.
        threshold: the part of `total` that may be used.
        held: bytes by process.

    >>> victim(96, 100, 0.95, {1: 10, 2: 50})
    2
    >>> victim(94, 100, 0.95, {1: 10, 2: 50}) is None
    True
    """
    return max(held, key=lambda pid: held[pid]) if held and used > threshold * total else None


class Guard:
    """Watches the memory from the pool's process.

    Attributes:
        kills: processes that it has ended.
    """

    def __init__(self) -> None:
        self.kills = 0
        self.threshold = float(os.environ.get(THRESHOLD) or DEFAULT_THRESHOLD)

    async def watch(self) -> None:
        """Look again and again, for as long as the pool lives."""
        from ray._private.utils import get_system_memory, get_used_memory  # which know of containers

        total = get_system_memory()
        while True:
            await asyncio.sleep(LOOK_EVERY)
            used = get_used_memory()
            if used <= self.threshold * total:
                continue
            held = _held(psutil.Process(os.getppid()).children())  # by its raylet's children
            if (pid := victim(used, total, self.threshold, held)) is not None:
                log.warning(
                    "memory runs low, %.1f of %.1f GB: process %d is ended, which holds %.1f", used / 1e9, total / 1e9, pid, held[pid] / 1e9
                )
                self.kills += 1
                with contextlib.suppress(psutil.Error):
                    process = psutil.Process(pid)
                    process.kill()
                    await asyncio.get_running_loop().run_in_executor(None, psutil.wait_procs, [process], 5.0)


def _held(processes: Iterable[psutil.Process]) -> dict[int, int]:
    """The resident bytes of those that are ranks."""
    found = {}
    for process in processes:
        with contextlib.suppress(psutil.Error, IndexError):
            if process.cmdline()[0].startswith(RANKS):
                found[process.pid] = process.memory_info().rss
    return found
