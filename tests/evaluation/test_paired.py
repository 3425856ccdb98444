"""The exported models of two sweeps are compared on the same rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sweeps.bundle.trial_facts import describe_recorded
from sweeps.bundle.trial_predictions import read_trial_predictions
from sweeps.core.text.new_rows_text import difference_text
from sweeps.core.trial import format_trial_id
from sweeps.evaluation.model_scores import Interval
from sweeps.evaluation.new_rows import describe_new_rows
from sweeps.evaluation.paired import ComparedModel, improvement, probability, read_model
from sweeps.exports import bundle_registration
from tests.bundle.ensemble_sweeps import RecordedSweep, recorded_sweep


def facts_of(sweep: RecordedSweep, rank: int = 0) -> dict[str, Any]:
    """Return the facts of a trial by its rank, as the result of its sweep has them."""
    store = sweep.store
    number = store.ranked()[rank]
    new_rows = describe_new_rows(store, read_trial_predictions(store), number)
    return describe_recorded(store, number) | {"new_rows": new_rows}


def model_of(sweep: RecordedSweep, rank: int = 0) -> ComparedModel:
    best = facts_of(sweep, rank)
    model = read_model(sweep.folder, best, best.get("data", {}), "logloss")
    assert model is not None
    return model


@pytest.fixture
def sweeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[RecordedSweep]:
    return [recorded_sweep(tmp_path / name, monkeypatch, seed=i) for i, name in enumerate("ab")]


def test_a_difference_has_an_interval_on_the_same_rows(sweeps: list[RecordedSweep]) -> None:
    best, worst = model_of(sweeps[0]), model_of(sweeps[0], 5)
    difference = improvement(worst, best, minimize=True)
    assert difference is not None
    assert difference.value == pytest.approx(worst.value - best.value)
    assert difference.low < difference.value < difference.high
    turned = improvement(best, worst, minimize=True)
    assert turned is not None and turned.value == -difference.value
    assert probability(turned) == pytest.approx(1 - probability(difference))
    same = improvement(best, best, minimize=True)
    assert same == Interval(0.0, 0.0, 0.0) and probability(same) == 0.0
    lucky = replace(best, value=best.value + 0.01)
    assert improvement(lucky, best, minimize=True) == same, "the same predictions"
    other = improvement(best, model_of(sweeps[1]), minimize=True)
    assert other is not None and other.high > other.low


def test_other_rows_or_classes_are_not_compared(sweeps: list[RecordedSweep]) -> None:
    model = model_of(sweeps[0])
    trials = model.trials
    valid = trials.valid
    for changed in (
        {"valid": replace(valid, labels=valid.labels[::-1])},
        {"valid": replace(valid, folds=valid.folds + 1)},
        {"info": replace(trials.info, classes=("b", "a"))},
    ):
        other = replace(model, trials=replace(trials, **changed))
        assert improvement(model, other, minimize=True) is None


def test_a_model_without_an_interval_or_predictions_is_not_compared(
    sweeps: list[RecordedSweep],
) -> None:
    folder, best = sweeps[0].folder, facts_of(sweeps[0])
    data = best["data"]
    assert read_model(folder, None, {}, "logloss") is None
    assert read_model(folder, best | {"new_rows": {"unknown": "why"}}, data, "logloss") is None
    assert read_model(folder, best, data, "their.module:metric") is None, "it would run code"
    assert read_model(folder, best | {"trial": "0099"}, data, "logloss") is None
    members = {best["trial"]: 2, format_trial_id(sweeps[0].store.ranked()[1]): 1}
    average = read_model(folder, best | {"ensemble": {"members": members}}, data, "logloss")
    single = read_model(folder, best, data, "valid-logloss")
    assert average is not None and single is not None
    assert not np.array_equal(average.predictions, single.predictions)


def test_an_alias_moves_with_a_probability(
    sweeps: list[RecordedSweep], monkeypatch: pytest.MonkeyPatch
) -> None:
    def manifest(rank: int) -> Any:
        training = facts_of(sweeps[0], rank) | {"goal": "minimize", "metric": "logloss"}
        return SimpleNamespace(training=training, members=())

    folder = sweeps[0].folder

    def decide(champion: int, challenger: int, at_least: float) -> tuple[bool, str]:
        reader = SimpleNamespace(read=lambda path: manifest(champion))
        monkeypatch.setattr(bundle_registration, "Manifest", reader)
        arguments = (folder, manifest(challenger), at_least, str(folder), str(folder))
        return bundle_registration._is_better(*arguments)

    moves, text = decide(5, 0, 0.9)
    assert moves and text.endswith("; the new version is better with a probability of 94%")
    assert not decide(5, 0, 0.95)[0]
    moves, text = decide(0, 5, 0.5)
    assert not moves and "the new version is better with a probability of" in text
    monkeypatch.setattr(bundle_registration, "read_model", lambda *args: None)
    assert decide(5, 0, 0.9) == (
        False,
        "the two versions cannot be compared on the same rows of valid, whose predictions their "
        "sweeps have kept",
    )


def test_a_difference_names_the_better_model() -> None:
    def text(value: float, low: float, high: float) -> str:
        return difference_text("A", "B", {"value": value, "low": low, "high": high})

    assert text(0.02, 0.01, 0.03) == "B is better than A on new rows by 0.020 (90%: 0.010 to 0.030)"
    assert text(-0.02, -0.03, -0.01).startswith("A is better than B on new rows by 0.020")
    assert text(0.0, 0.0, 0.0) == "A and B make the same predictions"
    unknown = "no difference between A and B can be shown on new rows"
    assert text(0.02, -0.01, 0.05) == f"{unknown}: B is better by 0.020 (90%: -0.010 to 0.050)"
    assert text(-0.02, -0.05, 0.01) == f"{unknown}: A is better by 0.020 (90%: -0.010 to 0.050)"
