"""The JSON lines tracker writes one object an event, once."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from sweeps.core.trial import Result, State
from sweeps.study.events import SweepStarted, TrialEnded, TrialStarted
from sweeps.testing.pytest_trackers import sample_events, trial_events
from sweeps.tracking.jsonl import JsonLinesTracker


def play(events: Any) -> None:
    tracker = JsonLinesTracker()
    for event in events:
        tracker.handle(event)
    tracker.close()


def lines_in(folder: Path) -> Any:
    return [
        json.loads(line) for line in next(folder.glob("*/events.jsonl")).read_text().splitlines()
    ]


def test_each_line_has_a_type_and_a_time(tmp_path: Path) -> None:
    events = sample_events(tmp_path)
    play(events)
    lines = lines_in(tmp_path)
    assert [line["type"] for line in lines] == [type(event).__name__ for event in events]
    assert lines[0]["time"] == "2023-11-14T22:13:20.000+00:00" and lines[0]["objectives"] == [
        {"metric": "loss", "goal": "minimize"}
    ]
    first = next(line for line in lines if line["type"] == "TrialReported")
    assert first == {
        "type": "TrialReported",
        "time": "2023-11-14T22:13:21.000+00:00",
        "trial": "0000",
        "step": 1,
        "metrics": {"loss": 1.0, "odd": None},
    }
    states = {line["trial"]: line["state"] for line in lines if line["type"] == "TrialEnded"}
    assert states == {
        "0000": "COMPLETE",
        "0001": "PRUNED",
        "0002": "FAIL",
        "0003": "INTERRUPTED",
        "0004": "COMPLETE",
    }
    assert lines[-1]["result"]["best"]["value"] == 0.25


def test_a_resume_adds_what_is_missing_and_nothing_twice(tmp_path: Path) -> None:
    """The first driver was killed in the middle of a line: the report of step 2 of trial 0, which
    it had put on record.
    """
    events = sample_events(tmp_path)
    play(events[:5])
    file = next(tmp_path.glob("*/events.jsonl"))
    whole = file.read_bytes()
    file.write_bytes(whole[:-20])
    play(sample_events(tmp_path, resumed=True))
    play(sample_events(tmp_path, resumed=True))
    lines = lines_in(tmp_path)
    reports = [(line["trial"], line["step"]) for line in lines if line["type"] == "TrialReported"]
    assert len(reports) == len(set(reports)) and {("0000", 1), ("0000", 2), ("0003", 2)} <= set(
        reports
    )
    ends = [
        line["trial"]
        for line in lines
        if line["type"] == "TrialEnded" and line["state"] != "INTERRUPTED"
    ]
    assert sorted(ends) == ["0000", "0001", "0002", "0004"]
    assert [line["resumed"] for line in lines if line["type"] == "SweepStarted"] == [
        False,
        True,
        True,
    ]


def test_no_secret_is_written(tmp_path: Path) -> None:
    start = sample_events(tmp_path)[0]
    assert isinstance(start, SweepStarted)
    secret = "http://me:hunter2@host/x?token=hunter2"
    space = replace(start.space, text=f'trackers: [{{"my:Hook": {{url: "{secret}"}}}}]')
    started = trial_events(0, State.COMPLETE)[0]
    assert isinstance(started, TrialStarted)
    started = replace(
        started, trial=replace(started.trial, params={"source": secret, "nested": [{secret: 1}]})
    )
    play(
        [
            replace(start, space=space),
            started,
            TrialEnded(2.0, 0, Result(State.FAIL, error=f"no {secret}\n")),
        ]
    )
    text = next(tmp_path.glob("*/events.jsonl")).read_text()
    assert "***" in text and "hunter2" not in text
