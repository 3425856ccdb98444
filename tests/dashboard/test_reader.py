"""The page reads a sweep's folder again after a change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sweeps.core.files.folder_lock import FolderLock
from sweeps.dashboard.sweep_reader import SweepReader, version_of
from sweeps.study.record_reader import RecordReader
from sweeps.sweep_report import plots
from sweeps.sweep_report.figures import Figure
from tests.dashboard.sweep_folders import sweep_folder


@pytest.fixture
def folder(tmp_path: Path) -> Any:
    return sweep_folder(tmp_path / "runs", 3)


def test_the_version_changes_with_the_folder(folder: Any) -> None:
    first = version_of(folder)
    assert version_of(folder) == first
    lock = FolderLock(folder)
    running = version_of(folder)
    lock.release()
    (folder / "stages.json").write_text("{}")
    assert len({first, running, version_of(folder)}) == 3
    (folder / "origin.json").write_text("[]")  # damaged
    assert version_of(folder) != first


class Clock:
    """Clock that a test sets. A reading of the study takes `reading` seconds."""

    def __init__(self, monkeypatch: Any, reading: float = 0.1) -> None:
        self.now = 1.0
        original = RecordReader.read

        def read(records: Any) -> Any:
            self.now += reading
            return original(records)

        monkeypatch.setattr(RecordReader, "read", read)

    def __call__(self) -> float:
        return self.now


def test_a_sweep_is_read_again_only_after_a_change_and_a_rest(
    folder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    reader = SweepReader(folder, clock)
    first = reader.snapshot()
    assert reader.snapshot() is first and reader.rest() == 0, "later readings are faster"
    (folder / "stages.json").write_text("{}")
    second = reader.snapshot()  # reads the study for the summary and for the table
    assert second is not first and reader.rest() == pytest.approx(30 * 0.2)
    (folder / "stages.json").write_text("{ }")
    clock.now += 5.9
    assert reader.snapshot() is second
    clock.now += 0.2
    assert reader.snapshot() is not second


def test_a_rest_is_limited_and_figures_count(folder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, 5.0)
    reader = SweepReader(folder, clock)
    reader.snapshot()

    def drawn(*args: Any, **options: Any) -> Any:
        clock.now += 0.5
        return Figure("history", "")

    monkeypatch.setattr(plots, "figure", drawn)
    reader.figure("history")
    assert reader.rest() == 15
    reader.figure("curves")
    assert reader.rest() == 29.5, "0.5 of the 15 seconds have passed"
    (folder / "stages.json").write_text("{}")
    clock.now += 30
    reader.snapshot()
    assert reader.rest() == 30


def test_a_change_is_announced_after_the_rest(folder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    reader = SweepReader(folder, clock)
    reader.summary()
    for content in ("{}", "{ }"):
        (folder / "stages.json").write_text(content)
        reader.summary()
    before = reader.version()
    assert reader.rest() == pytest.approx(3) and before != version_of(folder)
    clock.now += 3.1
    assert reader.version() == version_of(folder)


def test_the_list_and_the_page_of_a_sweep_show_the_same_state(
    folder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = SweepReader(folder, Clock(monkeypatch))
    first = reader.snapshot()
    (folder / "stages.json").write_text("{}")
    assert reader.summary() is reader.snapshot().summary is not first.summary
