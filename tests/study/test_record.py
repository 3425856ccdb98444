"""Reading a study again while a sweep writes to it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from sweeps.core.trial import Report, State
from sweeps.search.search_loop import SearchLoop
from sweeps.space.python.saved_space import recorded_space
from sweeps.study import record_reader
from sweeps.study.events import TrialReported
from sweeps.study.journal import JournalReader
from tests.dashboard.sweep_folders import sweep_folder


@pytest.fixture
def folder(tmp_path: Path) -> Any:
    return sweep_folder(tmp_path / "runs", 8, running=2)


def test_a_reader_sees_what_a_new_reading_sees(folder: Any) -> None:
    reader = record_reader.RecordReader(folder)
    first = reader.read()
    assert first is not None
    assert first == record_reader.read(folder)
    loop = SearchLoop.open(folder, recorded_space(folder))
    trial = loop.ask()
    assert trial is not None
    for number in (trial.number, *loop.interrupted):
        reports = (Report(10, {"mlogloss": 0.5}, 1.0),)
        loop.store.append(TrialReported(1.0, number, reports, seconds=1.0))
        loop.store.end(number, State.COMPLETE)
    second = reader.read()
    assert second is not None
    assert second == record_reader.read(folder) != first and len(second.trials) == 9
    assert all(a is b for a, b in zip(first.trials[:6], second.trials, strict=False))
    shutil.copy(folder / "study.journal", folder / "new")
    (folder / "new").replace(folder / "study.journal")  # as `sweeps repair` does
    third = reader.read()
    assert third is not None and third == second
    assert third.trials[0] is not second.trials[0]


def test_a_reader_reads_each_line_once(folder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    original = JournalReader.read_logs

    def counted(journal: Any, first: Any) -> Any:
        records = [*original(journal, first)]
        seen.extend(records)
        return iter(records)

    monkeypatch.setattr(JournalReader, "read_logs", counted)
    reader = record_reader.RecordReader(folder)
    for _ in range(3):
        reader.read()
    assert len(seen) == len((folder / "study.journal").read_text().splitlines())
