"""Let only one process at a time run a sweep.

Until this process, the driver, ends or dies, it locks the sweep's folder and a file in the
folder. The folder is locked because somebody may delete the file. The file is locked because NFS
cannot lock folders.
"""

import contextlib
import fcntl
import os
import time
from pathlib import Path
from typing import Self

from sweeps.core.errors import InputError, SweepLocked, UnreadableFile

from .regular_files import FILE, kind_of, open_regular
from .sweep_folder import SweepFolder

# Another process that calls `is_driven` holds a lock for a moment.
LOCK_TRIES = 5
RETRY_SECONDS = 0.02


def is_driven(folder: Path) -> bool:
    """Return whether a living process is running the sweep in this folder.

    A shared lock is requested, because other processes may call this function at the same time. The
    driver's lock is exclusive, so the request fails if the driver holds it.
    """
    lock = SweepFolder(folder).lock
    try:
        descriptor = _open_folder(folder)
        try:
            _lock_folder(descriptor, fcntl.LOCK_SH)
        finally:
            os.close(descriptor)
        with open(lock, opener=open_regular) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    except (OSError, UnreadableFile):
        return kind_of(lock) == FILE  # a driver's lock is never a link or a pipe
    return False


def _open_folder(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _lock_folder(descriptor: int, operation: int) -> None:
    """Lock an open folder, if its file system can lock folders.

    Args:
        descriptor: File descriptor of the folder.
        operation: `fcntl.LOCK_SH` or `fcntl.LOCK_EX`.

    Raises:
        BlockingIOError: Another process holds the lock.
    """
    try:
        fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:  # NFS cannot lock folders.
        pass


class FolderLock:
    """Exclusive lock on a sweep's folder.

    The file `lock` holds the driver's process id, for people to read.

    Raises:
        SweepLocked: Another living process holds the lock.
        InputError: The folder is not writable, or its lock is not a regular file.
    """

    def __init__(self, folder: Path):
        try:
            lock = open_regular(SweepFolder(folder).lock, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        except OSError as e:
            raise InputError(str(folder), f"is not writable: {e.strerror}") from None
        self._file = os.fdopen(lock, "a+")
        self._open_files = contextlib.ExitStack()
        self._open_files.enter_context(self._file)
        descriptor = _open_folder(folder)
        self._open_files.callback(os.close, descriptor)
        for tries_left in reversed(range(LOCK_TRIES)):
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _lock_folder(descriptor, fcntl.LOCK_EX)
                break
            except OSError:
                if tries_left:
                    time.sleep(RETRY_SECONDS)
                    continue
                self._file.seek(0)
                pid = self._file.read().strip() or "unknown"
                self.release()
                raise SweepLocked(
                    f"{folder}: process {pid} is running this sweep; wait until the process ends, "
                    "or stop the process"
                ) from None
        self._file.truncate(0)
        self._file.write(str(os.getpid()))
        self._file.flush()

    def release(self) -> None:
        """Release the lock."""
        self._open_files.close()

    def __enter__(self) -> Self:
        """Return this lock. It is released when the `with` block ends."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Release the lock."""
        self.release()
