"""When the page reads a sweep's folder again."""

from __future__ import annotations

import pytest

from sweeps.controller.sweep_summary import SweepSummary
from sweeps.core.folder_lock import FolderLock
from sweeps.dashboard import reader as module
from sweeps.dashboard.reader import SweepReader, version_of
from sweeps.search.search_loop import SearchLoop
from sweeps.space.saved_space import recorded_space
from sweeps.study.record import RecordReader
from sweeps.sweep_report.figures import Figure
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


class Clock:
    """Clock that a test sets. A reading of the study takes `reading` seconds."""

    def __init__(self, monkeypatch, reading=0.1):
        self.now = 1.0
        original = RecordReader.read

        def read(records):
            self.now += reading
            return original(records)

        monkeypatch.setattr(RecordReader, "read", read)

    def __call__(self) -> float:
        return self.now


def test_a_sweep_is_read_again_only_after_a_change_and_a_rest(folder, monkeypatch):
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


def test_a_rest_is_limited_and_figures_count(folder, monkeypatch):
    clock = Clock(monkeypatch, 5.0)
    reader = SweepReader(folder, clock)
    reader.snapshot()

    def drawn(*args, **options):
        clock.now += 0.5
        return Figure("history", "")

    monkeypatch.setattr(module.plots, "figure", drawn)
    reader.figure("history")
    assert reader.rest() == 15
    reader.figure("curves")
    assert reader.rest() == 29.5, "0.5 of the 15 seconds have passed"
    (folder / "stages.json").write_text("{}")
    clock.now += 30
    reader.snapshot()
    assert reader.rest() == 30


def test_a_reader_says_when_it_reads_a_changed_folder_again(folder, monkeypatch):
    clock = Clock(monkeypatch)
    reader = SweepReader(folder, clock)
    assert reader.summary()[0] == version_of(folder)
    for content in ("{}", "{ }"):
        (folder / "stages.json").write_text(content)
        reader.summary()
    assert reader.summary()[0] != version_of(folder)  # the older state
    assert reader.rest() == pytest.approx(3)
    clock.now += 3.1
    assert reader.rest() == 0.0 and reader.summary()[0] == version_of(folder)


def test_a_row_changes_only_with_its_trial(folder, monkeypatch):
    times = iter(range(10, 100, 10))
    monkeypatch.setattr(module.time, "time", lambda: next(times))
    reader = RecordReader(folder)
    first = module.read(reader, "1", {})
    assert [row.changed for row in first.rows.values()] == [first.rows[0].changed] * 3
    loop = SearchLoop.open(folder, recorded_space(folder))
    number = loop.ask().number
    second = module.read(reader, "2", first.rows)
    assert [n for n, row in second.rows.items() if row is not first.rows.get(n)] == [number]
    monkeypatch.setattr(SweepSummary, "state_of", lambda summary, trial: "WAITING")
    third = module.read(reader, "3", second.rows)
    assert all(row.changed > second.rows[number].changed for row in third.rows.values())


def test_figures_are_kept_until_the_sweep_changes(folder):
    reader = SweepReader(folder)
    first = reader.figure("slice", name="params.eta")
    assert reader.figure("slice", name="params.eta") is first
    assert reader.figure("slice", name="params.max_depth") is not first
