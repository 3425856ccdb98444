"""The ledger keeps what happened, whatever is cut off it."""

from __future__ import annotations

import json
import math
import random
import time

import pytest

from sweeps.core.errors import SweepLocked
from sweeps.core.folder_lock import FolderLock
from sweeps.core.secrets import remember
from sweeps.core.sweep_folder import JOURNAL
from sweeps.core.trial import Checkpoint, Report, State
from sweeps.search.search_loop import SearchLoop
from sweeps.study import record
from sweeps.study.journal import cut_torn_tail
from sweeps.study.journal_records import NOTHING, parse_line
from sweeps.study.live_trial import ProgressUpdate

BODY = """
preprocessor: {grid: [StandardScaler, MinMaxScaler]}
scaling: {num_workers: {grid: [1, 2]}}
params: {eta: {loguniform: [1e-3, 1.0]}, depth: {randint: [1, 9]}, kind: {choice: [a, b]}}
"""


def reports(*values: float, start: int = 1) -> tuple[Report, ...]:
    return tuple(
        Report(start + i, {"loss": v, "other": 1.0}, time.time()) for i, v in enumerate(values)
    )


def fill(loop: SearchLoop, n: int) -> None:
    for _ in range(n):
        trial = loop.ask()
        assert trial is not None
        loop.report(
            trial.number, ProgressUpdate(reports(0.5, 0.4, trial.params["eta"]), None, None, 1, 0.1)
        )
        loop.tell(trial.number, State.COMPLETE if trial.number % 2 else State.PRUNED)


def test_the_end_of_a_trial_is_recorded_without_secrets(make_space, tmp_path):
    remember("my-own-secret")
    loop = SearchLoop.open(tmp_path, make_space(BODY))
    failed, ended = loop.ask(), loop.ask()
    loop.tell(failed.number, State.FAIL, "no my-own-secret", "my-own-secret")
    loop.report(ended.number, ProgressUpdate(reports(0.5), None, None, 1, 0.1))
    result = loop.tell(ended.number, State.COMPLETE, None, None, {"of my-own-secret": 1.0})
    assert result.final == {"of ***": 1.0}
    assert "my-own-secret" not in (tmp_path / JOURNAL).read_text()


def test_a_trial_has_its_cell_its_shape_and_values_within_bounds(make_space, tmp_path):
    loop = SearchLoop.open(tmp_path, make_space(BODY))
    cells = []
    for _ in range(16):
        trial = loop.ask()
        cells.append((trial.chain, trial.shape.workers))
        assert (
            1e-3 <= trial.params["eta"] <= 1.0
            and trial.params["depth"] in range(1, 9)
            and trial.params["kind"] in ("a", "b")
        )
        assert trial.labels["params.eta"] == trial.params["eta"]
        loop.tell(trial.number, State.FAIL, "x")
    assert {c: cells.count(c) for c in cells} == {
        (p, w): 4 for p in ("StandardScaler", "MinMaxScaler") for w in (1, 2)
    }


def test_the_id_of_a_trial_is_its_number_whatever_a_database_says(make_space, tmp_path):
    fill(SearchLoop.open(tmp_path, make_space(BODY)), 1)
    objectives = record.read(tmp_path).objectives
    (trial,) = record.trials_of(tmp_path)
    trial.user_attrs["begun"]["id"] = "../<a href=//e>"
    assert record._recorded(trial, objectives, tmp_path).id == "0000"


def test_max_trials_are_begun_and_no_more(make_space, tmp_path):
    loop = SearchLoop.open(tmp_path, make_space(BODY, max_trials=5))
    assert [t is None for t in (loop.ask() for _ in range(6))] == [False] * 5 + [True]


def test_suggestions_are_a_function_of_the_study_and_the_seed(make_space, tmp_path):
    asked = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        loop = SearchLoop.open(tmp_path / name, make_space(BODY))
        fill(loop, 10)
        if (
            name == "b"
        ):  # a driver that starts anew from the journal goes on as if nothing had happened
            loop = SearchLoop.open(tmp_path / name, make_space(BODY))
        fill(loop, 10)
        asked.append([(t.params, t.user_attrs["begun"]) for t in loop.store.study.trials])
    assert asked[0] == asked[1]
    (tmp_path / "c").mkdir()
    other = SearchLoop.open(tmp_path / "c", make_space(BODY, seed=4))
    fill(other, 3)
    assert [t.params for t in other.store.study.trials] != [p for p, _ in asked[0][:3]]


@pytest.mark.parametrize("state", [State.COMPLETE, State.PRUNED])
def test_metrics_of_the_finished_model_are_of_a_complete_trial(make_space, tmp_path, state):
    loop = SearchLoop.open(tmp_path, make_space(BODY))
    trial = loop.ask()
    loop.report(trial.number, ProgressUpdate((Report(1, {"loss": 0.5}, 1.0),), None, None, 1, 1.0))
    final = {"valid-auc": 0.75, "train-auc": math.nan}
    result = loop.tell(trial.number, state, final=final)
    kept = record.read(tmp_path).trials[0]
    expected = final if state is State.COMPLETE else {}
    assert list(result.final) == list(kept.result.final) == list(expected)
    assert kept.result.final.get("valid-auc") == expected.get("valid-auc")
    assert kept.to_json().get("final", {}) == (
        {"valid-auc": 0.75, "train-auc": None} if expected else {}
    )


def test_a_trial_is_rebuilt_from_the_journal(make_space, tmp_path):
    space = make_space(BODY)
    loop = SearchLoop.open(tmp_path, space)
    trials = [loop.ask() for _ in range(4)]
    again = SearchLoop.open(tmp_path, space)
    assert [again.store.trial(t.number) for t in trials] == trials


CONDITIONAL = """
preprocessor:
  - {grid: [StandardScaler, none]}
  - {choice: [MaxAbsScaler], when: {preprocessor.0: none}}
params:
  booster: {choice: [gbtree, dart]}
  drop: {uniform: [0, 1], when: {params.booster: dart}}
  skip: {uniform: [0, 1], when: {params.drop: "> 0.5"}}
"""


@pytest.mark.parametrize("algorithm", ["tpe", "random"])
def test_what_is_not_active_is_in_no_trial(make_space, tmp_path, algorithm):
    space = make_space(CONDITIONAL, algorithm=algorithm)
    loop, trials = SearchLoop.open(tmp_path, space), []
    for _ in range(30):
        trial = loop.ask()
        trials.append(trial)
        loop.report(
            trial.number,
            ProgressUpdate(reports(0.5, 0.4, trial.params.get("drop", 0.2)), None, None, 1, 0.1),
        )
        loop.tell(trial.number, State.COMPLETE)
        assert ("drop" in trial.params) == (trial.params["booster"] == "dart")
        assert ("skip" in trial.params) == (trial.params.get("drop", 0) > 0.5)
        scaled = trial.labels["preprocessor.0"] == "StandardScaler"
        assert [step.name for step in trial.preprocessor] == (
            ["StandardScaler"] if scaled else ["MaxAbsScaler"]
        )
        assert set(trial.labels) == set(loop.store.study.trials[-1].params), (
            "what is not asked for is not on record"
        )
    assert {"skip" in t.params for t in trials} == {True, False}
    assert sum("preprocessor.1" in t.labels for t in trials) == 15
    again = SearchLoop.open(tmp_path, space)
    assert [again.store.trial(t.number) for t in trials] == trials


def test_telling_twice_changes_nothing(make_space, tmp_path):
    loop = SearchLoop.open(tmp_path, make_space(BODY))
    trial = loop.ask()
    point = Checkpoint("/c", 2, 2)
    for _ in range(2):
        loop.report(trial.number, ProgressUpdate(reports(0.9, 0.2, 0.4), point, point, 1, 0.5))
    assert loop.store.study.trials[0].intermediate_values == {1: 0.9, 3: 0.4}, (
        "the study has the rungs, nothing between them"
    )
    result = loop.tell(trial.number, State.COMPLETE)
    assert (result.value, result.best_step, result.steps, result.checkpoint) == (0.2, 2, 3, point)
    assert loop.store.results()[0] == result


def test_states_are_told_as_they_are(make_space, tmp_path):
    loop = SearchLoop.open(tmp_path, make_space(BODY))
    ends = [
        (State.COMPLETE, (0.3,)),
        (State.PRUNED, (0.1,)),
        (State.FAIL, (0.05,)),
        (State.COMPLETE, ()),
        (State.COMPLETE, (float("nan"),)),
    ]
    for state, values in ends:
        trial = loop.ask()
        loop.report(trial.number, ProgressUpdate(reports(*values), None, None, 1, 0.1))
        loop.tell(trial.number, state, "broken" if state is State.FAIL else None)
    assert [t.state.name for t in loop.store.study.trials] == [
        "COMPLETE",
        "PRUNED",
        "FAIL",
        "FAIL",
        "FAIL",
    ]
    results = loop.store.results()
    assert results[2].error == "broken"
    assert "without reporting" in results[3].error and "NaN" in results[4].error
    assert loop.store.winner() == 0


def test_an_interrupted_trial_stays_resumable(make_space, tmp_path):
    space = make_space(BODY)
    loop = SearchLoop.open(tmp_path, space)
    trial = loop.ask()
    loop.report(trial.number, ProgressUpdate(reports(0.9, 0.8), None, None, 1, 0.1))
    loop.tell(trial.number, State.RUNNING)
    result = SearchLoop.open(tmp_path, space).store.results()[0]
    assert (result.state, result.steps, result.value) == (State.RUNNING, 2, 0.8)


def test_a_journal_cut_at_any_byte_loads_and_is_written_to_and_loads_again(make_space, tmp_path):
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
        trial = loop.ask()
        assert trial.number == len(loop.store.study.trials) - 1
        assert SearchLoop.open(folder, space).store.trial(trial.number) == trial


def test_a_hole_of_zeros_at_the_end_is_cut_too(tmp_path):
    journal = tmp_path / JOURNAL
    good = json.dumps({"op": 1}).encode() + b"\n"
    journal.write_bytes(good + b'{"op": \x00\x00\x00}\n')
    assert cut_torn_tail(journal) > 0
    assert journal.read_bytes() == good
    assert cut_torn_tail(journal) == 0


def test_one_driver_a_folder(tmp_path):
    lock = FolderLock(tmp_path)
    with pytest.raises(SweepLocked, match="is running this sweep"):
        FolderLock(tmp_path)
    lock.release()
    FolderLock(tmp_path).release()


def test_a_driver_keeps_one_copy_of_each_progress_record(make_space, tmp_path):
    loop = SearchLoop.open(tmp_path, make_space(BODY))
    trial = loop.ask()
    for step in (1, 2, 3):
        update = ProgressUpdate((Report(step, {"loss": 0.5}, 1.0),), None, None, 1, 1.0)
        loop.report(trial.number, update)
    (running,) = loop.store._open.values()
    assert not [name for name in running.user_attrs if name.startswith(record.PROGRESS_PREFIX)]
    assert len(record.progress_records(loop.store.frozen(0))) == 3
    loop.tell(trial.number, State.COMPLETE)
    assert not loop.store._open and loop.store.frozen(0).state.is_finished()


def test_lines_share_their_keys_and_may_have_half_a_surrogate_pair():
    first, second = (parse_line(b'{"seconds": %d}' % n) for n in (1, 2))
    assert next(iter(first)) is next(iter(second))
    assert parse_line(rb'{"error": "\ud800"}') == {"error": "\ud800"}
    assert parse_line(b'{"value": NaN}')["value"] != 0 and parse_line(b"{") is NOTHING
