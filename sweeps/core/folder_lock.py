"""One driver a sweep: an operating-system lock on the sweep's folder, held for the driver's life and freed by its death."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from pathlib import Path

from sweeps.core.errors import InputError, Problem, SweepLocked

TRIES = 5


def driven(folder: Path) -> bool:
    """Whether a living process drives the sweep in this folder."""
    try:
        with os.fdopen(_opened(folder / "lock", os.O_RDONLY)) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError as e:
        return e.errno != errno.ELOOP  # a link is no lock of a driver's
    return False


def _opened(file: Path, flags: int) -> int:
    """Open the file itself: a link could lead out of the folder, and a pipe would be waited for."""
    return os.open(file, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)


class FolderLock:
    """Holds `flock` on `FOLDER/lock`, in which it leaves its process id for people.

    Raises:
        SweepLocked: another living process holds it.
        InputError: the folder cannot be written to.
    """

    def __init__(self, folder: Path):
        try:
            self._file = os.fdopen(_opened(folder / "lock", os.O_RDWR | os.O_APPEND | os.O_CREAT), "a+")
        except OSError as e:
            raise InputError(Problem(str(folder), f"cannot be written to: {e.strerror}")) from None
        for left in reversed(range(TRIES)):
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if left:  # it may be one who only looked, as `driven` does
                    time.sleep(0.02)
                    continue
                self._file.seek(0)
                pid = self._file.read().strip() or "unknown"
                self._file.close()
                raise SweepLocked(f"{folder}: driven by process {pid}, which lives; wait for it or end it first") from None
        self._file.truncate(0)
        self._file.write(str(os.getpid()))
        self._file.flush()

    def release(self) -> None:
        """Let another driver take the folder."""
        self._file.close()
