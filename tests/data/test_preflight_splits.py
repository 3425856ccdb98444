"""Splits, folds and labels that a sweep would refuse are refused before it starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from sweeps.core.errors import InputError
from sweeps.data.checks import preflight
from tests.data.test_preflight import RARE, said


@pytest.mark.parametrize("value", ["2", "two", "true", "2.0"])
def test_a_split_by_value_is_checked_as_the_sweep_does(
    space: Any, tmp_path: Path, value: str
) -> None:
    from sweeps.data.splits.split import assign_splits

    (tmp_path / "parts.csv").write_text(
        "age,part,flag,half\n" + "".join(f"{i},{i % 3},{i % 2 == 0},{i}.5\n" for i in range(9))
    )
    frame = pd.read_csv(tmp_path / "parts.csv")
    for column in ("part", "flag"):
        loaded = space(f"{{train: parts.csv, valid: {{column: {column}, value: {value}}}}}")
        try:
            assign_splits(
                9,
                valid=loaded.data.valid,
                test=None,
                columns={column: frame[column].to_numpy()},
                strata=None,
                seed=0,
            )
        except InputError as e:
            assert said(loaded)[0].endswith(f": {e}")
        else:
            preflight.check_data(loaded)


@pytest.mark.parametrize("name", ["a.b", "größe", "with, comma", ""])
def test_labels_of_any_name(space: Any, tmp_path: Path, name: str) -> None:
    frame = pd.DataFrame({"x": range(6), name: ["u", "v"] * 3})
    frame.to_csv(tmp_path / "odd.csv", index=False)
    frame.to_parquet(tmp_path / "odd.parquet")
    label = name or "Unnamed: 1"
    preflight.check_data(space(f"{{train: odd.csv, label: '{label}', valid: 0.2}}"))
    if name:
        preflight.check_data(space(f"{{train: odd.parquet, label: '{label}', valid: 0.2}}"))
        frame[name] = "u"
        frame.to_parquet(tmp_path / "odd.parquet")
        assert (
            "one class, 'u'"
            in said(space(f"{{train: odd.parquet, label: '{label}', valid: 0.2}}"))[0]
        )


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (
            "valid: {folds: 8}",
            (
                "data.valid: 8 folds need at least 8 rows of each class in train, but class "
                "`rare` of "
                "`y` has 5 in train"
            ),
        ),
        ("valid: {folds: 5}, test: 0.2", "but class `rare` of `y` has 4 in train and 1 in test"),
        ("valid: {time: day, last: 0.95}", "data.label: the train split has only one class"),
        ("group: y, valid: 0.5", "data.label: the train split has only one class"),
        ("valid: {column: day, value: 99}", "data.valid: no row has 99 in column `day`"),
        ("valid: {folds: 5}", None),
        ("valid: 0.25", None),
    ],
)
def test_splits_and_folds_are_those_of_the_sweep(
    space: Any, tmp_path: Path, data: str, error: str | None
) -> None:
    (tmp_path / "rare.csv").write_text(RARE)
    loaded = space(f"{{train: rare.csv, label: y, {data}}}")
    if error is None:
        preflight.check_data(loaded)
    else:
        (line,) = said(loaded)
        assert error in line


@pytest.mark.parametrize(
    ("metric", "refused"),
    [("valid-auc", True), ("valid-roc_auc", True), ("valid-logloss", False)],
)
def test_a_class_that_valid_lacks_is_a_warning_unless_the_metric_needs_it(
    space: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, metric: str, refused: bool
) -> None:
    (tmp_path / "rare.csv").write_text(RARE)
    loaded = space(
        "{train: rare.csv, label: y, valid: {time: day, last: 0.2}}",
        objective=f"{{metric: {metric}, goal: {'maximize' if refused else 'minimize'}}}",
    )
    note = "the valid split has no row of class `rare` of `y`"
    if refused:
        assert said(loaded) == [
            f"space.yaml:3:21: objective.metric: `{metric}` needs rows of every class, but "
            f"{note}; "
            "choose another metric or change data.valid"
        ]
    else:
        preflight.check_data(loaded)
        assert caplog.messages == [f"note: {note}"]


def test_a_label_of_integers_may_be_a_number(space: Any, tmp_path: Path) -> None:
    (tmp_path / "stars.csv").write_text("a,y\n" + "".join(f"{i},{i % 6}\n" for i in range(60)))
    data = "train: stars.csv, label: y, valid: 0.25"
    wanted = {"objective": "{metric: valid-rmse, goal: minimize}"}
    (line,) = said(space(f"{{{data}}}", **wanted))
    assert "to predict the label as a number, set `data.task: regression`" in line
    preflight.check_data(space(f"{{{data}, task: regression}}", **wanted))


def test_an_infinite_label_is_named_with_its_row(space: Any, tmp_path: Path) -> None:
    lines = ["age,plan,y", *(f"{i},a,{'inf' if i == 7 else i / 3}" for i in range(40))]
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    (line,) = said(space("{train: rows.csv, label: y, valid: 0.2}"))
    assert line.endswith("`y` is infinite in row 8 of data.train; remove such rows")
