"""Tell the user's code from that of Python, of installed packages, and of sweeps."""

from __future__ import annotations

import functools
import sys
import sysconfig
import threading
from pathlib import Path

import sweeps


def runs_in(thread: threading.Thread) -> bool:
    """Return whether a running thread executes the user's code, or was started to execute it.

    A thread that runs only a library's code, such as the monitor of a progress bar, does nothing
    for the trial.
    """
    frame = sys._current_frames().get(thread.ident or 0)
    if frame is None:
        return False
    while frame is not None:
        if is_user_code(frame.f_code.co_filename):
            return True
        frame = frame.f_back
    target = getattr(thread, "function", None) or getattr(thread, "_target", None)
    code = getattr(target, "__code__", None)
    return code is not None and is_user_code(code.co_filename)


@functools.lru_cache(maxsize=4096)
def is_user_code(file: str) -> bool:
    """Return whether a source file is part of the user's code."""
    path = Path(file).resolve()
    if file.startswith("<") or {"site-packages", "dist-packages"} & set(path.parts):
        return False
    own = Path(sweeps.__file__).resolve().parent
    libraries = (Path(sysconfig.get_paths()["stdlib"]).resolve(), own, (own / "trainers").resolve())
    return not any(folder in path.parents for folder in libraries)


def is_installed(module: str) -> bool:
    """Return whether a module is imported and belongs to an installed package."""
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    return "site-packages" in file or "dist-packages" in file
