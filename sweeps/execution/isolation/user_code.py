"""Tell the user's code from that of Python, of installed packages, and of sweeps."""

import functools
import sys
import threading
from pathlib import Path

from sweeps.core.plugins.library_code import is_library_file
from sweeps.core.plugins.references import is_users_file


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


# `is_users_file`, which reads the file system, with its results cached.
is_user_code = functools.cache(is_users_file)


def is_installed(module: str) -> bool:
    """Return whether a module is imported and belongs to Python or to an installed package."""
    file = getattr(sys.modules.get(module), "__file__", None)
    return file is not None and is_library_file(Path(file))
