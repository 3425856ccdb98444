"""Return freed memory of this process to the operating system."""

import contextlib
import ctypes
import gc
import sys


def return_freed_memory() -> None:
    """Return memory that this process has freed.

    Otherwise, Arrow and the C library keep the memory for later allocations.

    Call this function after objects of many megabytes are deleted. It takes up to 0.2 s, because it
    also collects reference cycles. Without Linux's C library, only Arrow returns its memory.
    """
    gc.collect()
    if (arrow := sys.modules.get("pyarrow")) is not None:
        arrow.default_memory_pool().release_unused()
    with contextlib.suppress(OSError, AttributeError):  # other C libraries have no `malloc_trim`
        ctypes.CDLL(None).malloc_trim(0)
