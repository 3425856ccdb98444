"""Freed memory goes back to the operating system."""

from __future__ import annotations

import os

import psutil
import pyarrow as pa
import pytest

from sweeps.data.freed_memory import return_freed_memory


@pytest.mark.skipif(
    os.name != "posix" or not os.path.exists("/proc/self/statm"), reason="needs Linux"
)
def test_freed_memory_is_returned() -> None:
    process = psutil.Process()
    blocks = [bytearray(100_000) for _ in range(1000)] + [
        pa.allocate_buffer(1 << 20) for _ in range(100)
    ]
    kept = blocks[::50]
    before = process.memory_info().rss
    del blocks
    return_freed_memory()
    assert process.memory_info().rss < before - (50 << 20) and len(kept) == 22


def test_another_c_library_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda name: object())
    return_freed_memory()
