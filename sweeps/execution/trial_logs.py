"""A log file a trial, though a warm worker runs many: what a rank's process prints while it runs a trial goes to that trial's folder."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

# Folder of a trial's logs in the trial's folder, and a rank's file in it.
LOGS = "logs"
# A log that has grown larger keeps its first and its last part, in bytes.
LARGEST, FIRST, LAST = 10 * 2**20, 2**20, 4 * 2**20


def log_of(folder: str | Path, rank: int) -> Path:
    """The log of one rank of a trial."""
    return Path(folder, LOGS, f"rank-{rank}.log")


@contextlib.contextmanager
def into(path: Path, title: str) -> Iterator[Callable[[str], None]]:
    """While this lasts, whatever this process prints is appended to the file: Python's streams, loggers and native libraries alike.

    It is done to the file descriptors 1 and 2, which all of them share; replacing `sys.stdout` would miss XGBoost's own lines and
    every handler that was made earlier.

    Args:
        path: the file; its folder is made.
        title: a line that begins the attempt.

    Yields:
        A function that adds a line of our own, whatever a loop has done to Python's streams.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    streams = (sys.stdout, sys.stderr)  # a loop may put others in their place, and leave what it printed in these
    log = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    kept = {number: os.dup(number) for number in (1, 2)}
    _flush(*streams)
    for number in kept:
        os.dup2(log, number)

    def say(line: str) -> None:
        _flush(*streams)
        os.write(log, f"--- {line}\n".encode(errors="replace"))  # a loop may have closed its standard output

    try:
        say(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {title}")
        yield say
    finally:
        _flush(*streams)
        for number, before in kept.items():
            os.dup2(before, number)
            os.close(before)
        shorten(log)
        os.close(log)


def shorten(log: int | Path) -> None:
    """Cut the middle out of a log that is larger than `LARGEST`.

    Processes may go on appending to it; what they write in the moment of the cut may be lost with the rest.

    Args:
        log: a file, or the descriptor of one that is open for reading and appending.
    """
    if isinstance(log, Path):
        with contextlib.suppress(OSError):
            opened = os.open(log, os.O_RDWR | os.O_APPEND)
            try:
                shorten(opened)
            finally:
                os.close(opened)
        return
    size = os.fstat(log).st_size
    if size <= LARGEST:
        return
    last = os.pread(log, LAST, size - LAST)
    last = last[last.find(b"\n") + 1 :]
    os.ftruncate(log, FIRST)
    cut = (
        f"\n--- output was left out here: of more than {LARGEST >> 20} MiB a log keeps the first {FIRST >> 20} and the last {LAST >> 20}\n"
    )
    os.write(log, cut.encode() + last)


def _flush(*streams: Any) -> None:
    """Write out what Python's streams and C's hold back."""
    for stream in dict.fromkeys((*streams, sys.stdout, sys.stderr)):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # a loop may have closed or replaced them
            stream.flush()
    with contextlib.suppress(ValueError):  # where C's library names it otherwise
        c = ctypes.CDLL(None)
        c.fflush(ctypes.c_void_p.in_dll(c, "stdout"))
