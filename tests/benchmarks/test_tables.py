"""The benchmark of tables: rows and tables that are held back, scores, ranks, the bootstrap, and
the report.
"""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from benchmarks.tables import generated, report, scores
from benchmarks.tables.catalog import Table, tables
from benchmarks.tables.cells import Cell
from benchmarks.tables.peers import DEFAULT
from benchmarks.tables.run_cell import Options, run_cell, write_split
from benchmarks.tables.split import DEVELOPMENT, is_held

# Tables on which sweeps is judged elsewhere.
NEVER = {"adult", "credit_default", "phoneme", "mammography", "wine", "oil_spill", "sonar"}
NEVER |= {"airlines", "green_taxi"}


# ---- what is held back


def test_third_of_tables_is_held_back_for_judging() -> None:
    names = list(tables())
    assert 0.25 < np.mean([is_held(name) for name in names]) < 0.42
    assert len(DEVELOPMENT) == 6 and set(DEVELOPMENT) <= set(names)
    assert not any(is_held(name) for name in DEVELOPMENT)
    assert not set(names) & NEVER
    # A name never changes its side.
    assert is_held("telco_churn") and not is_held("german_credit")


def test_a_table_with_a_time_is_split_by_time(tmp_path: Path) -> None:
    frame = pd.DataFrame({"day": [3, 1, 2, 4] * 5, "label": ["x", "y"] * 10})
    table = Table("t", "label", "binary", lambda folder: frame, time="day")
    train, test = table.split(tmp_path, 0)
    assert set(test["day"]) == {4} and len(train) == 15
    rows, columns = write_split(table, tmp_path, 0, tmp_path)
    assert (rows, columns) == (20, 1)
    assert list(pd.read_csv(tmp_path / "test.csv")) == ["day"]
    assert pd.read_csv(tmp_path / "labels.csv")["label"].tolist() == test["label"].tolist()


# ---- generated tables


@pytest.mark.parametrize("name", generated.RECIPES)
def test_a_generated_table_follows_its_recipe(name: Any) -> None:
    recipe = dataclasses.replace(generated.RECIPES[name], rows=2000)
    table = generated.table_of(recipe, 0)
    columns = recipe.numbers + len(recipe.levels) + recipe.drift
    assert table.shape == (2000, columns + 1) and list(table)[-1] == "label"
    label = table["label"]
    if recipe.task == "regression":
        assert label.dtype == float and label.notna().all()
    else:
        largest = max(recipe.shares) / sum(recipe.shares)
        assert label.nunique() > 0.6 * len(recipe.shares)
        assert largest / 2 < label.value_counts(normalize=True).max() < largest + 0.2
    missing = table.drop(columns="label").isna().to_numpy().mean()
    assert missing == pytest.approx(recipe.missing, abs=0.02)
    pd.testing.assert_frame_equal(table, generated.table_of(recipe, 0))


def test_a_generated_label_can_be_predicted_but_not_without_error() -> None:
    recipe = generated.Recipe(3000, 6, (4,), linear=True)
    table = generated.table_of(recipe, 1)
    x = pd.get_dummies(table.drop(columns="label")).rank().to_numpy(dtype=float)
    x = np.column_stack([(x - x.mean(axis=0)) / (x.std(axis=0) + 1e-9), np.ones(len(x))])
    y = np.where(table["label"] == "yes", 1.0, -1.0)
    weights = np.linalg.lstsq(x[:2000], y[:2000], rcond=None)[0]
    accuracy = np.mean(np.sign(x[2000:] @ weights) == y[2000:])
    assert 0.7 < accuracy < 0.95


# ---- scores


def test_log_loss_and_auc_of_two_classes() -> None:
    truth = pd.Series(["1", "0", "1", "0"])
    predicted = pd.DataFrame({"0.0": [0.2, 0.9, 0.6, 0.3], "1.0": [0.8, 0.1, 0.4, 0.7]})
    score, auc = scores.evaluate(truth, predicted, "binary")
    assert score == pytest.approx(-np.mean(np.log([0.8, 0.9, 0.4, 0.3])))
    assert auc == 0.75


def test_rmse_of_a_regression() -> None:
    predicted = pd.DataFrame({"prediction": [1.0, 2.0, 5.0]})
    rmse, auc = scores.evaluate(pd.Series(["1", "2.0", "2"]), predicted, "regression")
    assert rmse == pytest.approx(3**0.5) and auc is None


@pytest.mark.parametrize("values", [[1.0, 2.0], [1.0, math.nan, 2.0]])
def test_predictions_with_gaps_are_refused(values: Any) -> None:
    with pytest.raises(ValueError, match="predictions"):
        scores.evaluate(pd.Series([1, 2, 3]), pd.DataFrame({"p": values}), "regression")


@pytest.mark.parametrize(
    ("score", "expected"),
    [(0.5, 0.0), (0.4, 1.0), (0.45, 0.5), (0.52, -0.2), (0.9, -1.0), (None, -1.0)],
)
def test_normalized_scores_begin_at_the_defaults_and_are_cut_at_minus_one(
    score: float | None, expected: float
) -> None:
    assert scores.normalized(score, default=0.5, best=0.4) == pytest.approx(expected)


def test_a_table_counts_once_whatever_its_seeds() -> None:
    values = [np.array([[1.0, 0.0]]), np.array([[0.0, 0.5], [0.0, 0.5], [0.0, 0.5]])]
    assert scores.mean_of(values).tolist() == [0.5, 0.25]


def test_the_bootstrap_is_paired_over_tables_and_seeds() -> None:
    rng = np.random.default_rng(0)
    hard = rng.normal(size=(12, 3, 1))
    values = list(np.concatenate([hard, hard - 0.1], axis=2))
    alone = scores.estimates(values)[0]
    ahead = scores.differences(values, reference=0)[1]
    assert alone.low < 0 < alone.high and alone.high - alone.low > 0.5
    assert ahead.mean == pytest.approx(0.1) and ahead.low == pytest.approx(ahead.high)
    assert scores.bootstrap(values).shape == (scores.DRAWS, 2)
    assert (scores.bootstrap(values) == scores.bootstrap(values)).all()


# ---- cells


def cell(table: str, tool: str, score: float | None, seed: int = 0, **more: Any) -> Cell:
    budget = 0 if tool == DEFAULT else 60
    about = {"versions": {tool: "1.0"}, "machine": "2 cores", "date": "2026-01-0" + str(seed + 1)}
    more = {"auc": 0.9, "seconds": 60.0, "cpu_seconds": 100.0, **about, **more}
    return Cell(table, "binary", 1000, 20, seed, tool, budget, score=score, **more)


# ---- the report


def results() -> list[Cell]:
    rows = []
    for table in ("german_credit", "stroke"):
        for seed in (0, 1):
            rows += [
                cell(table, "sweeps", 0.46 + seed / 100, seed=seed),
                cell(table, "flaml", 0.48 + seed / 100, seed=seed),
                cell(table, DEFAULT, 0.56 + seed / 100, seed=seed),
            ]
    return rows


def test_the_report_has_ranks_normalized_scores_and_each_table() -> None:
    page = report.render(results())
    assert page.startswith("### 60 s, tables for development\n\nTables on which all tools ran: 2. ")
    assert (
        "Seeds of a table: 2. Measured from 2026-01-01 to 2026-01-02 on 2 cores" in page
        and "flaml: flaml 1.0" in page
    )
    assert "| sweeps | 1.00 (1.00 to 1.00) | 1.00 (1.00 to 1.00) |  | 60.0 | 100.0 |" in page
    assert "| flaml | 2.00 (2.00 to 2.00) | 0.80 (0.80 to 0.80) | 0.20 (0.20 to 0.20) |" in page
    line = "| `stroke` | 1,000 × 20 | binary | 2 | **0.4650 (0.900)** | 0.4850 (0.900) | 0.5650"
    assert line in page


def test_the_report_has_the_seconds_to_predict_of_each_tool() -> None:
    page = report.render(
        [
            dataclasses.replace(one, predict_seconds=2.0 + one.seed + (one.tool == "flaml"))
            for one in results()
        ]
    )
    assert "| table | sweeps | flaml |\n| --- | --- | --- |\n" in page
    assert "| `stroke` | **2.5** | 3.5 |" in page


def test_a_tool_that_is_extra_stands_in_the_report_without_a_rank() -> None:
    high = [
        cell(table, "autogluon_high", 0.40, seed=seed)
        for table in ("german_credit", "stroke")
        for seed in (0, 1)
    ]
    page = report.render([*results(), *high])
    assert "| sweeps | 1.00 (1.00 to 1.00) | 1.00 (1.00 to 1.00) |" in page
    assert "| autogluon_high | – | – | – | 60.0 | 100.0 |" in page
    line = "| 0.4650 (0.900) | 0.4850 (0.900) | **0.4000 (0.900)** | 0.5650"
    assert line in page


# ---- one cell


@pytest.mark.integration
@pytest.mark.timeout(120)
def test_one_tool_runs_on_one_table(tmp_path: Path) -> None:
    table = tables()["made_small"]
    empty = Cell("made_small", "binary", 0, 0, 0, DEFAULT, 0)
    write_split(table, tmp_path, 0, tmp_path)
    work = tmp_path / "work"
    work.mkdir()
    done = run_cell(empty, table, Options(tmp_path, None), tmp_path, work)
    assert done.error == "" and done.score is not None and done.auc is not None
    assert 0.2 < done.score < 1.5 and done.auc > 0.6 and done.cpu_seconds > 0.5
    assert set(done.versions) == {"xgboost"} and json.loads((work / "job.json").read_text())
