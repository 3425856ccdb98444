"""The positive class of a label."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from sweeps.core.errors import InputError
from sweeps.data.checks.label_checks import infer_task, order_classes
from sweeps.data.load_data import load_splits, summarize_source
from sweeps.data.summary.data_summary import DataSummary
from sweeps.data.summary.summary_text import label_text
from sweeps.data.summary.summary_warnings import warnings
from sweeps.space import TrainerSpec
from sweeps.space.sections.data_models import DataSpec, Split


def column(values: list[Any]) -> dict[str, pa.ChunkedArray]:
    kind = pa.large_string() if isinstance(values[0], str) else None
    return {"train": pa.chunked_array([pa.array(values, kind)])}


def last(values: list[Any], task: str | None, positive: Any) -> tuple[Any, Any]:
    data: Any = SimpleNamespace(positive=positive)
    inferred, classes = infer_task("left", task, column(values))
    return inferred, order_classes(data, inferred, classes)


@pytest.mark.parametrize(
    ("values", "positive", "classes"),
    [
        (["ja", "nein"], None, ("ja", "nein")),
        (["ja", "nein"], "ja", ("nein", "ja")),
        (["churned", "stayed"], "churned", ("stayed", "churned")),
        ([0, 1], 0, (1, 0)),
        ([0, 1], "0", (1, 0)),
        ([0.0, 1.0], 0, (1.0, 0.0)),
        ([False, True], False, (True, False)),
        ([False, True], "true", (False, True)),
        (["None", "Some"], None, ("None", "Some")),
        (["1", "2"], 1, ("2", "1")),
        ([3, 7], 7, (3, 7)),
    ],
)
def test_the_positive_class_is_the_last(
    values: Any, positive: bool | int | str | None, classes: Any
) -> None:
    assert last(values, None, positive) == ("binary", classes)


@pytest.mark.parametrize(
    ("values", "task", "positive", "has"),
    [
        (["ja", "nein"], None, "no", "the label is binary with the classes 'ja', 'nein'"),
        (["a", "b", "c"], None, "a", "the label is multiclass with the classes 'a', 'b', 'c'"),
        ([0.5, 1.5, 2.5], None, 1.5, "the label is regression without classes"),
        ([0, 1], "regression", 1, "the label is regression without classes"),
    ],
)
def test_a_class_that_is_not_there_is_refused_in_one_line(
    values: Any, task: str | None, positive: float | str, has: str
) -> None:
    with pytest.raises(InputError) as error:
        last(values, task, positive)
    (problem,) = error.value.problems
    assert problem.place == "data.positive" and problem.text.endswith(has)
    assert f"got {positive!r}" in problem.text


TABLE = pa.table(
    {
        "x": [float(i) for i in range(40)],
        "left": pa.array(["ja", "nein"] * 20, pa.large_string()),
    }
)


def spec(tmp_path: Path, positive: Any) -> DataSpec:
    split = Split("fraction", fraction=0.25)
    return DataSpec("d.csv", "left", split, None, None, tmp_path, positive=positive)


@pytest.mark.parametrize(("positive", "code"), [(None, 0), ("ja", 1)])
def test_the_positive_class_has_the_code_1_and_is_in_the_notes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, positive: str | None, code: int
) -> None:
    monkeypatch.setattr("sweeps.data.load_data.read_source", lambda *_: TABLE)
    splits = load_splits(spec(tmp_path, positive), 1)
    rows = {row["x"]: row["left"] for row in splits.train.to_pylist()}
    assert {rows[x] for x in rows if x % 2 == 0} == {code}, "the code of `ja`"
    assert splits.notes == (
        f"the positive class of `left` is {positive or 'nein'!r} (data.positive)",
    )


def summary_of(tmp_path: Path, positive: Any) -> DataSummary:
    return summarize_source(spec(tmp_path, positive), 0, lambda *_: TABLE)


def warned(summary: Any, data: DataSpec, metric: str, params: dict[str, Any]) -> list[str]:
    space: Any = SimpleNamespace(
        data=data,
        variants=(data,),
        sections={"params": params},
        trainers={"": TrainerSpec(None, "m:f", "none", None)},
        objectives=(SimpleNamespace(metric=metric),),
        constraints=(),
    )
    return [each.text for each in warnings(summary, space) if each.key == "data.positive"]


def test_the_summary_names_the_positive_class(tmp_path: Path) -> None:
    assert label_text(summary_of(tmp_path, None)) == "left ja 50 %, nein 50 % (positive: nein)"
    assert label_text(summary_of(tmp_path, "ja")).endswith("(positive: ja)")


@pytest.mark.parametrize(
    ("metric", "params", "word"),
    [
        ("valid-f1", {}, "f1"),
        ("valid-aucpr", {}, "aucpr"),
        ("valid-auc", {"scale_pos_weight": 3}, "scale_pos_weight"),
        ("valid-auc", {"monotone_constraints": {"x": 1}}, "monotone_constraints"),
        ("valid-auc", {"eta": 0.1}, None),
        ("valid-f1_macro", {}, None),
    ],
)
def test_a_warning_names_the_setting_that_depends_on_the_positive_class(
    tmp_path: Path, metric: str, params: Any, word: str | None
) -> None:
    warnings = warned(summary_of(tmp_path, None), spec(tmp_path, None), metric, params)
    assert len(warnings) == (word is not None)
    if word is not None:
        assert "positive class is nein" in warnings[0] and f"`{word}`" in warnings[0]
        assert "data.positive: ja" in warnings[0]
    assert warned(summary_of(tmp_path, "ja"), spec(tmp_path, "ja"), metric, params) == []
