"""When the page reads a sweep's folder again."""

from __future__ import annotations

import pytest

from sweeps.core.folder_lock import FolderLock
from sweeps.dashboard import reader as module
from sweeps.dashboard.reader import SweepReader, version_of
from tests.dashboard.made import sweep_folder


@pytest.fixture
def folder(tmp_path):
    return sweep_folder(tmp_path / "runs", 3)


def test_the_version_changes_with_the_folder(folder):
    first = version_of(folder)
    assert version_of(folder) == first
    lock = FolderLock(folder)
    running = version_of(folder)
    lock.release()
    (folder / "stages.json").write_text("{}")
    assert len({first, running, version_of(folder)}) == 3
    (folder / "origin.json").write_text("[]")  # damaged
    assert version_of(folder) != first


def test_a_sweep_is_read_again_only_after_a_change_and_a_rest(folder, monkeypatch):
    times = iter(
        [0.0, 1.0, 2.0, 4.9, 5.1, 5.2]
    )  # the first reading takes a second, so the next one is due at 1 + 4
    count, original = [], module.read
    monkeypatch.setattr(module, "read", lambda *args: count.append(args) or original(*args))
    reader = SweepReader(folder, lambda: next(times))
    first = reader.snapshot()
    assert reader.snapshot() is first
    (folder / "stages.json").write_text("{}")
    assert reader.snapshot() is first and len(count) == 1
    assert reader.snapshot() is not first and len(count) == 2


def test_a_reader_says_when_it_reads_a_changed_folder_again(folder):
    times = iter([0.0, 1.0, 2.0, 3.0, 5.5, 5.5, 5.5])
    reader = SweepReader(folder, lambda: next(times))
    assert reader.summary()[0] == version_of(folder) and reader.rest() == 3.0
    (folder / "stages.json").write_text("{}")
    assert reader.summary()[0] != version_of(folder)  # the older state
    assert reader.rest() == 0.0 and reader.summary()[0] == version_of(folder)


def test_figures_are_kept_until_the_sweep_changes(folder):
    reader = SweepReader(folder)
    first = reader.figure("slice", name="params.eta")
    assert reader.figure("slice", name="params.eta") is first
    assert reader.figure("slice", name="params.max_depth") is not first
