"""The value of a fold, and the mean over the folds."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest
import ray.train
from hypothesis import given
from hypothesis import strategies as st

from sweeps.core import loop_context
from sweeps.core.best_step import StepOrder
from sweeps.core.loop_context import BEST_FOLD_STEP
from sweeps.execution.worker.fold_runs import FoldRun, mean_of, result_of
from tests.execution.test_row_runs import Session, current

NUMBERS = st.floats(-100, 100)
STEPS = (1, 2, 3, 5, 8, 13, 21, 34)


@given(
    st.lists(st.fixed_dictionaries({"loss": NUMBERS, "other": NUMBERS}), min_size=1, max_size=8),
    st.booleans(),
)
def test_a_fold_has_the_metrics_of_its_best_step(reports: Any, minimize: Any) -> None:
    result = result_of(dict(zip(STEPS, reports, strict=False)), StepOrder("loss", minimize))
    assert result["loss"] == (min if minimize else max)(report["loss"] for report in reports)
    assert reports[STEPS.index(int(result[BEST_FOLD_STEP]))] == {
        "loss": result["loss"],
        "other": result["other"],
    }


def test_without_a_metric_the_last_step_counts() -> None:
    assert result_of({1: {"a": 1.0}, 4: {"a": 2.0}}, StepOrder(None, True)) == {
        "a": 2.0,
        BEST_FOLD_STEP: 4.0,
    }


def test_a_fold_without_a_value_keeps_its_last_step() -> None:
    result = result_of({1: {"a": math.nan}, 2: {"a": math.nan, "b": 1.0}}, StepOrder("a", True))
    assert math.isnan(result["a"]) and result["b"] == 1.0 and result[BEST_FOLD_STEP] == 2


@given(st.lists(NUMBERS, min_size=1, max_size=6))
def test_the_mean_is_over_all_folds(values: Any) -> None:
    mean = mean_of(
        [{"loss": value} | ({"first": 1.0} if not i else {}) for i, value in enumerate(values)]
    )
    assert mean["loss"] == math.fsum(values) / len(values)
    assert ("first" in mean) == (len(values) == 1)


@pytest.mark.parametrize("minimize", [True, False])
def test_the_copy_of_a_fold_has_the_best_model(
    minimize: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    session = Session()
    session.job = dataclasses.replace(session.job, goal="minimize" if minimize else "maximize")
    fold = FoldRun(session, session.cache, tmp_path / "copy")
    (tmp_path / "reported").mkdir()
    values = (2.0, 0.5, 1.0) if minimize else (0.5, 2.0, 1.0)

    def train(run: Any) -> None:
        for step, value in enumerate(values, 1):
            (tmp_path / "reported" / "model").write_text(str(step))
            loop_context.report_predictions([step])
            checkpoint = ray.train.Checkpoint.from_directory(str(tmp_path / "reported"))
            run.report({"loss": value}, checkpoint)

    fold.run(current(), train, "in fold 1 of 2")
    assert (tmp_path / "copy" / "model").read_text() == "2" and fold.model_step == 2
    assert fold.predictions is not None and fold.predictions.tolist() == [2]
    assert result_of(fold.metrics, session.job.order)["loss"] == values[1]
