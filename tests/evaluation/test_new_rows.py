"""Statements of a sweep about its winner on new rows."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sweeps.bundle import ensemble
from sweeps.bundle.trial_predictions import read_trial_predictions
from sweeps.core.files.sweep_folder import PREDICTIONS
from sweeps.core.result import SweepResult
from sweeps.core.text.new_rows_text import (
    interval_text,
    new_rows_lines,
    new_rows_sentences,
)
from sweeps.core.trial import Report, State, format_trial_id
from sweeps.evaluation import new_rows
from sweeps.evaluation.cheaper_trial import cheaper_trial
from sweeps.evaluation.new_rows import describe_new_rows
from sweeps.search.default_points import default_trials, is_default
from sweeps.search.search_loop import SearchLoop
from sweeps.study.events import TrialReported
from sweeps.terminal.result_text import format_result
from sweeps.tracking.mlflow import run_contents
from tests.bundle.ensemble_sweeps import recorded_sweep
from tests.search.next_trial import next_trial


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    return recorded_sweep(tmp_path, monkeypatch)


def described(sweep: Any, number: Any, choice: Any = None) -> Any:
    return describe_new_rows(sweep.store, read_trial_predictions(sweep.store), number, choice)


def test_a_slow_metric_is_not_computed_on_many_draws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = recorded_sweep(tmp_path, monkeypatch, metric="sklearn.metrics:brier_score_loss")
    monkeypatch.setattr(new_rows, "LEAST_SECONDS", 1e-9)
    facts = described(slow, slow.store.winner())
    text = "`sklearn.metrics:brier_score_loss` takes too long to compute on many draws"
    assert facts == {"unknown": text}


def test_the_best_trial_has_an_interval_on_new_rows(sweep: Any) -> None:
    number = sweep.store.winner()
    facts = described(sweep, number)
    value = sweep.store.results()[number].value
    assert facts["low"] < facts["value"] < facts["high"] and facts["value"] >= value
    assert facts["rows"] == len(sweep.labels) and facts["compared"] == 5
    assert not any("default" in trial for trial in facts["trials"]) and 0 <= facts["similar"] <= 5
    assert described(sweep, number) == facts


def test_repeats_of_the_winner_are_no_other_trials(sweep: Any) -> None:
    trials = read_trial_predictions(sweep.store)
    assert trials is not None
    best, other, *_ = trials.models
    states = sweep.store.states
    states[other] = replace(states[other], trial=replace(states[other].trial, repeat_of=best))
    facts = describe_new_rows(sweep.store, trials, best)
    assert facts["compared"] == 4
    names = {trial["trial"] for trial in facts["trials"]}
    assert not names & {format_trial_id(best), format_trial_id(other)}


def test_an_average_has_an_interval_of_its_own(sweep: Any) -> None:
    choice = ensemble.choose(sweep.store, read_trial_predictions(sweep.store), 6)
    assert len(choice.weights) > 1 and choice.gain is not None
    facts = described(sweep, sweep.store.winner(), choice)
    assert facts["value"] == pytest.approx(choice.value + choice.gain.optimism)
    assert facts["compared"] == 6


def test_without_predictions_of_the_best_trial_the_interval_is_unknown(sweep: Any) -> None:
    number = sweep.store.winner()
    (sweep.folder / "trials" / f"{number:04d}" / PREDICTIONS).unlink()
    facts = described(sweep, number)
    text = f"trial {number:04d} has kept no predictions for valid, and `data.valid` has fewer than "
    assert facts == {"unknown": f"{text}5 folds"}


def test_predictions_with_another_score_than_the_value_are_not_used(sweep: Any) -> None:
    number = sweep.store.winner()
    file = sweep.folder / "trials" / f"{number:04d}" / PREDICTIONS
    with np.load(file) as kept:
        arrays = dict(kept)
    arrays["fold_0"] = np.full_like(arrays["fold_0"], 0.5)
    with open(file, "wb") as opened:
        np.savez(opened, **arrays)
    facts = described(sweep, number)
    assert facts["unknown"].startswith("its predictions have the score 0.693147, but its value is")


@pytest.mark.parametrize(
    ("name", "limit", "text"),
    [
        ("LEAST_ROWS", 1000, "valid has 171 rows, and it needs 1000"),
        ("LEAST_UNITS", 1000, "valid has 171 rows, and it needs 1000"),
        ("LEAST_OF_CLASS", 100, "the class 0 has 64 rows in valid, and it needs 100"),
    ],
)
def test_too_few_rows_have_no_interval(
    name: str, limit: int, text: str, sweep: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(new_rows, name, limit)
    assert described(sweep, sweep.store.winner()) == {"unknown": text}


FACTS: dict[str, Any] = {
    "value": 0.1311,
    "low": 0.1092,
    "high": 0.1583,
    "rows": 500,
    "trials": [
        {"trial": "0000", "default": "", "value": 0.021, "low": 0.004, "high": 0.038},
        {"trial": "0001", "default": "trees", "value": -0.021, "low": -0.04, "high": -0.003},
        {"trial": "0002", "default": "linear", "value": 0.001, "low": -0.04, "high": 0.05},
        {"trial": "0003", "default": "best"},
    ],
    "similar": 6,
    "compared": 19,
}


def test_the_result_is_shown_in_the_terminal_and_in_mlflow(tmp_path: Path) -> None:
    best = {
        "trial": "0004",
        "value": 0.117,
        "test": None,
        "params": {},
        "preprocessor": "none",
        "scaling": {"num_workers": 1, "resources_per_worker": {"CPU": 1.0}},
        "new_rows": FACTS,
    }
    result = SweepResult("shown-1", tmp_path, {"completed": 1}, best, None, None, {}, 0, 1.0)
    lines = format_result(result).splitlines()
    start = lines.index("best trial 0004: 0.117")
    assert lines[start + 1 : start + 7] == [f"  {line}" for line in new_rows_lines(FACTS)]
    shown = run_contents.sweep_metrics(result)
    assert {key: shown[f"best.new_rows.{key}"] for key in ("value", "low", "high")} == {
        key: FACTS[key] for key in ("value", "low", "high")
    }
    assert run_contents.sweep_tags(result)["sweeps.new_rows"] == new_rows_sentences(FACTS)


def test_default_configurations_are_recognized_by_their_keys() -> None:
    points: list[dict[str, Any]] = [{"trainer": "a", "a.eta": 0.3}, {"trainer": "b"}]
    trials: list[tuple[int, dict[str, Any]]] = [
        (0, {"trainer": "a", "a.eta": 0.1}),
        (1, {"trainer": "a", "a.eta": 0.3, "a.depth": 4}),
        (2, {"trainer": "b", "b.eta": 0.3}),
        (3, {"trainer": "b", "b.eta": 0.1}),
    ]
    assert default_trials(points, trials) == [1, 2]
    assert [n for n, keys in trials if is_default(points, keys)] == [1, 2, 3]


def test_the_texts_say_what_is_known() -> None:
    assert new_rows_lines(FACTS) == [
        "on new rows about 0.131 (90%: 0.109 to 0.158)",
        "better than the default by 0.021 (90%: 0.004 to 0.038)",
        "tuning did not beat the default of trees: worse by 0.021 (90%: 0.003 to 0.040)",
        "cannot be told from the default of linear: better by 0.001 (90%: -0.040 to 0.050)",
        "tuning did not beat the default of best, which is the best trial",
        "6 of 19 other trials cannot be told from it",
    ]
    assert new_rows_sentences({"unknown": "valid has 9 rows"}) == (
        "No interval for new rows: valid has 9 rows."
    )


@pytest.mark.parametrize(
    ("value", "half", "text"),
    [
        (135720.2, 11500.0, "135720 (90%: 124220 to 147220)"),
        (2.101, 0.24, "2.10 (90%: 1.86 to 2.34)"),
        (1e-7, 2e-8, "0.000000100 (90%: 0.000000080 to 0.000000120)"),
        (0.5, 0.0, "0.500000 (90%: 0.500000 to 0.500000)"),
    ],
)
def test_intervals_have_two_digits_that_count(value: float, half: float, text: str) -> None:
    interval = {"value": value, "low": value - half, "high": value + half}
    assert interval_text(interval) == text


def test_a_smaller_model_that_is_as_good_is_named(sweep: Any) -> None:
    trials = read_trial_predictions(sweep.store)
    assert trials is not None
    numbers = list(trials.models)
    best, others = numbers[0], numbers[1:]
    folders = {
        n: sweep.folder / "trials" / format_trial_id(n) / "checkpoint_000001" for n in numbers
    }
    assert cheaper_trial(sweep.store, trials, others, [best]) is None, "equally large"
    for number, size in ((best, 90_000), (others[0], 80_000), (others[1], 30_000)):
        (folders[number] / "more").write_bytes(b"0" * size)
    for number in others[2:]:
        shutil.rmtree(folders[number])
    trials.models[others[1]] = replace(trials.models[others[1]], seconds=0.5)
    facts = cheaper_trial(sweep.store, trials, others, [best])
    assert facts is not None and facts["trial"] == format_trial_id(others[1])
    assert facts["rows_per_second"] == len(sweep.labels) / 0.5
    assert 30_000 < facts["bytes"] < facts["winner_bytes"] / 2
    assert facts["command"].endswith(f"--trial {facts['trial']}")
    line = new_rows_lines(FACTS | {"cheaper": facts})[-1]
    assert "is one of them, with a smaller model (3" in line and "prepared rows a second" in line
    assert line.endswith(f"{facts['command']}`")
    unknown = new_rows_lines(FACTS | {"cheaper": facts | {"rows_per_second": None}})[-1]
    assert "prepared rows" not in unknown
    assert cheaper_trial(sweep.store, trials, [others[0]], [best]) is None, "hardly smaller"
    average = cheaper_trial(sweep.store, trials, [others[0]], [best, others[1]])
    assert average is not None and average["trial"] == format_trial_id(others[0])


def test_folds_give_an_interval_without_predictions(make_space: Any, tmp_path: Path) -> None:
    body = "params: {x: {uniform: [0.0, 1.0]}}"
    space = make_space(body, scheduler="{name: none}", max_trials=9)
    valid = replace(space.data.valid, kind="folds", folds=5)
    folds = replace(space, data=replace(space.data, valid=valid))
    loop = SearchLoop.open(tmp_path, folds)
    rng = np.random.default_rng(0)
    for _ in range(6):
        trial = next_trial(loop)
        means = np.cumsum(rng.normal(size=5) + 3) / np.arange(1, 6)
        reports = tuple(Report(i, {"loss": float(m)}, 1.0) for i, m in enumerate(means, 1))
        loop.store.append(TrialReported(1.0, trial.number, reports, seconds=0.0))
        loop.store.end(trial.number, State.COMPLETE)
    number = loop.store.winner()
    assert number is not None
    facts = describe_new_rows(loop.store, None, number)
    assert facts["folds"] == 5 and facts["low"] < facts["value"] < facts["high"]
    assert facts["compared"] == 5 and "rows" not in facts
    fewer = replace(space, data=replace(space.data, valid=replace(valid, folds=4)))
    loop.store.space = fewer
    assert "fewer than 5 folds" in describe_new_rows(loop.store, None, number)["unknown"]
    loop.store.space = replace(space, data=replace(space.data, valid=None))
    text = f"trial {format_trial_id(number)} has kept no predictions for valid"
    assert describe_new_rows(loop.store, None, number) == {"unknown": text}
