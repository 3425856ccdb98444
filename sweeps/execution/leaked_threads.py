"""Threads that a loop has left behind, and whether the user's code runs in them: then nothing can keep it from the next trial."""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
import threading
import time
from collections.abc import Collection, Iterable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import sweeps

# Threads that are about to end have so long to do so, all together, in seconds.
END_WITHIN = 0.5


def left(before: Collection[threading.Thread]) -> list[threading.Thread]:
    """The threads of this process that were not there before and that live still."""
    return [t for t in threading.enumerate() if t not in before and t is not threading.current_thread()]


def of_the_user(threads: Iterable[threading.Thread]) -> str | None:
    """Where in the user's code the first of these threads is, that does not end soon; None if none is.

    A library's own, as the monitor of a progress bar, stay: they know nothing of trials.
    """
    until = time.monotonic() + END_WITHIN
    for thread in threads:
        if place(thread) is None:
            continue
        thread.join(max(0.0, until - time.monotonic()))
        if thread.is_alive() and (found := place(thread)) is not None:
            return f"a thread that its loop began still runs: `{thread.name}` {found}"
    return None


def place(thread: threading.Thread) -> str | None:
    """Where in the user's code a thread is, or will be as it wakes up; None if it is not in it."""
    frame: FrameType | None = sys._current_frames().get(thread.ident or 0)
    while frame is not None:
        if users(frame.f_code.co_filename):
            return f"at {frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    code = _code_of(getattr(thread, "function", None)) or _code_of(getattr(thread, "_target", None))  # a Timer's, a Thread's
    return f"of {code.co_filename}:{code.co_firstlineno}" if code is not None and users(code.co_filename) else None


def _code_of(function: Any) -> CodeType | None:
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(getattr(function, "__func__", function), "__code__", None)


@functools.lru_cache(maxsize=4096)
def users(file: str) -> bool:
    """Whether a file of code is neither Python's nor an installed package's nor ours."""
    if file.startswith("<"):
        return False
    path = Path(file).resolve()
    return {"site-packages", "dist-packages"}.isdisjoint(path.parts) and not any(folder in path.parents for folder in _libraries())


@functools.cache
def _libraries() -> tuple[Path, ...]:
    paths = sysconfig.get_paths()
    ours = Path(sweeps.__file__).resolve().parent
    return (Path(paths["stdlib"]).resolve(), Path(os.__file__).resolve().parent, ours, (ours / "trainers").resolve())
