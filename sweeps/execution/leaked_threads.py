"""Find threads that a training loop has left running, and decide whether they run the user's code.

Python cannot stop a thread. If the thread runs the user's code, it could affect the next trial, so
the worker is closed.
"""

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

# Longest wait for the end of a loop's threads, in seconds. All threads of a loop share this time.
END_WITHIN = 0.5


def started_since(before: Collection[threading.Thread]) -> list[threading.Thread]:
    """Return the running threads of this process that are not in `before`, except the thread that calls this function."""
    return [
        t for t in threading.enumerate() if t not in before and t is not threading.current_thread()
    ]


def describe_first(threads: Iterable[threading.Thread]) -> str | None:
    """Return a message about the first thread that runs the user's code and does not end within `END_WITHIN` seconds.

    Return None if there is no such thread.

    A thread that runs only a library's code, such as the monitor of a progress bar, is ignored,
    because it does nothing for the trial.
    """
    until = time.monotonic() + END_WITHIN
    for thread in threads:
        if user_code_position(thread) is None:
            continue
        thread.join(max(0.0, until - time.monotonic()))
        if thread.is_alive() and (found := user_code_position(thread)) is not None:
            return (
                f"a thread that the training loop started is still running: `{thread.name}` {found}"
            )
    return None


def user_code_position(thread: threading.Thread) -> str | None:
    """Return a text that says where a thread runs the user's code, or which of the user's functions the thread will call.

    The text is "at FILE:LINE" or "with the function at FILE:LINE". Return None if the thread runs
    only libraries' code.
    """
    frame: FrameType | None = sys._current_frames().get(thread.ident or 0)
    while frame is not None:
        if is_user_code(frame.f_code.co_filename):
            return f"at {frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    code = _code_of(getattr(thread, "function", None)) or _code_of(
        getattr(thread, "_target", None)
    )  # Of a Timer, or of a Thread.
    return (
        f"with the function at {code.co_filename}:{code.co_firstlineno}"
        if code is not None and is_user_code(code.co_filename)
        else None
    )


def _code_of(function: Any) -> CodeType | None:
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(getattr(function, "__func__", function), "__code__", None)


@functools.lru_cache(maxsize=4096)
def is_user_code(file: str) -> bool:
    """Return whether a source file is part of the user's code, and not of Python, of an installed package, or of sweeps."""
    if file.startswith("<"):
        return False
    path = Path(file).resolve()
    return {"site-packages", "dist-packages"}.isdisjoint(path.parts) and not any(
        folder in path.parents for folder in _libraries()
    )


@functools.cache
def _libraries() -> tuple[Path, ...]:
    paths = sysconfig.get_paths()
    ours = Path(sweeps.__file__).resolve().parent
    return (
        Path(paths["stdlib"]).resolve(),
        Path(os.__file__).resolve().parent,
        ours,
        (ours / "trainers").resolve(),
    )
