"""One driver a sweep: an operating-system lock on the sweep's folder, held for the driver's life and freed by its death."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from sweeps.errors import SweepLocked


class FolderLock:
    """Holds `flock` on `FOLDER/lock`, in which it leaves its process id for people.

    Raises:
        SweepLocked: another living process holds it.
    """

    def __init__(self, folder: Path):
        self._file = open(folder / "lock", "a+")  # noqa: SIM115 - held until release
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
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
