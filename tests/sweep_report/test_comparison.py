from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sweeps.bundle.trial_predictions import TrialPredictions
from sweeps.bundle.valid_scores import ValidScores
from sweeps.core.trial import State
from sweeps.data.prepared_store import DatasetInfo
from sweeps.data.splits.valid_rows import ValidRows
from sweeps.evaluation.paired import ComparedModel
from sweeps.space import Space, load
from sweeps.space.sections.search_models import Objective, Repeats
from sweeps.study.objectives import Objectives
from sweeps.study.record_reader import Record
from sweeps.sweep_report.compared_sweep import ComparedSweep
from sweeps.sweep_report.comparison import Comparison, compare
from sweeps.sweep_report.importance import Importance
from sweeps.terminal.comparison_text import best_sweeps, format_comparison
from tests.sweep_report.test_regret import MINIMIZE, trial

SPACE = """\
name: made
trainer: xgboost
data: {train: "sklearn:wine", label: target, valid: 0.25}
objective: {metric: loss, goal: minimize}
limits: {max_trials: 4}
space:
  params: {eta: {loguniform: [1e-3, 0.5]}, depth: 3}
"""


def space(folder: Path, *changes: tuple[str, str]) -> Space:
    text = SPACE
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / "made.yaml").write_text(text)
    return load(folder / "made.yaml")


def sweep(
    name: str,
    space: Space | None,
    *values: float | None,
    data: str = "d",
    objectives: Objectives = MINIMIZE,
    **changes: Any,
) -> ComparedSweep:
    """Return a sweep whose trials are complete and have these values."""
    trials = [
        trial(
            n,
            State.COMPLETE if value is not None else State.FAIL,
            value,
            objectives=objectives,
            params={"eta": 0.1 + n, "depth": 3},
        )
        for n, value in enumerate(values)
    ]
    known = Importance((("params.eta", 1.0),), "the values of 12 trials")
    compared = ComparedSweep(
        name, f"/runs/{name}", "finished", Record(objectives, tuple(trials), data), space, known
    )
    return replace(compared, **changes)


def rows(compared: Comparison) -> dict[str, tuple[object, ...]]:
    return dict(compared.results)


def test_comparable_sweeps_share_the_best_value(tmp_path: Path) -> None:
    the_space = space(tmp_path)
    comparison = compare([sweep("a", the_space, 0.5, 0.4), sweep("b", the_space, 0.7, 0.3, 0.6)])
    assert (
        comparison.groups == ((0, 1),)
        and comparison.winners == {(0, 1): (1,)}
        and comparison.notes
        == (
            "the models of A and B are not compared on new rows, because A and B have no exported "
            "model with an interval",
        )
    )
    assert rows(comparison)["best"] == (0.4, 0.3) and rows(comparison)["regret"] == (
        pytest.approx(0.1),
        0.0,
    )
    assert rows(comparison)["best trial"] == ("0001", "0001") and rows(comparison)["trials"] == (
        2,
        3,
    )
    assert [
        (n, [None if v is None else round(v, 6) for v in values])
        for n, values in comparison.regret["trials"]
    ] == [
        (1, [0.2, 0.4]),
        (2, [0.1, 0.0]),
        (3, [None, 0.0]),
    ]
    assert set(comparison.regret) == {"trials", "seconds", "cpu_seconds"}
    assert (
        comparison.settings == ()
        and comparison.configurations == ()
        and comparison.equal_values["params.depth"] == 3
    )


def test_differences_of_spaces_and_of_the_best_configurations_are_listed(tmp_path: Path) -> None:
    a = sweep("a", space(tmp_path), 0.5, 0.4)
    b = sweep(
        "b",
        space(
            tmp_path,
            ("0.5]", "0.6]"),
            ("max_trials: 4", "max_trials: 9"),
            ("depth: 3", "depth: {randint: [1, 9]}"),
        ),
        0.3,
    )
    comparison = compare([a, b])
    assert dict(comparison.settings) == {
        "limits.max_trials": ("4", "9"),
        "params.eta": ("{loguniform: [1e-3, 0.5]}", "{loguniform: [1e-3, 0.6]}"),
        "params.depth": ("3", "{randint: [1, 9]}"),
    }
    assert dict(comparison.configurations) == {"params.eta": (1.1, 0.1)}


@pytest.mark.parametrize(
    ("changes", "data", "why"),
    [
        ((("valid: 0.25", "valid: 0.2"),), "other", "different rows: data.valid"),
        ((("limits:", "search: {seed: 1}\nlimits:"),), "other", "different rows: search.seed"),
        ((), "other", "different rows: the data differ"),
        ((("valid: 0.25", "valid: {folds: 3}"),), "d", "different rows: data.valid"),
    ],
)
def test_values_on_different_rows_are_not_compared(
    tmp_path: Path, changes: Any, data: str, why: str
) -> None:
    comparison = compare(
        [
            sweep("a", space(tmp_path), 0.5, 0.4),
            sweep("b", space(tmp_path, *changes), 0.3, data=data),
        ]
    )
    assert comparison.groups == ((0,), (1,)) and not comparison.winners
    assert any(why in note for note in comparison.notes), comparison.notes
    assert "regret" not in rows(comparison)  # each sweep is beside its own best value
    assert [n for n, _ in comparison.regret["trials"]] == [1, 2]


def test_other_features_and_fewer_train_rows_leave_the_values_comparable(tmp_path: Path) -> None:
    fewer = space(tmp_path, ("valid: 0.25", "valid: 0.25, drop: [ash], rows: 0.5"))
    assert compare(
        [sweep("a", space(tmp_path), 0.5), sweep("b", fewer, 0.3, data="other")]
    ).groups == ((0, 1),)


def test_sweeps_with_other_objectives_are_not_compared(tmp_path: Path) -> None:
    a = sweep("a", space(tmp_path), 0.5)
    b = sweep(
        "b",
        space(tmp_path, ("metric: loss, goal: minimize", "metric: accuracy, goal: maximize")),
        0.9,
        0.8,
        objectives=Objectives((Objective("accuracy", "maximize"),)),
    )
    comparison = compare([a, b, sweep("c", space(tmp_path), 0.4)])
    assert comparison.groups == ((0, 2), (1,)) and comparison.winners == {(0, 2): (2,)}
    assert rows(comparison)["regret"] == (pytest.approx(0.1), 0.0, 0.0)
    assert "the objectives differ: minimize loss; maximize accuracy" in comparison.notes[0]
    assert best_sweeps(comparison) == "C has the best value of A, C"


def test_a_sweep_whose_best_trial_was_pruned_has_no_regret(tmp_path: Path) -> None:
    the_space = space(tmp_path)
    pruned = Record(MINIMIZE, (trial(0, State.PRUNED, 0.1),), "d")
    comparison = compare([sweep("a", the_space, 0.5), sweep("b", the_space, record=pruned)])
    assert (
        rows(comparison)["regret"] == (0.0, None)
        and "B has no regret, because its best trial was stopped early" in comparison.notes
    )


def test_several_objectives_and_repeats_and_missing_parts_are_notes(tmp_path: Path) -> None:
    the_space = space(tmp_path)
    two = Record(Objectives((Objective("loss", "minimize"), Objective("auc", "maximize"))), (), "d")
    record = sweep("b", the_space, 0.5).record
    assert record is not None
    repeated = replace(record, repeats=Repeats(3))
    empty = sweep(
        "d", None, record=None, problems=("the space file cannot be read: why",), state="running"
    )
    comparison = compare(
        [
            sweep("a", the_space, record=two),
            sweep("b", the_space, record=repeated),
            sweep("c", the_space, 0.4),
            empty,
        ]
    )
    text = "\n".join(comparison.notes)
    assert "Pareto front" in text and "number of repeats" in text
    assert (
        "D: the space file cannot be read: why" in text
        and "D is still running" in text
        and "A and D are not comparable, because one of them has no trial yet" in text
    )
    assert rows(comparison)["state"] == ("finished", "finished", "finished", "running")
    json.dumps(comparison.to_json(), allow_nan=False)


def test_the_page_and_the_json_have_every_sweep(tmp_path: Path) -> None:
    the_space = space(tmp_path)
    comparison = compare([sweep("a<b", the_space, 0.5, float("inf")), sweep("c|d", the_space, 0.7)])
    page, shown = (
        comparison._repr_html_(),
        json.loads(json.dumps(comparison.to_json(), allow_nan=False)),
    )
    assert "a&lt;b" in page and "c|d" in page
    assert shown["comparable"] == [["A", "B"]] and [s["sweep"] for s in shown["sweeps"]] == [
        "a<b",
        "c|d",
    ]
    assert shown["regret"]["trials"][0]["trials"] == 1


def compared_model(value: float, error: float) -> ComparedModel:
    """Return a regression's model, whose predictions are off by about `error`."""
    rng = np.random.default_rng(int(100 * error))
    labels = np.linspace(0, 1, 200)
    valid = ValidRows(np.zeros(200, np.uint64), labels, np.zeros(200, int))
    predictions = labels + error * rng.normal(size=200)
    info = DatasetInfo("y", "regression", None, ("x",), "", {"train": 700}, pd.DataFrame())
    trials = TrialPredictions(info, valid, ValidScores("rmse", "regression", valid), {})
    return ComparedModel(trials, predictions, value)


def test_exported_models_of_comparable_sweeps_are_compared(tmp_path: Path) -> None:
    the_space = space(tmp_path)
    a = sweep("a", the_space, 0.5, model=compared_model(0.51, 0.5))
    b = sweep("b", the_space, 0.1, model=compared_model(0.11, 0.1))
    c = sweep("c", the_space, 0.2)
    other = sweep("d", the_space, 0.2, data="other", model=compared_model(0.2, 0.2))
    comparison = compare([a, b, c, other])
    assert list(comparison.differences) == [(0, 1)]
    difference = comparison.differences[0, 1]
    assert difference.value == pytest.approx(0.4) and difference.low > 0.3
    (row,) = json.loads(json.dumps(comparison.to_json()))["differences"]
    assert (row["from"], row["to"]) == ("A", "B") and row["value"] == pytest.approx(0.4)
    assert "B is better than A on new rows by 0.4" in format_comparison(comparison, 120)
    unknown = "A and C are not compared on new rows, because C has no exported model"
    assert any(unknown in note for note in comparison.notes)
