"""Rules between the trainer, the label, the weights and the space."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sweeps.core.errors import InputError
from sweeps.space import load
from sweeps.space.parse.load_space import Recorded
from tests.space.test_load import data, top


@pytest.mark.parametrize(
    ("trainer", "place"),
    [
        ('"xgboost:XGBClassifier"', "1:10: trainer: `xgboost:XGBClassifier`"),
        (
            '{loop: "xgboost:XGBClassifier", backend: torch}',
            "1:17: trainer.loop: `xgboost:XGBClassifier`",
        ),
        ('{loop: "sklearn.svm:SVC"}', "1:17: trainer.loop: `sklearn.svm:SVC`"),
    ],
)
def test_an_estimator_is_no_loop(lines: Any, trainer: str, place: str) -> None:
    (line,) = lines(top(trainer=trainer))
    assert line.startswith(
        f"{place} is an estimator, not a training loop; write trainer: {{estimator: "
    )


def test_a_module_of_the_users_may_have_a_librarys_name(write: Any) -> None:
    path = write(top(trainer="{loop: catboost:train}"))
    Path("catboost.py").write_text("def train(config): ...\n")
    assert load(path).trainer.loop == "catboost:train"


def test_a_space_is_required(lines: Any, write: Any) -> None:
    for space, place in ((None, "1:1"), ("", "4:1"), ("{}", "4:1")):
        (line,) = lines(top(space=space))
        assert line.startswith(f"{place}: space: ")
    assert load(
        write(top(data="{train: {grid: [a.csv, b.csv]}, valid: 0.2, label: y}", space=None))
    ).dimensions


def test_a_trainer_may_need_a_label(lines: Any, write: Any) -> None:
    unlabeled = "{train: d.csv, valid: 0.2}"
    for trainer in ("xgboost", "torch_tabular"):
        (line,) = lines(top(trainer=trainer, data=unlabeled))
        assert line.startswith("2:1: data.label: ") and f"`{trainer}`" in line
    path = write(top(trainer="{loop: own_loop:train}", data=unlabeled))
    Path("own_loop.py").write_text("raise SystemExit('imported')\ndef train(config): ...\n")
    assert load(path).data.label is None
    path = write(top(trainer="{loop: needy_loop:train}", data=unlabeled))
    Path("needy_loop.py").write_text(
        "raise SystemExit('imported')\nTRAINER = {'needs_label': True}\ndef train(config): ...\n"
    )
    with pytest.raises(InputError) as e:
        load(path)
    assert [p.text.partition(":")[0] for p in e.value.problems] == ["data.label"]
    assert load(path, recorded=Recorded("tpe")).data.label is None


def test_rows_without_a_label_are_left_out_only_beside_a_label(lines: Any) -> None:
    (line,) = lines(
        top(
            trainer="{loop: json:load}", data="{train: d.csv, valid: 0.2, drop_missing_label: true}"
        )
    )
    assert line.startswith("2:34: data.drop_missing_label: ") and "`data.label`" in line
    (line,) = lines(data("valid: 0.2, drop_missing_label: yes"))
    assert line.startswith("2:54: data.drop_missing_label: must be true or false, got yes")


def test_weights_are_refused_for_a_trainer_that_does_not_use_them(write: Any, lines: Any) -> None:
    for key in ("weight: w", "weight: {grid: [w, null]}", "class_weight: balanced"):
        given = top(
            data="{train: d.csv, label: y, valid: 0.2, " + key + "}",
            space="{params: {a: {grid: [1]}}}",
            trainer="TRAINER",
        )
        path = write(given.replace("TRAINER", "own_trainer"))
        Path("own_trainer.py").write_text(
            "TRAINER = {'metrics': {'binary': ['logloss']}}\ndef train_func(config): ...\n"
        )
        with pytest.raises(InputError) as e:
            load(path)
        (problem,) = e.value.problems
        assert problem.text.startswith(
            f"data.{key.partition(':')[0]}: `own_trainer:train_func` does not use weights; "
        ), problem
        assert (
            "xgboost" in problem.text
            and "lightgbm" in problem.text
            and '"weights": True' in problem.text
        )
        Path("own_trainer.py").write_text(
            "TRAINER = {'weights': True}\ndef train_func(config): ...\n"
        )
        assert load(path).data.weight_columns == (
            ("w",) if "w" in key.replace("[", " ").replace(",", " ").split() else ()
        )
        Path("own_loop.py").write_text("def train(config): ...\n")
        assert load(write(given.replace("TRAINER", '{loop: "own_loop:train"}'))), (
            "a loop of the user gets the weights"
        )


def test_balanced_classes_need_a_label_of_a_classification(lines: Any) -> None:
    (line,) = lines(
        top(trainer="{loop: json:load}", data="{train: d.csv, valid: 0.2, class_weight: balanced}")
    )
    assert line == "2:34: data.class_weight: needs `data.label`"
    for value in ("balanced", "{choice: [balanced, null]}"):
        line = "".join(
            lines(data(f"valid: 0.2, label: y, task: regression, class_weight: {value}"))
        )
        assert "data.class_weight: is only for a classification" in line
