"""When this machine runs low on memory, kill the worker that holds the most memory.

This happens before the kernel kills any process. This module replaces Ray's own monitor, which
kills the process that has started its task most recently. This process may be the pool, which holds
little memory. If the pool dies, all trials are interrupted.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Iterable
from typing import Any

import psutil

log = logging.getLogger(__name__)

# Environment variables of Ray's monitor. If a sweep starts Ray, MONITOR is "0", and Ray runs
# without this monitor.
MONITOR = "RAY_memory_monitor_refresh_ms"
THRESHOLD = "RAY_memory_usage_threshold"
DEFAULT_THRESHOLD = 0.95
CHECK_INTERVAL = 0.25  # seconds
# The command line of a worker's process begins with this text.
WORKER_TITLE = "ray::Worker"


class MemoryGuard:
    """Watches the machine's memory from the pool's process.

    Attributes:
        kills: Number of processes that the guard has killed.
        threshold: Fraction of the machine's memory. If more than this is used, a worker is killed.
    """

    def __init__(self) -> None:
        self.kills = 0
        self.threshold = float(os.environ.get(THRESHOLD) or DEFAULT_THRESHOLD)

    async def watch(self) -> None:
        """Check the memory every `CHECK_INTERVAL` seconds. This method never returns."""
        from ray._private import utils

        ray_utils: Any = utils  # Both functions respect the memory limit of a container.
        total = ray_utils.get_system_memory()
        while True:
            await asyncio.sleep(CHECK_INTERVAL)
            used = ray_utils.get_used_memory()
            if used > self.threshold * total:
                # The ranks are children of the raylet, like the pool.
                sizes = _worker_sizes(psutil.Process(os.getppid()).children())
                if sizes:
                    largest = max(sizes, key=lambda process: sizes[process])
                    await self._kill(largest, used, total)

    async def _kill(self, process: psutil.Process, used: int, total: int) -> None:
        log.warning(
            "memory is low (%.1f of %.1f GB are used), so process %d is killed, which holds the "
            "most memory of all workers",
            used / 1e9,
            total / 1e9,
            process.pid,
        )
        self.kills += 1
        with contextlib.suppress(psutil.Error):
            process.kill()
            await asyncio.to_thread(psutil.wait_procs, [process], 5.0)


def _worker_sizes(processes: Iterable[psutil.Process]) -> dict[psutil.Process, int]:
    """Return the resident memory of each worker among the processes, in bytes."""
    sizes = {}
    for process in processes:
        with contextlib.suppress(psutil.Error, IndexError):
            if process.cmdline()[0].startswith(WORKER_TITLE):
                sizes[process] = process.memory_info().rss
    return sizes
