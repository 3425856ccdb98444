"""Preflight checks refuse only what the sweep would refuse, and read no more than they need."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from sweeps.core.errors import InputError
from sweeps.data.checks import preflight
from sweeps.data.checks.label_checks import infer_task
from sweeps.data.sources import data_files, ingest, sklearn_datasets
from sweeps.space import Space, load
from sweeps.space.sections.data_section import SKLEARN
from tests.bad_input import ROWS, furnish, rows
from tests.commands import invoke

SPACES = Path(__file__).parents[2] / "search_spaces"


def said(space: Space) -> list[str]:
    with pytest.raises(InputError) as e:
        preflight.check_data(space)
    return [str(problem) for problem in e.value.problems]


# ---- variants


OTHER = "age,plan,y\n" + "".join(f"{i},a,{('no', 'yes', 'maybe')[i % 3]}\n" for i in range(9))


def test_every_variant_is_checked_and_named_by_its_option(space: Any, tmp_path: Path) -> None:
    (tmp_path / "more.csv").write_text("age,y\n1,no\n2,yes\n3,yes\n")
    assert said(
        space(
            "{train: {grid: [rows.csv, row.csv, more.csv]}, label: y, valid: 0.25}",
            space="{preprocessor: {OneHotEncoder: {columns: plan}}}",
        )
    ) == [
        "space.yaml:2:33: data.train.grid.1: `row.csv` does not exist; did you mean `rows.csv`?",
        (
            "space.yaml:5:49: preprocessor.OneHotEncoder.columns: no column `plan` in `more.csv`; "
            "valid: age"
        ),
    ]
    drop = space(
        "{train: rows.csv, label: y, valid: 0.25, drop: {choice: [[], [plan], [plan, agee]]}}"
    )
    assert said(drop) == [
        "space.yaml:2:76: data.drop.choice.2: `rows.csv` has no column `agee`; did you mean `age`?"
    ]


def test_a_column_that_a_variant_drops_is_not_a_feature_of_it(space: Any) -> None:
    dropped = space(
        "{train: rows.csv, label: y, valid: 0.25, drop: {choice: [[], [plan]]}}",
        space="{preprocessor: {OneHotEncoder: {columns: plan}}}",
    )
    assert said(dropped) == [
        (
            "space.yaml:5:49: preprocessor.OneHotEncoder.columns: `plan` is not a feature, "
            "because "
            "data.drop, data.weight or a split removes it"
        )
    ]


def test_variants_agree_on_the_label(space: Any, tmp_path: Path) -> None:
    (tmp_path / "other.csv").write_text(OTHER)
    (tmp_path / "same.csv").write_text(ROWS)
    preflight.check_data(
        space(
            "{train: {grid: [rows.csv, same.csv]}, label: y, valid: 0.25, rows: {uniform: [0.5, "
            "1]}}"
        )
    )
    assert said(space("{train: {grid: [rows.csv, other.csv]}, label: y, valid: 0.25}")) == [
        "space.yaml:2:33: data.train.grid.1: the label of `other.csv` is multiclass with the "
        "classes 'maybe', 'no', 'yes', "
        "but the label of `rows.csv` is binary with the classes 'no', 'yes'; all "
        "variants need the same task and classes"
    ]


def test_a_path_with_a_backtick_is_located(space: Any, tmp_path: Path) -> None:
    (tmp_path / "o`ther.csv").write_text(OTHER)
    problems = said(space("{train: {grid: [rows.csv, 'o`ther.csv']}, label: y, valid: 0.25}"))
    assert problems[0].startswith("space.yaml:2:33: data.train.grid.1: the label of `o`ther.csv`")


# ---- columns that steps name


# ---- the data


@pytest.mark.parametrize("name", ["quickstart", "digits_mlp"])
def test_the_spaces_that_ship_pass(name: str) -> None:
    preflight.check_data(load(SPACES / f"{name}.yaml"))


def test_the_columns_of_toy_sets_are_scikit_learns() -> None:
    from sklearn import datasets

    assert set(sklearn_datasets.COLUMNS) == set(SKLEARN)
    for name in sklearn_datasets.COLUMNS:
        assert (*sklearn_datasets.COLUMNS[name], "target") == tuple(
            getattr(datasets, f"load_{name}")(as_frame=True).frame.columns
        )


@pytest.mark.parametrize("name", sklearn_datasets.COLUMNS)
def test_the_tasks_of_toy_sets_are_inferred_from_scikit_learns(name: Any) -> None:
    from sklearn import datasets

    target = pa.chunked_array([getattr(datasets, f"load_{name}")().target])
    for task in (None, "regression", "binary", "multiclass"):
        try:
            inferred = infer_task("target", task, {"train": target})
        except InputError:
            assert sklearn_datasets.label_task(name, task) is None
        else:
            assert sklearn_datasets.label_task(name, task) in (inferred, None)
    assert sklearn_datasets.label_task(name, None) == infer_task("target", None, {"train": target})


def test_a_metric_of_a_toy_set_is_checked_without_scikit_learn(space: Any) -> None:
    wrong = space(
        '{train: "sklearn:wine", label: target, valid: 0.25}',
        objective="{metric: valid-mloglos, goal: minimize}",
    )
    assert said(wrong) == [
        (
            "space.yaml:3:21: objective.metric: `valid-mloglos` is not a metric of this trainer; "
            "did "
            "you mean `valid-mlogloss`?"
        )
    ]
    preflight.check_data(space('{train: "sklearn:wine", label: alcohol, valid: 0.25}'))


def test_many_columns_are_not_all_listed(space: Any) -> None:
    assert said(space('{train: "sklearn:digits", label: klass, valid: 0.2}'))[0].endswith(
        "no column `klass`; it has pixel_0_0, pixel_0_1, pixel_0_2, pixel_0_3, pixel_0_4, "
        "pixel_0_5, pixel_0_6, pixel_0_7, "
        "pixel_1_0, pixel_1_1, ... (65 in all)"
    )


def test_slow_checks_are_left_to_the_sweep(space: Any, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("raise SystemExit('imported')\ndef rows(): ...\n")
    for train in ("s3://no-such-bucket-of-anybody/rows.parquet", "own:rows"):
        preflight.check_data(
            space(
                f'{{train: "{train}", label: nothing, valid: 0.2, drop: [x]}}',
                space="{preprocessor: {StandardScaler: {columns: z}}}",
            )
        )
        assert said(space(f'{{train: "{train}", valid: absent.csv}}')) == [
            "space.yaml:2:" + str(26 + len(train)) + ": data.valid: `absent.csv` does not exist"
        ]


def test_a_file_uri_is_checked(space: Any, tmp_path: Path) -> None:
    assert (
        "has no column `Y`"
        in said(space(f'{{train: "file://{tmp_path}/rows.csv", label: Y, valid: 0.2}}'))[0]
    )


def test_large_files_are_left_to_the_sweep(space: Any, tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text(ROWS.replace("yes", "no"))
    one = space("{train: one.csv, label: y, valid: 0.2}")
    assert "one class" in said(one)[0]
    preflight.check_data(one, 20)


def test_only_the_first_of_many_files_are_checked(
    space: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for i in range(4):
        (tmp_path / f"part{i}.csv").write_text(ROWS if i < 3 else "")
    many = space('{train: "part*.csv", valid: 0.2}')
    assert "`part3.csv` cannot be read: it is empty" in said(many)[0]
    monkeypatch.setattr(preflight, "MAX_FILES", 3)
    preflight.check_data(many)


def test_a_file_without_rows_among_others_is_no_problem(space: Any, tmp_path: Path) -> None:
    (tmp_path / "empty.csv").write_text("age,plan,y\n")
    preflight.check_data(space('{train: "*.csv", label: y, valid: 0.2}'))


def test_folders_name_columns_too(space: Any, tmp_path: Path) -> None:
    for year in (2019, 2020):
        (tmp_path / "d" / f"year={year}").mkdir(parents=True)
        (tmp_path / "d" / f"year={year}" / "rows.csv").write_text(ROWS)
    scaled = "{preprocessor: [{StandardScaler: {columns: [age, year]}}, OneHotEncoder]}"
    preflight.check_data(space("{train: d, label: y, valid: {column: year, value: 2020}}"))
    preflight.check_data(space("{train: d, label: year, valid: 0.2}"))
    preflight.check_data(space("{train: d, label: y, valid: 0.2}", space=scaled))
    assert (
        "no column `year`"
        in said(space("{train: d/year=2019, label: y, valid: 0.2}", space=scaled))[0]
    )


def test_a_row_longer_than_a_block(space: Any, tmp_path: Path) -> None:
    long = '"' + "x\n" * 100_000 + '"'
    (tmp_path / "long.csv").write_text("text,y\n" + f"{long},no\n{long},yes\n" * 2)
    preflight.check_data(space("{train: long.csv, label: y, valid: 0.5}"))


@pytest.mark.parametrize(("columns", "size"), [(["y"], 1), (["x", "y"], 2)])
def test_weight_is_of_the_columns_in_parquet_and_of_the_file_in_csv(
    tmp_path: Path, columns: Any, size: int
) -> None:
    frame = pd.DataFrame({"x": range(50_000), "y": range(50_000)})
    frame.to_csv(tmp_path / "a.csv")
    frame.to_parquet(tmp_path / "a.parquet")

    def weigh(name: str) -> int:
        files = data_files.find_files(data_files.Source(name, tmp_path, "data.train"))
        return ingest.estimate_bytes(files, columns)

    assert weigh("a.csv") == (tmp_path / "a.csv").stat().st_size
    assert 350_000 * size < weigh("a.parquet") < 700_000 * size


def test_the_root_must_be_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    preflight.check_root(tmp_path)
    preflight.check_root(tmp_path / "not" / "yet")
    for path, text in (
        (tmp_path / "file", "is a file"),
        (tmp_path / "file" / "x", f"`{tmp_path}/file` is a file"),
    ):
        with pytest.raises(InputError, match=text):
            preflight.check_root(path)
    assert not (tmp_path / "not").exists()


@pytest.mark.parametrize(
    ("wrong", "imported"), [(ROWS.replace("yes", "no"), "[]"), (ROWS, "['pandas']")]
)
def test_it_imports_nothing_heavy(space: Any, tmp_path: Path, wrong: Any, imported: str) -> None:
    space()
    (tmp_path / "rows.csv").write_text(wrong)
    code = (
        "import sys, contextlib; from sweeps.space import load\n"
        "from sweeps.data.checks.preflight import check_data\n"
        "with contextlib.suppress(Exception): check_data(load('space.yaml'))\n"
        "print([m for m in 'ray torch mlflow pandas sklearn optuna xgboost'.split() if m in "
        "sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.stdout.strip() == imported, done.stderr


@pytest.mark.integration
@pytest.mark.timeout(120)
def test_preflight_refuses_what_the_sweep_refuses(
    local_ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sweeps.data.splits.variants import DataVariants

    count = 0
    for i, case in enumerate(case for cases in rows.TABLE.values() for case in cases):
        # The reader does not know the steps, nor whether the trainer needs a feature.
        if "space: " in case.shown or "a model needs a column" in case.answer[0]:
            continue
        folder = tmp_path / str(i)
        furnish(folder)
        monkeypatch.chdir(folder)
        case.write(folder)
        with pytest.raises(InputError) as e:
            space = load("space.yaml")
            tuned = space.sections.get("data", {})
            assert isinstance(tuned, dict)
            DataVariants(space.data, space.variants, 0, tuple(tuned))
        # the reader names the key, the look its option
        mine = {
            re.sub(r"^(data\.\w+)\.(grid|choice)\.\d+: ", r"\1: ", line.partition(": ")[2])
            for line in case.answer
        }
        theirs = {f"{p.place}: {p.text}" for p in e.value.problems}
        assert theirs <= mine, case.name
        count += 1
    assert count > 30


RARE = "a,day,y\n" + "".join(f"{i},{i},{'rare' if i < 5 else 'usual'}\n" for i in range(60))


def test_plan_with_data_refuses_what_run_refuses(space: Any, tmp_path: Path) -> None:
    (tmp_path / "rare.csv").write_text(RARE)
    space("{train: rare.csv, label: y, valid: {folds: 8}}")
    planned = invoke("plan", "space.yaml", "--data")
    assert planned.exit_code == 2 and "class `rare` of `y` has 5 in train" in planned.stderr
    assert "data: 60 rows" in planned.stdout, "the summary may show the cause"


def test_a_constraint_names_a_column_that_reaches_the_trainer(space: Any, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(ROWS)
    params = "monotone_constraints: {agee: 1}, interaction_constraints: [[age, x], [0, 1]]"
    lines = said(space(space=f"{{preprocessor: [OneHotEncoder], params: {{eta: 0.1, {params}}}}}"))
    assert [line.partition(": ")[2] for line in lines] == [
        "params.monotone_constraints: no column `agee` reaches the trainer; did you mean `age`?",
        "params.interaction_constraints: no column `x` reaches the trainer; valid: age, plan",
    ]
    params = "monotone_constraints: {plan_a: 1, age: 1}"
    preflight.check_data(
        space(space=f"{{preprocessor: [OneHotEncoder], params: {{eta: 0.1, {params}}}}}")
    )
