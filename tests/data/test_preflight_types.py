"""Types of columns that a trainer or a bundle cannot read are refused before a sweep starts."""

from __future__ import annotations

import datetime
import decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from sweeps.data.checks import preflight
from tests.data.test_preflight import said

N = 24


TYPES = {
    "text": ["red", "blue"] * (N // 2),
    "category": pd.Categorical(["red", "blue"] * (N // 2)),
    "timestamp": pd.date_range("2024-01-01", periods=N, freq="D"),
    "date": [datetime.date(2024, 1, 1 + i) for i in range(N)],
    "time": [datetime.time(i) for i in range(N)],
    "duration": pd.to_timedelta(range(N), unit="h"),
    "list": [["a", "b"]] * N,
    "struct": [{"a": 1}] * N,
    "binary": [b"x"] * N,
    "period": pd.period_range("2021-01", periods=N, freq="M"),
    "interval": pd.interval_range(0, N),
    "decimal": [decimal.Decimal(i) for i in range(N)],
    "int8": pd.array([*range(N - 1), None], "Int8"),
}


DATE = r'write `data.parse: {x: "%Y-%m-%d"}`'


@pytest.mark.parametrize(
    ("kind", "shown", "advice"),
    [
        ("text", "text", "add an encoder"),
        ("category", "of the type category", "add an encoder"),
        ("timestamp", "of the type timestamp[", DATE),
        ("date", "of the type date32[day]", DATE),
        ("time", "of the type time64[us]", "name it in `columns` of a step"),
        ("duration", "of the type duration[", "convert it to numbers"),
        ("list", "of the type list<", "name it in `columns` of a step"),
        ("struct", "of the type struct<", "name it in `columns` of a step"),
        ("binary", "of the type binary", "name it in `columns` of a step"),
        ("period", "of the type pandas.period", "convert it to dates (`to_timestamp()`)"),
        ("interval", "of the type pandas.interval", "convert it to dates"),
        ("decimal", "", ""),
        ("int8", "", ""),
    ],
)
def test_a_column_is_refused_if_the_trainer_cannot_read_its_type(
    space: Any, tmp_path: Path, kind: str, shown: str, advice: Any
) -> None:
    frame = pd.DataFrame({"x": TYPES[kind], "a": range(N), "y": ["no", "yes"] * (N // 2)})
    frame.to_parquet(tmp_path / "typed.parquet")
    rows = "train: typed.parquet, label: y, valid: 0.25"
    loaded = space(f"{{{rows}}}", space="{params: {eta: 0.1}}")
    preflight.check_data(space(f"{{{rows}, drop: [x]}}", space="{params: {eta: 0.1}}"))
    if not shown:
        preflight.check_data(loaded)
        return
    (line,) = said(loaded)
    assert f"`x` is {shown}" in line and advice in line and line.endswith("add it to data.drop")


@pytest.mark.parametrize(
    ("kind", "steps", "refused"),
    [
        ("category", "[OneHotEncoder]", False),
        ("time", "[OneHotEncoder]", False),
        ("timestamp", "[OneHotEncoder]", True),
        ("timestamp", "[{OrdinalEncoder: {columns: [x]}}]", True),
        ("list", "[OneHotEncoder]", True),
        ("duration", "[StandardScaler]", True),
        ("duration", '["json:dumps"]', False),
        ("period", '["json:dumps"]', True),
        ("period", "[{OneHotEncoder: {columns: [x]}}]", True),
    ],
)
def test_a_step_may_make_numbers_of_a_column(
    space: Any, tmp_path: Path, kind: str, steps: str, refused: bool
) -> None:
    frame = pd.DataFrame({"x": TYPES[kind], "a": range(N), "y": ["no", "yes"] * (N // 2)})
    frame.to_parquet(tmp_path / "typed.parquet")
    loaded = space(
        "{train: typed.parquet, label: y, valid: 0.25}", space=f"{{preprocessor: {steps}}}"
    )
    if refused:
        assert "`x` is of the type" in said(loaded)[0]
    else:
        preflight.check_data(loaded)


@pytest.mark.parametrize("columns", ["categorical", "[plan]", "all"])
def test_categories_are_refused_for_a_trainer_of_numbers(space: Any, columns: str) -> None:
    steps = f"[{{Categorizer: {{columns: {columns}}}}}]"
    data = "{train: rows.csv, label: y, valid: 0.25}"
    preflight.check_data(space(data, space=f"{{preprocessor: {steps}}}"))
    loaded = space(data, space=f"{{preprocessor: {steps}}}", trainer="torch_tabular")
    assert said(loaded) == [
        "space.yaml:5:23: space.preprocessor: `plan` is of the type category, which torch_tabular "
        "cannot read, and no step "
        "encodes it; add an encoder that makes numbers, such as `preprocessor: [OneHotEncoder]`, "
        "or add it to data.drop"
    ]
    after = "[Categorizer, OneHotEncoder]"
    preflight.check_data(space(data, space=f"{{preprocessor: {after}}}", trainer="torch_tabular"))


def test_types_that_a_bundle_would_refuse_are_refused_for_every_trainer(
    space: Any, tmp_path: Path
) -> None:
    frame = pd.DataFrame({"x": TYPES["period"], "y": ["no", "yes"] * (N // 2)})
    frame.to_parquet(tmp_path / "typed.parquet")
    data = "{train: typed.parquet, label: y, valid: 0.25}"
    for trainer in ("catboost", '"sklearn.svm:SVC"', "{loop: json:load}"):
        assert "pandas.period" in said(space(data, trainer=trainer))[0]
    frame.assign(x=TYPES["list"]).to_parquet(tmp_path / "typed.parquet")
    preflight.check_data(space(data, trainer="{loop: json:load}"))


def test_dates_with_a_rule_are_numbers(space: Any, tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": TYPES["timestamp"], "y": ["no", "yes"] * (N // 2)})
    frame.to_parquet(tmp_path / "typed.parquet")
    preflight.check_data(
        space('{train: typed.parquet, label: y, valid: 0.25, parse: {x: "%Y-%m-%d"}}')
    )
