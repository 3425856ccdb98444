"""Drivers that die when they write, for tests without Ray."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from sweeps.core.sweep_folder import JOURNAL
from sweeps.study.journal import Journal


class Killed(BaseException):
    """The process is gone."""


class Deaf:
    """Takes every call, as the pool's handle and the tracker do, and answers nothing."""

    def __getattr__(self, name: str) -> Any:
        return Deaf()

    def __call__(self, *args: Any) -> None:
        return None


def records_of(folder: Path) -> int:
    """The records of a sweep's journal."""
    return (folder / JOURNAL).read_bytes().count(b"\n")


def dying(monkeypatch: pytest.MonkeyPatch, at: int, part: float) -> None:
    """Let a driver die when it writes its record of this number, of which this part comes to the disk."""
    whole, count = Journal.append_logs, 0

    def append_logs(self, logs):
        nonlocal count
        count += 1
        if count == at:
            text = "".join(json.dumps(entry, separators=(",", ":")) + "\n" for entry in logs).encode()
            with open(self._file_path, "ab") as f:
                f.write(text[: int(len(text) * part)])
            raise Killed
        whole(self, logs)

    monkeypatch.setattr(Journal, "append_logs", append_logs)


def with_deaths(drive: Callable[[], Any], folder: Path, data: st.DataObject, records: int) -> Any:
    """What a sweep comes to in an empty folder, whose drivers die one to four times, at any record and any byte of it.

    Args:
        drive: a driver, to the end of the sweep.
        folder: the sweep's.
        data: hypothesis' choices.
        records: that an undisturbed sweep writes.
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
