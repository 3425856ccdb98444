"""The choice of the exported trial in the study."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sweeps.core.trial import Report, State
from sweeps.search.search_loop import SearchLoop
from sweeps.study import journal_records, record_reader
from sweeps.study.choice import CHOICE, TrialChoice, recorded_choice
from sweeps.study.events import TrialReported
from sweeps.study.study_store import StudyStore
from tests.search.next_trial import next_trial

BODY = "params: {x: {uniform: [0.0, 1.0]}}"
CONFIRMED = TrialChoice("confirmed", 3, 1, {0: (0.0, 0.5, None), 1: (1.0, 0.25)})


def run_trials(loop: SearchLoop, count: int) -> None:
    """Run trials whose values are 0, 1, 2, ..."""
    for _ in range(count):
        trial = next_trial(loop)
        report = Report(1, {"loss": float(trial.number)}, 1.0)
        loop.store.append(TrialReported(1.0, trial.number, (report,), seconds=0.0))
        loop.store.end(trial.number, State.COMPLETE)


def test_a_recorded_choice_replaces_the_best_trial(make_space: Any, tmp_path: Path) -> None:
    space = make_space(BODY, scheduler="{name: none}", max_trials=5)
    loop = SearchLoop.open(tmp_path, space)
    run_trials(loop, 3)
    assert loop.store.choice is None and loop.store.winner() == 0
    loop.store.record_choice(CONFIRMED)
    for store in (loop.store, StudyStore(tmp_path, space)):
        assert store.choice == CONFIRMED and store.winner() == 1
    record = record_reader.read(tmp_path)
    assert record is not None and record.choice == CONFIRMED
    assert record.best is not None and record.best.number == 1 and record.best_value == 1.0
    run_trials(loop, 1)  # with more trials, the choice must be made again
    assert loop.store.choice is None and loop.store.winner() == 0
    record = record_reader.read(tmp_path)
    assert record is not None and record.best is not None and record.best.number == 0


def test_a_choice_that_is_not_complete_leaves_the_best_trial(
    make_space: Any, tmp_path: Path
) -> None:
    loop = SearchLoop.open(tmp_path, make_space(BODY, scheduler="{name: none}", max_trials=5))
    run_trials(loop, 3)
    unfinished = TrialChoice("confirmed", 3, None, {0: (0.0, 0.5), 1: (1.0,)})
    loop.store.record_choice(unfinished)
    assert loop.store.choice == unfinished and loop.store.winner() == 0


def test_json_keeps_a_choice_and_damage_is_noticed() -> None:
    content = CONFIRMED.to_json()
    assert recorded_choice({CHOICE: content}, 3) == CONFIRMED
    assert recorded_choice({CHOICE: content}, 4) is None and recorded_choice({}, 3) is None
    check = journal_records.STUDY_ATTRIBUTES[CHOICE].validate_python
    check(content)
    for change in (
        {"rule": "luck"},
        {"trials": 0},
        {"number": -1},
        {"values": {"x": [1.0]}},
        {"values": {"1": ["a"]}},
        {"more": 1},
    ):
        with pytest.raises(ValueError):
            check({**content, **change})
