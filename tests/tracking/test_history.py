"""The controller's events and a resumed sweep's history say what the study says, without Ray."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sweeps.runs.mlflow_summary import started_event
from sweeps.study import record_reader
from sweeps.study.events import SweepEnded
from sweeps.tracking import TrackerHub
from sweeps.tracking.jsonl import JsonLinesTracker
from tests.search import test_crash
from tests.search.conftest import make_space

__all__ = ["make_space"]


def lines_in(folder: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]


def check(folder: Any) -> None:
    """Every report and every end of the study is in the file once, and nothing else."""
    study, lines = record_reader.read(folder), lines_in(folder)
    assert study is not None
    reports = [
        (line["trial"], line["step"], line["metrics"]["loss"])
        for line in lines
        if line["type"] == "TrialReported"
    ]
    assert sorted(reports) == [(t.id, step, value) for t in study.trials for step, value in t.curve]
    ends = [
        (line["trial"], line["state"], line["value"])
        for line in lines
        if line["type"] == "TrialEnded"
    ]
    assert sorted(ends) == [(t.id, t.result.state.name, t.result.value) for t in study.trials]
    started = {line["trial"]: line["params"] for line in lines if line["type"] == "TrialStarted"}
    assert started == {t.id: t.params for t in study.trials}


@pytest.mark.parametrize("kept", [0.0, 0.3, 0.7, 1.0])
def test_a_resume_adds_what_an_earlier_driver_did_not_deliver(
    make_space: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: float
) -> None:
    space, folder = make_space(test_crash.BODY, max_trials=8), tmp_path / "sweep"
    folder.mkdir()
    hub = TrackerHub([("jsonl", JsonLinesTracker())])
    monkeypatch.setattr(test_crash, "TrackerHub", lambda: hub)
    hub.publish(started_event(folder, space, "0" * 64, 1.0, resumed=False))
    test_crash.drive(space, folder)
    hub.publish(SweepEnded(2.0, None))
    assert hub.close(20.0) == ()
    check(folder)
    whole = (folder / "events.jsonl").read_bytes()
    (folder / "events.jsonl").write_bytes(whole[: int(kept * len(whole))])
    again = TrackerHub([("jsonl", JsonLinesTracker())])
    again.publish(started_event(folder, space, "0" * 64, 3.0, resumed=True))
    assert again.close(20.0) == ()
    check(folder)
