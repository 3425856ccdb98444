"""Measure the memory, the file descriptors and the threads of a worker, and find out whether it must be closed because they grow."""

from __future__ import annotations

from dataclasses import dataclass

import psutil

# A worker may grow by this much after its first trial. Memory of more than `MEMORY_GROWTH` bytes
# may also double.
MEMORY_GROWTH = 1 << 30
DESCRIPTOR_GROWTH = 256
THREAD_GROWTH = 128


@dataclass(frozen=True)
class ProcessUse:
    """Resources that a process uses.

    Attributes:
        memory: Resident memory in bytes.
        descriptors: Number of open file descriptors.
        threads: Number of threads.
    """

    memory: int
    descriptors: int
    threads: int


def process_use() -> ProcessUse:
    """Return the resources that this process uses now."""
    process = psutil.Process()
    return ProcessUse(
        process.memory_info().rss,
        process.num_fds() if hasattr(process, "num_fds") else 0,
        process.num_threads(),
    )


def excess_growth(first: ProcessUse, now: ProcessUse) -> str | None:
    """Return a message if a process must be replaced, because it now uses much more memory, descriptors or threads; else None.

    The limits are `MEMORY_GROWTH`, `DESCRIPTOR_GROWTH` and `THREAD_GROWTH`.

    Args:
        first: Resources in use after the worker's first trial.
        now: Resources in use after the worker's latest trial.
    """
    bounds = {
        "memory": max(MEMORY_GROWTH, first.memory),
        "descriptors": DESCRIPTOR_GROWTH,
        "threads": THREAD_GROWTH,
    }
    for what, bound in bounds.items():
        had, has = getattr(first, what), getattr(now, what)
        if has - had > bound:
            unit, size = ("MB of memory", 1 << 20) if what == "memory" else (what, 1)
            return f"the process grew from {had // size} to {has // size} {unit}"
    return None
