"""The ledger keeps what happened, whatever is cut off it."""

from __future__ import annotations

import json
import math
import random
import time
from pathlib import Path
from typing import Any

import pytest

from sweeps.core.errors import SweepLocked
from sweeps.core.files.folder_lock import FolderLock
from sweeps.core.files.sweep_folder import JOURNAL
from sweeps.core.text.secrets import remember
from sweeps.core.trial import Checkpoint, Report, State, Trial
from sweeps.search.search_loop import SearchLoop
from sweeps.study import record_reader
from sweeps.study.event_records import state_of
from sweeps.study.events import TrialReported
from sweeps.study.journal import cut_torn_tail
from sweeps.study.journal_records import NOTHING, parse_line
from sweeps.study.objectives import Objectives

BODY = """
preprocessor: {grid: [StandardScaler, MinMaxScaler]}
scaling: {num_workers: {grid: [1, 2]}}
params: {eta: {loguniform: [1e-3, 1.0]}, depth: {randint: [1, 9]}, kind: {choice: [a, b]}}
"""


def reports(*values: float, start: int = 1) -> tuple[Report, ...]:
    return tuple(
        Report(start + i, {"loss": v, "other": 1.0}, time.time()) for i, v in enumerate(values)
    )


def ask(loop: SearchLoop) -> Trial:
    """Start a trial of a sweep that has trials to start."""
    trial = loop.ask()
    assert trial is not None
    return trial


def fill(loop: SearchLoop, n: int) -> None:
    for _ in range(n):
        trial = ask(loop)
        loop.store.append(
            TrialReported(1.0, trial.number, reports(0.5, 0.4, trial.params["eta"]), seconds=0.1)
        )
        loop.store.end(trial.number, State.COMPLETE if trial.number % 2 else State.PRUNED)


def test_the_end_of_a_trial_is_recorded_without_secrets(make_space: Any, tmp_path: Path) -> None:
    remember("my-own-secret")
    loop = SearchLoop.open(tmp_path, make_space(BODY))
    failed, ended = ask(loop), ask(loop)
    loop.store.end(failed.number, State.FAIL, "no my-own-secret", "my-own-secret")
    loop.store.append(TrialReported(1.0, ended.number, reports(0.5), seconds=0.1))
    result = loop.store.end(
        ended.number, State.COMPLETE, None, None, {"of my-own-secret": 1.0}
    ).result
    assert result.final == {"of ***": 1.0}
    assert "my-own-secret" not in (tmp_path / JOURNAL).read_text()


def test_the_id_of_a_trial_is_its_number_whatever_a_database_says(
    make_space: Any, tmp_path: Path
) -> None:
    fill(SearchLoop.open(tmp_path, make_space(BODY)), 1)
    study = record_reader.copy_study(tmp_path)
    objectives = Objectives.from_json(study.user_attrs["judged"])
    (trial,) = study.get_trials(deepcopy=False)
    trial.user_attrs["events.0"]["events"][0]["trial"]["id"] = "../<a href=//e>"
    state = state_of(trial, objectives)
    assert state is not None and state.id == "0000"


@pytest.mark.parametrize("state", [State.COMPLETE, State.PRUNED])
def test_metrics_of_the_finished_model_are_of_a_complete_trial(
    make_space: Any, tmp_path: Path, state: Any
) -> None:
    loop = SearchLoop.open(tmp_path, make_space(BODY))
    trial = ask(loop)
    loop.store.append(
        TrialReported(1.0, trial.number, (Report(1, {"loss": 0.5}, 1.0),), seconds=1.0)
    )
    final = {"valid-auc": 0.75, "train-auc": math.nan}
    result = loop.store.end(trial.number, state, final=final).result
    study = record_reader.read(tmp_path)
    assert study is not None
    kept = study.trials[0]
    expected = final if state is State.COMPLETE else {}
    assert list(result.final) == list(kept.result.final) == list(expected)
    assert kept.result.final.get("valid-auc") == expected.get("valid-auc")
    assert kept.to_json().get("final", {}) == (
        {"valid-auc": 0.75, "train-auc": None} if expected else {}
    )


def test_telling_twice_changes_nothing(make_space: Any, tmp_path: Path) -> None:
    loop = SearchLoop.open(tmp_path, make_space(BODY))
    trial = ask(loop)
    point = Checkpoint("/c", 2, 2)
    for _ in range(2):
        loop.store.append(
            TrialReported(1.0, trial.number, reports(0.9, 0.2, 0.4), point, point, 0.5)
        )
    assert loop.store.study.trials[0].intermediate_values == {1: 0.9, 3: 0.4}, (
        "the study has the rungs, nothing between them"
    )
    result = loop.store.end(trial.number, State.COMPLETE).result
    assert (result.value, result.best_step, result.steps, result.checkpoint) == (0.2, 2, 3, point)
    assert loop.store.results()[0] == result


def test_states_are_recorded_as_they_are(make_space: Any, tmp_path: Path) -> None:
    loop = SearchLoop.open(tmp_path, make_space(BODY))
    ends = [
        (State.COMPLETE, (0.3,)),
        (State.PRUNED, (0.1,)),
        (State.FAIL, (0.05,)),
        (State.COMPLETE, ()),
        (State.COMPLETE, (float("nan"),)),
    ]
    for state, values in ends:
        trial = ask(loop)
        loop.store.append(TrialReported(1.0, trial.number, reports(*values), seconds=0.1))
        loop.store.end(trial.number, state, "broken" if state is State.FAIL else None)
    assert [t.state.name for t in loop.store.study.trials] == [
        "COMPLETE",
        "PRUNED",
        "FAIL",
        "FAIL",
        "FAIL",
    ]
    results = loop.store.results()
    assert results[2].error == "broken"
    assert "without reporting" in str(results[3].error) and "NaN" in str(results[4].error)
    assert loop.store.winner() == 0


def test_an_interrupted_trial_stays_resumable(make_space: Any, tmp_path: Path) -> None:
    space = make_space(BODY)
    loop = SearchLoop.open(tmp_path, space)
    trial = ask(loop)
    loop.store.append(TrialReported(1.0, trial.number, reports(0.9, 0.8), seconds=0.1))
    loop.store.end(trial.number, State.RUNNING)
    result = SearchLoop.open(tmp_path, space).store.results()[0]
    assert (result.state, result.steps, result.value) == (State.RUNNING, 2, 0.8)


def test_a_journal_cut_at_any_byte_loads_and_is_written_to_and_loads_again(
    make_space: Any, tmp_path: Path
) -> None:
    space = make_space(BODY)
    (tmp_path / "whole").mkdir()
    fill(SearchLoop.open(tmp_path / "whole", space), 3)
    data = (tmp_path / "whole" / JOURNAL).read_bytes()
    cuts = sorted({len(data) - 1, len(data), 1, *random.Random(0).sample(range(len(data)), 60)})
    for i, cut in enumerate(cuts):
        folder = tmp_path / str(i)
        folder.mkdir()
        (folder / JOURNAL).write_bytes(data[:cut])
        loop = SearchLoop.open(folder, space)
        trial = ask(loop)
        assert trial.number == len(loop.store.study.trials) - 1
        assert SearchLoop.open(folder, space).store.trial(trial.number) == trial


def test_a_hole_of_zeros_at_the_end_is_cut_too(tmp_path: Path) -> None:
    journal = tmp_path / JOURNAL
    good = json.dumps({"op": 1}).encode() + b"\n"
    journal.write_bytes(good + b'{"op": \x00\x00\x00}\n')
    assert cut_torn_tail(journal) > 0
    assert journal.read_bytes() == good
    assert cut_torn_tail(journal) == 0


def test_one_driver_a_folder(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path)
    with pytest.raises(SweepLocked, match="is running this sweep"):
        FolderLock(tmp_path)
    lock.release()
    FolderLock(tmp_path).release()


def test_lines_share_their_keys_and_may_have_half_a_surrogate_pair() -> None:
    first, second = (parse_line(b'{"seconds": %d}' % n) for n in (1, 2))
    assert next(iter(first)) is next(iter(second))
    assert parse_line(rb'{"error": "\ud800"}') == {"error": "\ud800"}
    assert parse_line(b'{"value": NaN}')["value"] != 0 and parse_line(b"{") is NOTHING
