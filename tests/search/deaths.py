"""Drivers that die while they write, for tests without Ray."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from sweeps.core.files.sweep_folder import JOURNAL
from sweeps.study.journal import Journal


class Killed(BaseException):
    """Raised in place of the death of the process."""


class Deaf:
    """Stand-in for the pool's handle and for the tracker.

    It accepts every call and returns nothing.
    """

    def __getattr__(self, name: str) -> Any:
        return Deaf()

    def __call__(self, *args: Any) -> None:
        return None


def records_of(folder: Path) -> int:
    """Return the number of records in a sweep's journal."""
    return (folder / JOURNAL).read_bytes().count(b"\n")


def dying(monkeypatch: pytest.MonkeyPatch, at: int, part: float) -> None:
    """Let a driver die when it writes the record with the number `at`.

    Only the fraction `part` of the record is written.
    """
    whole, count = Journal.append_logs, 0

    def append_logs(self: Any, logs: Any) -> None:
        nonlocal count
        count += 1
        size = os.stat(self._file_path).st_size if count == at else 0
        whole(self, logs)
        if count == at:
            written = os.stat(self._file_path).st_size - size
            os.truncate(self._file_path, size + int(written * part))
            raise Killed

    monkeypatch.setattr(Journal, "append_logs", append_logs)


def with_deaths(drive: Callable[[], Any], folder: Path, data: st.DataObject, records: int) -> Any:
    """Run a sweep in an empty folder with one to four drivers that die, and return the result of
    the last driver.

    Each driver dies at a random record and a random byte of the record.

    Args:
        drive: Function that runs a driver until the sweep ends.
        folder: The sweep's folder.
        data: Source of random choices (hypothesis).
        records: Number of records that an undisturbed sweep writes.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for _ in range(data.draw(st.integers(1, 4))):
        with pytest.MonkeyPatch.context() as patch:
            dying(patch, data.draw(st.integers(1, records)), data.draw(st.floats(0, 1)))
            try:
                drive()
            except Killed:
                continue
            break  # there was less left to write than that
    return drive()
