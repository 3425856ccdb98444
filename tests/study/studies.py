"""Studies that are read from the folders of sweeps."""

from __future__ import annotations

from pathlib import Path

from sweeps.study import record_reader
from sweeps.study.record_reader import Record


def recorded_study(folder: Path) -> Record:
    """Return the study of a sweep that has one."""
    study = record_reader.read(folder)
    assert study is not None
    return study
