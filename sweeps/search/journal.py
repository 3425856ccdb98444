"""Optuna's journal on a file: what a crash leaves of it, and when it is forced to the disk."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

from optuna.storages.journal import JournalFileBackend
from optuna.storages.journal._file import BaseJournalFileLock


class _NoLock(BaseJournalFileLock):
    """The sweep's folder is locked as a whole; a lock file of Optuna's would only be left behind by a crash."""

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        pass


class Journal(JournalFileBackend):
    """Optuna's journal file, forced to the disk once a decision rather than once a record: of the latter a trial has some ten.

    A record is in the operating system's hands as soon as it is written, so that no death of a process loses it.

    Args:
        path: the file; what was not written whole of it is cut off.
    """

    _written = False

    def __init__(self, path: Path):
        cut_torn_tail(path)
        super().__init__(str(path.resolve()), lock_obj=_NoLock())

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        left = memoryview("".join(json.dumps(record, separators=(",", ":")) + "\n" for record in logs).encode())
        with open(self._file_path, "ab", buffering=0) as f:
            whole = f.tell()
            try:
                while left:
                    left = left[f.write(left) :]
            except BaseException:  # a full disk, which may have room again for the next record
                f.truncate(whole)
                raise
        self._written = True

    def sync(self) -> None:
        """Outlive a machine that stops."""
        if self._written:
            with open(self._file_path, "ab") as f:
                os.fsync(f.fileno())
            self._written = False


def cut_torn_tail(journal: Path) -> int:
    """Cut off a last record that was not written whole; returns the bytes cut.

    Optuna loads such a journal, but glues its next record to the fragment, and then cannot load it any more.
    """
    if not journal.exists():
        return 0
    data = journal.read_bytes()
    whole = data.rfind(b"\n") + 1
    while whole:  # a record can also be torn in its middle, by a hole that the file system filled with zeros
        start = data.rfind(b"\n", 0, whole - 1) + 1
        with contextlib.suppress(ValueError):
            json.loads(data[start:whole])
            break
        whole = start
    if whole < len(data):
        with open(journal, "r+b") as f:
            f.truncate(whole)
            f.flush()
            os.fsync(f.fileno())
    return len(data) - whole
