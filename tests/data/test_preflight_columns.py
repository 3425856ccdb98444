"""Columns that the steps of a chain name are checked before a sweep starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from sweeps.core.errors import InputError
from sweeps.data.checks import preflight
from sweeps.data.checks.column_checks import check_step_columns
from sweeps.space.model.step_names import Step
from sweeps.space.model.templates import Chain
from tests.data.test_preflight import said


def chain(*steps: Step) -> Chain:
    return Chain(steps)


def refused(*steps: Step) -> list[str]:
    return [
        problem.text.partition(";")[0]
        for problem in check_step_columns(chain(*steps), ("age", "plan"), "y", "rows.csv", ("id",))
    ]


@pytest.mark.parametrize("name", ["sklearn.decomposition:PCA", "my_mod:features"])
def test_a_column_that_an_earlier_step_may_make_is_not_refused(name: str) -> None:
    assert refused(Step(name), Step("StandardScaler", ("made", "age"))) == []
    assert refused(Step("StandardScaler", "made"), Step(name)) == ["no column `made` in `rows.csv`"]


@pytest.mark.parametrize("step", ["OneHotEncoder", "HashingVectorizer"])
def test_names_of_encoded_columns_start_with_their_column(step: str) -> None:
    new_columns = Step(step, "plan", {"num_features": 4} if step == "HashingVectorizer" else {})
    assert (
        refused(new_columns, Step("StandardScaler", ("plan_a", "age", "plan_*", "pixel_*"))) == []
    )
    assert refused(new_columns, Step("StandardScaler", ("paln_a", "planb"))) == [
        "no column `paln_a` in `rows.csv` or in the output of earlier steps",
        "no column `planb` in `rows.csv` or in the output of earlier steps",
    ]


def test_names_that_no_model_reads_are_replaced() -> None:
    problems = check_step_columns(
        chain(Step("OneHotEncoder"), Step("MinMaxScaler", "a(1)_x")), ("a[1]",), None, "rows.csv"
    )
    assert problems == []


def test_words_and_patterns_are_no_names() -> None:
    assert (
        refused(
            Step("StandardScaler", "numeric"),
            Step("OneHotEncoder", ("categorical", "p*")),
            Step("MinMaxScaler", "all"),
        )
        == []
    )
    assert refused(Step("StandardScaler", "pixel_*")) == [
        "no column in `rows.csv` matches `pixel_*`"
    ]


def test_columns_that_are_not_features_are_refused() -> None:
    assert refused(Step("StandardScaler", ("y", "id"))) == [
        "`y` is the label, which no step may change",
        "`id` is not a feature, because data.drop, data.weight or a split removes it",
    ]


OPTIONS = """\
preprocessor:
  - StandardScaler: {columns: {grid: [age, [age, plan], three]}}
  - choice: [OneHotEncoder, "sklearn.preprocessing:PolynomialFeatures"]
  - MinMaxScaler: {columns: [plan_a, four]}
"""


def test_every_option_is_checked_and_columns_that_any_option_makes_count(space: Any) -> None:
    body = "".join(f"  {line}\n" for line in OPTIONS.splitlines())
    loaded = space(space="\n" + body, limits="{max_trials: 99}")
    assert said(loaded) == [
        "space.yaml:7:59: preprocessor.0.StandardScaler.columns.grid.2: no column `three` in "
        "`rows.csv`; valid: age, plan"
    ]


def test_texts_that_no_step_encodes_are_refused_if_every_trial_would_fail(
    space: Any, tmp_path: Path
) -> None:
    def problems(
        steps: str, data: str = "train: rows.csv, label: y, valid: 0.25", **changes: str
    ) -> list[str]:
        try:
            preflight.check_data(
                space(f"{{{data}}}", space=f"{{preprocessor: {steps}}}", **changes)
            )
        except InputError as e:
            return [problem.text.partition(";")[0] for problem in e.problems]
        return []

    error = "space.preprocessor: `plan` is text, which xgboost cannot read, and no step encodes it"
    # a text after the first lines
    (tmp_path / "late.csv").write_text(
        "age,plan,y\n"
        + "".join(f"{i},{i},{'no' if i % 2 else 'yes'}\n" for i in range(9999))
        + "1,a,no\n"
    )
    pd.read_csv(tmp_path / "rows.csv").to_parquet(tmp_path / "rows.parquet")
    for refused_steps in (
        "[]",
        "[StandardScaler]",
        "[{OneHotEncoder: {columns: [age]}}]",
        "{grid: [[], [SimpleImputer]]}",
    ):
        assert problems(refused_steps) == [error], refused_steps
    for steps in (
        "OneHotEncoder",
        "[sklearn.preprocessing:OrdinalEncoder]",
        "{grid: [[], [OrdinalEncoder]]}",
        '[{OrdinalEncoder: {columns: "pl*"}}]',
    ):
        assert problems(steps) == [], steps
    assert (
        problems("[]", "train: rows.csv, label: y, valid: 0.25, drop: {choice: [[], [plan]]}") == []
    ), "only some trials fail"
    assert problems("[]", "train: rows.csv, label: y, valid: 0.25, drop: [plan]") == []
    assert problems("[]", "train: late.csv, label: y, valid: 0.25") == [error]
    assert problems("[]", "train: rows.parquet, label: y, valid: 0.25") == [error]
    indexed = pd.DataFrame({"age": range(8), "y": ["no", "yes"] * 4}, index=list("abcdefgh"))
    indexed.to_parquet(tmp_path / "indexed.parquet")
    assert problems("[]", "train: indexed.parquet, label: y, valid: 0.25") == [], (
        "the index is no feature"
    )
    assert problems("[]", trainer="{loop: json:load}") == []
