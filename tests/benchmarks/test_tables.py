"""The benchmark of tables: rows and tables that are held back, scores, ranks, the bootstrap, and
the report.
"""

from __future__ import annotations

import dataclasses
import json
import math
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from benchmarks.__main__ import main as benchmarks_main
from benchmarks.tables import cells, generated, portfolio, report, scores
from benchmarks.tables.__main__ import chosen, parser, wanted
from benchmarks.tables.catalog import Table, tables
from benchmarks.tables.cells import Cell
from benchmarks.tables.peers import DEFAULT, REQUIREMENTS, TOOLS, MissingEnvironment
from benchmarks.tables.run_cell import Options, run_cell, tail, write_split
from benchmarks.tables.split import DEVELOPMENT, held_out, is_held, latest
from benchmarks.tables.tools import (
    native_columns,
    optuna_loop,
    sweeps_commands,
    xgboost_defaults,
)
from benchmarks.tables.tools.job import Job
from tests.documents import ROOT

# Tables on which sweeps is judged elsewhere.
NEVER = {"adult", "credit_default", "phoneme", "mammography", "wine", "oil_spill", "sonar"}
NEVER |= {"airlines", "green_taxi"}


# ---- what is held back


def test_a_third_of_the_tables_is_held_back_and_none_of_those_for_development():
    names = list(tables())
    assert 0.25 < np.mean([is_held(name) for name in names]) < 0.42
    assert len(DEVELOPMENT) == 6 and set(DEVELOPMENT) <= set(names)
    assert not any(is_held(name) for name in DEVELOPMENT)
    assert not set(names) & NEVER
    # A name never changes its side.
    assert is_held("telco_churn") and not is_held("german_credit")


@pytest.mark.parametrize("seed", [0, 1])
def test_a_quarter_of_each_class_is_held_out(seed):
    classes = ["a"] * 400 + ["b"] * 41 + ["c"] * 3 + ["d"]
    mask = held_out(classes, seed)
    counts = pd.Series(classes)[mask].value_counts().to_dict()
    assert counts == {"a": 100, "b": 10}, "classes with fewer than four rows keep them all"
    assert (mask == held_out(classes, seed)).all()
    assert (mask != held_out(classes, seed + 7)).any()


def test_the_latest_quarter_is_held_out():
    assert latest([5, 1, 9, 3, 2, 8, 7, 4]).tolist() == [0, 0, 1, 0, 0, 1, 0, 0]


def test_a_table_with_a_time_is_split_by_time(tmp_path):
    frame = pd.DataFrame({"day": [3, 1, 2, 4] * 5, "label": ["x", "y"] * 10})
    table = Table("t", "label", "binary", lambda folder: frame, time="day")
    train, test = table.split(tmp_path, 0)
    assert set(test["day"]) == {4} and len(train) == 15
    rows, columns = write_split(table, tmp_path, 0, tmp_path)
    assert (rows, columns) == (20, 1)
    assert list(pd.read_csv(tmp_path / "test.csv")) == ["day"]
    assert pd.read_csv(tmp_path / "labels.csv")["label"].tolist() == test["label"].tolist()


def test_text_of_a_file_reaches_the_tools_as_it_is(tmp_path):
    known = tables()["stroke"]
    file = tmp_path / known.file
    file.parent.mkdir()
    text = "age,bmi,stroke\n" + "067,N/A,1\n5e1, 1.50,0\n" * 4
    file.write_text(text)
    train, test = known.split(tmp_path, 0)
    assert set(pd.concat([train, test])["bmi"]) == {"N/A", " 1.50"}
    assert set(train["age"]) == {"067", "5e1"}


# ---- generated tables


@pytest.mark.parametrize("name", generated.RECIPES)
def test_a_generated_table_follows_its_recipe(name):
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


def test_a_generated_label_can_be_predicted_but_not_without_error():
    recipe = generated.Recipe(3000, 6, (4,), linear=True)
    table = generated.table_of(recipe, 1)
    x = pd.get_dummies(table.drop(columns="label")).rank().to_numpy(dtype=float)
    x = np.column_stack([(x - x.mean(axis=0)) / (x.std(axis=0) + 1e-9), np.ones(len(x))])
    y = np.where(table["label"] == "yes", 1.0, -1.0)
    weights = np.linalg.lstsq(x[:2000], y[:2000], rcond=None)[0]
    accuracy = np.mean(np.sign(x[2000:] @ weights) == y[2000:])
    assert 0.7 < accuracy < 0.95


# ---- scores


def test_log_loss_and_auc_of_two_classes():
    truth = pd.Series(["1", "0", "1", "0"])
    predicted = pd.DataFrame({"0.0": [0.2, 0.9, 0.6, 0.3], "1.0": [0.8, 0.1, 0.4, 0.7]})
    score, auc = scores.evaluate(truth, predicted, "binary")
    assert score == pytest.approx(-np.mean(np.log([0.8, 0.9, 0.4, 0.3])))
    assert auc == 0.75


def test_a_class_without_a_column_has_the_least_probability():
    truth = pd.Series(["a", "b", "rare"])
    predicted = pd.DataFrame({"a": [1.0, 0.0, 0.5], "b": [0.0, 1.0, 0.5]})
    score, auc = scores.evaluate(truth, predicted, "multiclass")
    assert score == pytest.approx(-math.log(scores.LEAST) / 3, abs=1e-4)
    assert auc is not None
    assert scores.evaluate(truth[:2], predicted[:2].assign(rare=0.0), "multiclass")[1] is None


def test_rmse_of_a_regression():
    predicted = pd.DataFrame({"prediction": [1.0, 2.0, 5.0]})
    assert scores.evaluate(pd.Series(["1", "2.0", "2"]), predicted, "regression") == (
        pytest.approx(3**0.5),
        None,
    )


@pytest.mark.parametrize("values", [[1.0, 2.0], [1.0, math.nan, 2.0]])
def test_predictions_with_gaps_are_refused(values):
    with pytest.raises(ValueError, match="predictions"):
        scores.evaluate(pd.Series([1, 2, 3]), pd.DataFrame({"p": values}), "regression")


@pytest.mark.parametrize(
    ("score", "expected"),
    [(0.5, 0.0), (0.4, 1.0), (0.45, 0.5), (0.52, -0.2), (0.9, -1.0), (None, -1.0)],
)
def test_normalized_scores_begin_at_the_defaults_and_are_cut_at_minus_one(score, expected):
    assert scores.normalized(score, default=0.5, best=0.4) == pytest.approx(expected)


def test_without_a_tool_better_than_the_defaults_the_scale_has_two_values():
    assert scores.normalized(0.5, default=0.5, best=0.5) == 0.0
    assert scores.normalized(0.51, default=0.5, best=0.5) == -1.0


def test_failed_tools_are_last_and_equal_scores_share_a_rank():
    assert scores.ranks([0.3, None, 0.1, 0.3, None]).tolist() == [2.5, 4.5, 1.0, 2.5, 4.5]


def test_a_table_counts_once_whatever_its_seeds():
    values = [np.array([[1.0, 0.0]]), np.array([[0.0, 0.5], [0.0, 0.5], [0.0, 0.5]])]
    assert scores.mean_of(values).tolist() == [0.5, 0.25]


def test_the_bootstrap_is_paired_over_tables_and_seeds():
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


def cell(table: str, tool: str, score: float | None, seed: int = 0, **more) -> Cell:
    budget = 0 if tool == DEFAULT else 60
    about = {"versions": {tool: "1.0"}, "machine": "2 cores", "date": "2026-01-0" + str(seed + 1)}
    more = {"auc": 0.9, "seconds": 60.0, "cpu_seconds": 100.0, **about, **more}
    return Cell(table, "binary", 1000, 20, seed, tool, budget, score=score, **more)


def test_cells_are_kept_and_the_last_one_counts(tmp_path):
    file = tmp_path / "new" / "cells.jsonl"
    assert cells.read(file) == []
    first, second = cell("pima", "sweeps", 0.5), cell("pima", "flaml", None, error="no memory")
    for one in (first, second, dataclasses.replace(first, score=0.4)):
        cells.append(file, one)
    with open(file, "a") as out:
        out.write('{"table": "interrup')
    kept = cells.read(file)
    assert [one.score for one in kept] == [0.4, None]
    todo = [cell("pima", "sweeps", None), cell("pima", "flaml", None), cell("pima", "loop", None)]
    assert [one.tool for one in cells.missing(todo, kept, retry=False)] == ["loop"]
    assert [one.tool for one in cells.missing(todo, kept, retry=True)] == ["flaml", "loop"]


# ---- the report


def results() -> list[Cell]:
    found = []
    for table in ("german_credit", "stroke"):
        for seed in (0, 1):
            found += [
                cell(table, "sweeps", 0.46 + seed / 100, seed=seed),
                cell(table, "flaml", 0.48 + seed / 100, seed=seed),
                cell(table, DEFAULT, 0.56 + seed / 100, seed=seed),
            ]
    return found


def test_the_report_has_ranks_normalized_scores_and_each_table():
    made = report.render(results())
    assert made.startswith("### 60 s, tables for development\n\nTables on which all tools ran: 2. ")
    assert (
        "Seeds of a table: 2. Measured from 2026-01-01 to 2026-01-02 on 2 cores" in made
        and "flaml: flaml 1.0" in made
    )
    assert "| sweeps | 1.00 (1.00 to 1.00) | 1.00 (1.00 to 1.00) |  | 60.0 | 100.0 |" in made
    assert "| flaml | 2.00 (2.00 to 2.00) | 0.80 (0.80 to 0.80) | 0.20 (0.20 to 0.20) |" in made
    line = "| `stroke` | 1,000 × 20 | binary | 2 | **0.4650 (0.900)** | 0.4850 (0.900) | 0.5650"
    assert line in made


def test_a_failed_tool_is_counted_and_has_the_lowest_score():
    found = [*results(), *(cell("stroke", "loop", None, seed=s, error="killed") for s in (0, 1))]
    made = report.render(found)
    assert "all tools ran: 1." in made, "german_credit has no cell of the loop"
    assert "| loop | 3.00 (3.00 to 3.00) | -1.00 (-1.00 to -1.00) |" in made
    assert "| – | – | – | 2 |" in made and "| failed |" in made


def test_tables_that_were_looked_at_once_have_a_part_of_their_own():
    found = [dataclasses.replace(one, table="cars") for one in results()[:3]]
    assert report.render(found).startswith("### 60 s, tables that were looked at once")
    assert report.render([]) == ""
    assert report.render(results()[:2]) == "", "without XGBoost's defaults there is no scale"


def test_a_variant_of_sweeps_stands_beside_it():
    found = [*results(), *(dataclasses.replace(c, tool="patience") for c in results()[::3])]
    assert report.tools_of(found, 60) == ["sweeps", "patience", "flaml"]
    assert "| patience | 1.50 (1.50 to 1.50) |" in report.render(found)


# ---- the command line and the tools


def test_the_command_lists_the_tables(capsys):
    assert benchmarks_main(["tables", "list"]) == 0
    assert "| `telco_churn` | binary | yes |" in capsys.readouterr().out


def test_tables_without_their_file_are_left_out(capsys, monkeypatch):
    monkeypatch.delenv("SWEEPS_BENCHMARK_DATA", raising=False)
    given = parser().parse_args(["run", "--dev"])
    assert {table.name for table in chosen(given)} == {"made_many_levels", "made_unequal_classes"}
    assert "stroke: left out, because --data FOLDER has no" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tables", "cars"], "`cars` is held back"),
        (["--tables", "horses"], "no table `horses`"),
        (["--tables", "digits", "--tools", "sweeeps"], "no tool `sweeeps`"),
    ],
)
def test_wrong_names_are_refused(arguments, message, capsys):
    with pytest.raises(SystemExit):
        benchmarks_main(["tables", "run", *arguments])
    assert message in capsys.readouterr().err


def test_sweeps_may_be_kept_under_another_name():
    given = parser().parse_args(["run", "--as", "patience", "--seconds", "300"])
    found = wanted(tables()["digits"], 2, given)
    assert [(c.tool, c.budget, c.seed) for c in found] == [
        ("patience", 300, 2),
        ("flaml", 300, 2),
        ("autogluon", 300, 2),
        ("loop", 300, 2),
        (DEFAULT, 0, 2),
    ]


def test_a_peer_without_an_environment_says_how_to_make_one(tmp_path):
    with pytest.raises(MissingEnvironment, match="tables peers --peers"):
        TOOLS["flaml"].python(tmp_path)
    with pytest.raises(MissingEnvironment, match="flaml needs --peers"):
        TOOLS["flaml"].python(None)
    assert TOOLS["loop"].python(None).exists()


@pytest.mark.parametrize("tool", [tool.name for tool in TOOLS.values() if tool.is_peer])
def test_each_package_of_a_peer_has_a_version(tool):
    lines = (REQUIREMENTS / f"{tool}.txt").read_text().splitlines()
    assert lines and all("==" in line for line in lines)


def test_probabilities_are_found_in_the_predictions_of_sweeps():
    predicted = pd.DataFrame({"prediction": ["b"], "probability_a": [0.1], "probability_b": [0.9]})
    assert list(sweeps_commands.columns(predicted, "binary")) == ["a", "b"]
    assert list(sweeps_commands.columns(predicted, "regression")) == ["prediction"]


def test_the_loop_leaves_time_for_the_last_training():
    # A trial from second 10 on may be the best, and its last training takes 1.5 times as long.
    assert optuna_loop.latest_end(10.0, deadline=60.0, best_seconds=0.0) == 30.0
    assert optuna_loop.latest_end(40.0, deadline=60.0, best_seconds=4.0) == 48.0
    assert optuna_loop.latest_end(50.0, deadline=60.0, best_seconds=10.0) == 45.0


@pytest.mark.parametrize(("name", "rows"), [("made_small", 40), ("made_small_regression", 60)])
@pytest.mark.parametrize("tool", [optuna_loop, xgboost_defaults])
def test_models_of_xgboost_predict_what_they_were_trained_on(tool, name, rows, tmp_path):
    """The loop has no time left: it runs one trial of one round, and trains its configuration on
    all rows.
    """
    table = tables()[name]
    few = dataclasses.replace(table, load=lambda folder: table.load(folder)[:rows])
    write_split(few, tmp_path, 0, tmp_path)
    files = {part: str(tmp_path / f"{part}.csv") for part in ("train", "test", "predictions")}
    job = Job(**files, label=table.label, task=table.task, seed=0, deadline=0, folder=str(tmp_path))
    tool.train(job)
    tool.predict(job)
    predicted = pd.read_csv(job.predictions)
    assert len(predicted) == len(pd.read_csv(job.test))
    assert list(predicted) == (["no", "yes"] if table.task == "binary" else ["prediction"])


def test_columns_of_texts_are_native_categories():
    rows = pd.DataFrame(
        {
            "kind": ["x", "y", None, "x"] * 10,
            "amount": ["1.5", " 2", None, "3"] * 10,
            "id": [f"row{i}" for i in range(40)],
            "empty": [None] * 40,
        }
    )
    columns = native_columns.columns_of(rows)
    assert columns == {"kind": ["x", "y"], "amount": None}
    new = pd.DataFrame({"kind": ["y", "z"], "amount": [1, "?"]})
    made = native_columns.prepared(new, columns)
    assert made["kind"].cat.codes.tolist() == [1, -1], "an unknown category is a missing value"
    assert made["amount"].iloc[0] == 1.0 and made["amount"].isna().tolist() == [False, True]


# ---- portfolios


def test_configurations_are_chosen_greedily():
    nan = math.nan
    given = np.array([[5.0, 9, 3], [1, 9, 3], [9, 1, 3], [2, 2, 2], [nan, nan, 1], [9, 9, 9]])
    assert portfolio.choose(given, least=1, most=9) == [3, 4, 1, 2], "the rest does not help"
    assert portfolio.choose(given, least=5, most=9) == [3, 4, 1, 2, 0]
    assert portfolio.choose(given, least=1, most=2) == [3, 4]
    times_1000 = given * [1, 1000, 1]
    assert portfolio.choose(times_1000, least=1, most=9) == [3, 4, 1, 2], "scales do not matter"
    assert portfolio.choose(np.ones((2, 3))) == [0, 1]


def test_scores_are_measured_once(tmp_path, monkeypatch):
    tasks = {"a": lambda c: c["eta"], "b": lambda c: c["lambda"]}
    measured = []

    def task_of(table, folder):
        def score(given):
            measured.append(table.name)
            return tasks[table.name](given)

        return SimpleNamespace(score=score)

    monkeypatch.setattr(portfolio, "DEVELOPMENT", ("a", "b"))
    monkeypatch.setattr(
        portfolio, "tables", lambda: {name: SimpleNamespace(name=name) for name in tasks}
    )
    monkeypatch.setattr(portfolio, "Task", SimpleNamespace(of=task_of))
    file = tmp_path / "scores.jsonl"
    portfolio.add_scores(file, tmp_path, 3)
    file.write_text(file.read_text()[:-5])  # an interruption cuts the last line
    portfolio.add_scores(file, tmp_path, 4)
    assert measured == ["a"] * 3 + ["b"] * 3 + ["a", "b", "b"]
    found = portfolio.table_of_scores(portfolio.read_scores(file), 3)
    configurations = [portfolio.configuration(number) for number in range(3)]
    assert found.tolist() == [[c["eta"], c["lambda"]] for c in configurations]
    assert portfolio.yaml_text(configurations).count("params.eta: ") == 3


@pytest.mark.integration
@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", ["made_small", "made_small_regression"])
def test_a_configuration_has_a_score_on_a_table(name, tmp_path):
    task = portfolio.Task.of(tables()[name], tmp_path)
    assert 0.2 < task.score(portfolio.configuration(1)) < 50


def test_the_last_lines_of_a_log_are_the_error():
    assert tail("a\n\nb\n c \nd\n") == "b | c | d" and tail("\n") == "no output"


@pytest.mark.integration
@pytest.mark.timeout(120)
def test_one_tool_runs_on_one_table(tmp_path):
    table = tables()["made_small"]
    empty = Cell("made_small", "binary", 0, 0, 0, DEFAULT, 0)
    write_split(table, tmp_path, 0, tmp_path)
    work = tmp_path / "work"
    work.mkdir()
    done = run_cell(empty, table, Options(tmp_path, None), tmp_path, work)
    assert done.error == "" and 0.2 < done.score < 1.5 and done.auc > 0.6 and done.cpu_seconds > 0.5
    assert set(done.versions) == {"xgboost"} and json.loads((work / "job.json").read_text())


@pytest.mark.integration
@pytest.mark.timeout(120)
def test_cpu_seconds_count_orphans(tmp_path):
    busy = "import time; end = time.process_time() + 0.8\nwhile time.process_time() < end: pass"
    start = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {busy!r}]); exit(3)"
    result = tmp_path / "result.json"
    command = [sys.executable, "-m", "benchmarks.tables.measure", str(result), "30"]
    subprocess.run([*command, sys.executable, "-c", start], cwd=ROOT, check=True)
    measured = json.loads(result.read_text())
    assert measured["code"] == 3 and 0.7 < measured["cpu_seconds"] < 3
