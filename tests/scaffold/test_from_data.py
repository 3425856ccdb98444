"""`sweeps init --data`: the space file fits the table, however dirty it is."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from sweeps.cli import main
from sweeps.core.errors import InputError
from sweeps.data.load_data import load_splits
from sweeps.data.preprocessing.fit import fit_transform
from sweeps.data.summary.early_summary import summarize_early
from sweeps.scaffold.from_data import space_text
from sweeps.scaffold.read_table import describe_table, likely_label, open_table
from sweeps.scaffold.table_search import TRAINERS
from sweeps.scaffold.yaml_text import yaml_value
from sweeps.space import load
from sweeps.space.yaml.yaml12 import parse
from tests.scaffold.init_command import invoke_init
from tests.scaffold.tables import N, dirty, small

SHARED = Path(os.environ.get("SWEEPS_TEST_DATA", Path(__file__).parents[3] / "shared" / "data"))


def written(folder: Any, frame: Any, label: str = "y", name: str = "rows.parquet") -> Any:
    """Return the space for a table, and the text of its file."""
    frame.to_parquet(folder / name) if name.endswith("parquet") else frame.to_csv(
        folder / name, index=False
    )
    source, reader, table = open_table(str(folder / name), folder)
    text = space_text(describe_table(source, reader, table, label, folder))
    (folder / "space.yaml").write_text(text)
    return load(folder / "space.yaml"), text


def refused(folder: Any, frame: Any, label: str = "y") -> Any:
    with pytest.raises(InputError) as caught:
        written(folder, frame, label)
    return str(caught.value)


def test_every_kind_of_dirt_is_handled(tmp_path: Path) -> None:
    space, text = written(tmp_path, dirty())
    assert set(space.data.drop) == {
        "customer id",
        "row",
        "empty",
        "same",
        "leak",
        "huge",
        "vector",
    }
    assert space.data.parse == {
        "price": "number",
        "preis": "decimal_comma",
        "day": "%d/%m/%Y",
        "when": "%Y-%m-%d",
    }
    assert "# dates as text, such as " in text
    assert "SimpleImputer: {columns: [note], strategy: constant" in text
    assert "HashingVectorizer: {columns: [note], num_features: 64}" in text
    assert "\n    - Categorizer  " in text
    assert "\n  # missing: {age: [unknown]} " in text
    splits = load_splits(space.data)
    _, prepared = fit_transform(
        (),
        splits.train.drop_columns(["color", "city [EU]", "note", "age"]),
        splits.label,
        parse=splits.parse,
    )
    assert all(kind.kind in "biuf" for kind in prepared.dtypes)


@pytest.mark.parametrize(
    ("label", "task", "metric"),
    [
        (["yes", "no"] * (N // 2), "binary", "valid-logloss"),
        ([None, "a", "b", "c"] * (N // 4), "multiclass", "valid-mlogloss"),
        ([f"${i * 7 % 500 + 1000:,}" for i in range(N)], "regression", "valid-rmse"),
        (np.random.default_rng(1).normal(size=N), "regression", "valid-rmse"),
        ([None, 1.0, 2.0, 3.0] * (N // 4), "multiclass", "valid-mlogloss"),
        ([True, False] * (N // 2), "binary", "valid-logloss"),
    ],
)
def test_the_task_follows_from_the_label(
    tmp_path: Path, label: Any, task: str, metric: str
) -> None:
    frame = pd.DataFrame(
        {"x": np.random.default_rng(0).normal(size=N), "z": range(0, 7 * N, 7), "y": label}
    )
    space, _ = written(tmp_path, frame)
    assert space.objective.metric == metric
    assert load_splits(space.data).task == task


def test_few_rows_are_cross_validated(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": range(0, 240, 3), "z": [1.5, 2.5, None, 3.5] * 20, "y": [0, 1] * 40})
    space, _ = written(tmp_path, frame)
    assert (space.data.folds, space.data.test, space.scheduler.max_t) == (5, None, 5)


@pytest.mark.parametrize("trainer", TRAINERS)
@pytest.mark.parametrize("task", ["regression", "multiclass"])
def test_the_file_of_each_trainer_and_task_is_valid(
    tmp_path: Path, trainer: Any, task: str
) -> None:
    rows = small().assign(text=["a", "b", None] * (N // 3), y=np.arange(N) % 7)
    rows.to_csv(tmp_path / "rows.csv", index=False)
    asked = (
        "--task",
        task,
        "--trainer",
        trainer,
        "--metric",
        "r2" if task == "regression" else "f1_macro",
    )
    done = invoke_init(tmp_path / "s.yaml", "--data", tmp_path / "rows.csv", "--label", "y", *asked)
    assert done.exit_code == 0, done.output
    space = load(tmp_path / "s.yaml")
    assert (space.trainer.name, load_splits(space.data).task) == (trainer, task)
    assert space.objective.goal == "maximize"
    summarize_early(space)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (("--metric", "rmse"), "--metric: `rmse` is no metric for multiclass"),
        (("--metric", "acuracy"), "--metric: `acuracy` is no metric for multiclass; did you mean"),
        (("--task", "binary"), "--task: binary needs 2 classes, but `y` has 7"),
        (("--trainer", "forest"), "--trainer: `forest` is not one of xgboost, lightgbm, catboost"),
    ],
)
def test_a_request_that_does_not_fit_the_table(tmp_path: Path, asked: Any, message: str) -> None:
    small().assign(y=np.arange(N) % 7).to_csv(tmp_path / "rows.csv", index=False)
    done = invoke_init(tmp_path / "s.yaml", "--data", tmp_path / "rows.csv", "--label", "y", *asked)
    assert done.exit_code != 0 and message in done.output
    assert not (tmp_path / "s.yaml").exists()


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (
            [f"id{i}" for i in range(N)],
            "--label: `y` has 600 different values in 600 rows, which are too many classes",
        ),
        (
            ["?" if i % 9 == 0 else f"{i / 7:.3f}" for i in range(N)],
            (
                "--label: `y` has 534 different values in 600 rows, which are too many classes; "
                "all "
                "are numbers but '?'"
            ),
        ),
        ([1] * N, "--label: `y` has only one class, 1"),
        ([None] * N, "--label: "),
    ],
)
def test_a_column_that_cannot_be_a_label(tmp_path: Path, column: Any, message: str) -> None:
    assert refused(tmp_path, pd.DataFrame({"x": range(N), "y": column})).startswith(message)


def test_a_marker_among_few_classes_is_named_in_the_file(tmp_path: Path) -> None:
    classes = ["?" if i % 60 == 0 else str(1 + i % 2) for i in range(N)]
    rows = pd.DataFrame({"x": np.random.default_rng(0).normal(size=N), "y": classes})
    _, text = written(tmp_path, rows, name="rows.csv")
    assert '# missing: {y: ["?"]}' in text


def test_a_missing_label_and_a_file_with_another_separator(tmp_path: Path) -> None:
    assert "has no column `target`; " in refused(
        tmp_path, pd.DataFrame({"x": range(N), "y": range(N)}), "target"
    )
    (tmp_path / "rows.csv").write_text("a;b;y\n1;2;0\n3;4;1\n")
    with pytest.raises(
        InputError,
        match=re.escape("add `--read '{separator: \";\"}'`"),
    ):
        open_table(str(tmp_path / "rows.csv"), tmp_path)
    with pytest.raises(InputError, match=r"--data: .*does not exist"):
        open_table("nothing.csv", tmp_path)


@pytest.mark.parametrize(("lone", "folds"), [(1, 0), (4, 0), (5, 5)])
def test_a_class_that_lacks_a_row_for_each_fold_is_not_folded(
    tmp_path: Path, lone: int, folds: int
) -> None:
    label = ["lone"] * lone + ["a", "b"] * ((N - lone) // 2 + 1)
    frame = pd.DataFrame({"x": np.random.default_rng(0).normal(size=N), "y": label[:N]})
    space, _ = written(tmp_path, frame.sample(frac=1.0, random_state=0))
    assert space.data.folds == folds
    splits = load_splits(space.data)
    assert splits.task == "multiclass"
    assert splits.classes is not None and "lone" in splits.classes


@pytest.mark.parametrize("order", ["growing", "falling", "mixed"])
@pytest.mark.parametrize("written_as", ["text", "timestamp"])
def test_rows_that_are_sorted_by_a_date_are_validated_on_the_latest(
    tmp_path: Path, order: str, written_as: str
) -> None:
    frame = pd.DataFrame({"x": np.random.default_rng(0).normal(size=N), "y": [0, 1] * (N // 2)})
    days = pd.date_range("2024-01-01", periods=N).to_series(index=frame.index)
    if order != "growing":
        days = days[::-1].to_numpy() if order == "falling" else days.sample(frac=1.0).to_numpy()
        days = pd.Series(days)
    frame["day"] = days if written_as == "timestamp" else days.dt.strftime("%Y/%m/%d")
    space, _ = written(tmp_path, frame)
    assert space.data.folds == (5 if order == "mixed" else 0)
    if order != "mixed":
        assert (space.data.valid.kind, space.data.valid.column) == ("time", "day")
        splits = load_splits(space.data)
        latest = pd.to_datetime(frame["day"]).nlargest(N // 5).index
        assert splits.valid.num_rows == N // 5
        np.testing.assert_allclose(
            np.sort(splits.valid.column("x").to_numpy()), np.sort(frame["x"][latest])
        )


def test_the_likely_label() -> None:
    assert likely_label(["Target", "x"]) == "Target"
    assert likely_label(["a", "b", "Churn"]) == "Churn"


# ---- names and texts of any kind

NAMES = st.lists(
    st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=8),
    min_size=2,
    max_size=5,
    unique=True,
).filter(lambda names: all(name.strip() == name for name in names))


@given(
    st.text(max_size=20) | st.integers() | st.floats(allow_nan=False) | st.booleans() | st.none()
)
def test_a_quoted_value_is_read_back(value: Any) -> None:
    try:
        read = parse(f"a: {yaml_value(value)}", "").value["a"].value
    except InputError:  # characters that YAML forbids, or numbers that are too large
        assert not isinstance(value, (bool, float))
        return
    if isinstance(value, str):
        read = read.replace("$${", "${")
    assert read == value and type(read) is type(value)


# ---- the command


def test_copies_do_not_hide_what_identifies_rows(tmp_path: Path) -> None:
    rows = small().assign(
        cust=[f"C{i:05d}" for i in range(N)],
        order=[f"ORD-{i + 1000}" for i in range(N)],
        row=range(1, N + 1),
    )
    space, _ = written(tmp_path, pd.concat([rows, rows.sample(80, random_state=0)]))
    assert (
        set(space.data.drop) == {"cust", "order", "row"}
        and space.data.drop_duplicates
        and not space.data.parse
    )


def test_texts_in_rows_without_a_label_are_read_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{i / 7:.3f},{i % 5},{'ab'[i % 2]}\n" for i in range(120))
    (tmp_path / "rows.csv").write_text(f"x,k,y\n{rows}Total,120,\n")
    done = CliRunner().invoke(main, ["init", "s.yaml", "--data", "rows.csv", "--label", "y"])
    assert done.exit_code == 0, done.output
    assert "x: {rule: number, other: missing}" in (tmp_path / "s.yaml").read_text()


def test_a_table_without_a_usable_column_names_them(tmp_path: Path) -> None:
    rows = [{"x": {"a": i}, "y": "ab"[i % 2]} for i in range(20)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source, reader, table = open_table(str(tmp_path / "rows.jsonl"), tmp_path)
    with pytest.raises(InputError, match=r"x \(has the type struct"):
        describe_table(source, reader, table, "y", tmp_path)


def test_what_only_tolerance_finds_is_not_dropped(tmp_path: Path) -> None:
    rows = small().assign(
        user_id=[None, *range(1000, 1000 + 7 * (N - 1), 7)],
        day=["soon", *(f"{i % 28 + 1:02d}/03/2026" for i in range(1, N))],
        reviews=["ask", "none yet", *(f"{i * 7 % 113}" for i in range(2, N))],
        price=["ask", *(f"€{i}" for i in range(1, N))],
    )
    space, text = written(tmp_path, rows)
    assert space.data.drop == ()
    assert space.data.parse == {
        "day": "%d/%m/%Y or missing",
        "reviews": "number or missing",
        "price": "number or missing",
    }
    assert "# dates; other texts, such as soon, become missing" in text
    assert load_splits(space.data).notes


def test_frequent_label_word_is_class_and_rare_one_is_missing(tmp_path: Path) -> None:
    frequent = small().assign(y=["None" if i % 3 else "Minor" for i in range(N)])
    space, text = written(tmp_path, frequent)
    assert (
        space.data.missing == {"y": ()}
        and "'None' is a class; or else drop_missing_label: true" in text
    )
    assert load_splits(space.data).classes == ("Minor", "None")
    rare = small().assign(y=["None" if i == 5 else ("no", "yes")[i % 2] for i in range(N)])
    space, _ = written(tmp_path, rare)
    assert space.data.drop_missing_label and not space.data.missing
    assert load_splits(space.data).classes == ("no", "yes")
