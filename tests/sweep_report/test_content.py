"""The content of the report for every kind of result, and its Markdown."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from sweeps.core.result import SweepResult
from sweeps.core.trial import State
from sweeps.space.sections.search_models import Objective
from sweeps.study.objectives import Objectives
from sweeps.study.record_reader import Record
from sweeps.sweep_report import content as reports
from sweeps.sweep_report.content import report
from sweeps.sweep_report.report_sections import duration, value_cell
from tests.sweep_report.report_data import space_in, trial, trials

OBJECTIVES = Objectives((Objective("acc@5", "maximize"),))


@pytest.fixture
def space(tmp_path: Path) -> Any:
    return space_in(tmp_path)


def result(best: Any = None, **changed: Any) -> Any:
    trial_counts = {"completed": 1, "pruned": 1, "failed": 0}
    fields = {
        "sweep": "made-1",
        "dir": Path("/runs/made-1"),
        "trials": trial_counts,
        "best": None,
        "bundle": None,
        "checkpoint": None,
    }
    fields |= {"mlflow": {}, "fits": 3, "seconds": 61.5}
    if best is not None:
        shown = {
            "trial": best.id,
            "value": best.result.value,
            "test": 0.25,
            "params": best.params,
            "preprocessor": best.trial.chain,
        }
        fields |= {
            "best": {**shown, "scaling": best.trial.shape.scaling},
            "bundle": Path("/runs/made-1/bundle"),
        }
    return SweepResult(**{**fields, **changed})


def test_the_report_shows_the_winner_and_how_to_use_it(space: Any) -> None:
    winner, stopped = trial(space, 0, curve=(0.5, 0.75)), trial(space, 1, State.PRUNED, (0.9,))
    text, page = vars(report(Record(OBJECTIVES, (winner, stopped)), space, result(winner))).values()
    head, rest = text.split("\n## ", 1)
    assert "**acc@5 0.75**; on the test rows **0.25**: trial 0000 with" in head and "eta" in head
    assert "2 trials in 1 min 2 s: 1 completed, 1 pruned; 3 preprocessors fitted." in head
    assert "| best step | 2 of 2 |" in rest and "| fixed | 3 |" in rest
    rows = re.findall(r"^\| (\d{4}) \| ([\d.]+) \| (\w+)", rest, re.M)
    assert rows == [("0001", "0.9", "PRUNED"), ("0000", "0.75", "COMPLETE")]
    assert "stopped early never wins" in rest
    assert (
        "sweeps predict /runs/made-1/bundle rows.csv" in rest
        and 'load_bundle("/runs/made-1/bundle")' in rest
    )
    assert space.text.strip() in rest
    assert page.index("Trial 0000") < page.index("Best so far") < page.index("Use the bundle")


def test_nested_parameters_of_the_winner_are_rows_of_a_table(space: Any) -> None:
    winner = trial(space, 0)
    fields = result(winner)
    nested = {"optimizer": {"name": "sgd", "options": [{"momentum": 0.9}, None]}, "early": True}
    text = report(
        Record(OBJECTIVES, (winner,)),
        space,
        dataclasses.replace(fields, best={**fields.best, "params": nested}),
    ).markdown
    rows = (
        "| optimizer.name | sgd |\n| optimizer.options.0.momentum | 0.9 |\n"
        "| optimizer.options.1 | null |\n| early | true |"
    )
    assert rows in text and "{'" not in text


def test_a_sweep_of_many_trials_shows_the_best_ten(space: Any) -> None:
    states = trials(space, 40)
    values = [t.result.value for t in states]
    best = states[values.index(max(value for value in values if value is not None))]
    text = report(Record(OBJECTIVES, tuple(states)), space, result(best)).markdown
    assert "## The best 10 of 40 trials" in text
    assert len(re.findall(r"^\| \d{4} \|", text, re.M)) == 10


def test_the_report_lists_failed_trials(space: Any) -> None:
    failed = tuple(
        trial(space, n, State.FAIL, (), f"Traceback\n  ...\nValueError: bad <thing> {n}")
        for n in range(5)
    )
    text, page = vars(
        report(Record(OBJECTIVES, failed), space, result(notes=("five | failed",)))
    ).values()
    assert "**No trial has a value.**" in text and "five \\| failed" in text
    assert "- trial 0000: ValueError: bad &lt;thing\\> 0" in text and "- and 2 more" in text
    assert "Use the bundle" not in text and "/runs/made-1" in text
    assert "bad &lt;thing&gt; 0" in page


def test_the_report_marks_a_stopped_winner_and_an_early_end(space: Any) -> None:
    stopped = trial(space, 0, State.PRUNED, (0.5,))
    text = report(
        Record(OBJECTIVES, (stopped,)), space, result(stopped, reason="limits.timeout")
    ).markdown
    assert "1 of 1, at which the trial was stopped (asha at step 5)" in text
    assert "Ended early: limits.timeout." in text


def test_numbers_and_durations_are_formatted_briefly() -> None:
    assert [value_cell(v) for v in (0.24066907669653778, 1e-7, 8, True, None, "a_b|")] == [
        "0.240669",
        "1e-07",
        "8",
        "true",
        "null",
        "a_b\\|",
    ]
    assert [duration(s) for s in (0.4, 59.6, 3600)] == ["0 s", "1 min 0 s", "1 h 0 min"]


def test_a_failed_report_does_not_affect_the_sweep(
    tmp_path: Path, space: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(folder: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(reports, "read", fail)
    assert reports.write(tmp_path, space, result()) is None
    assert not list(tmp_path.glob("report.*"))
