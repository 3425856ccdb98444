"""The result of a sweep at its end, and its notes in MLflow."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sweeps.controller.trial_commands import notes_about
from sweeps.core.best_step import Constraint
from sweeps.core.loop_context import UNREADABLE_LINE
from sweeps.core.result import SweepResult, count_trials
from sweeps.core.trial import Report, Result, State
from sweeps.runs import conclusion, resumption

FAILED = [("0003", "Traceback\nValueError: one"), ("0001", "Traceback\nValueError: two")]
BEST = {"trial": "0002", "value": 0.5, "test": None}


def result(**more: Any) -> SweepResult:
    known: dict[str, Any] = {
        "sweep": "s",
        "dir": Path("/s"),
        "trials": {"completed": 2, "failed": 1},
        "best": None,
        "bundle": None,
    }
    return SweepResult(
        **{**known, "checkpoint": None, "mlflow": {}, "fits": 1, "seconds": 2.5, **more}
    )


def test_trials_are_counted_by_how_they_ended() -> None:
    ended = [Result(s) for s in (State.COMPLETE, State.FAIL, State.PRUNED, State.COMPLETE)]
    assert count_trials([*ended, Result(State.COMPLETE, given=True)]) == {
        "completed": 2,
        "pruned": 1,
        "failed": 1,
    }
    assert count_trials([Result(State.RUNNING)])["interrupted"] == 1


def test_notes_say_what_failed_what_is_not_kept_and_what_is_still_to_do() -> None:
    constraints = (Constraint("latency", "<=", 10), Constraint("size", "<", 5))
    assert conclusion.result_notes({"failed": 0}, [], (), None, False) == ()
    assert (
        conclusion.result_notes({"failed": 0}, [], constraints, Result(State.COMPLETE, 1.0), False)
        == ()
    )
    breaks = Result(State.PRUNED, 1.0, feasible=False, metrics={"latency": 11.0, "size": 5.0})
    failed, broken, front = conclusion.result_notes(
        {"failed": 2}, FAILED, constraints, breaks, True
    )
    assert (
        failed == "2 trials failed; the error of the first one, trial 0003: ValueError: one (all "
        "tracebacks are in sweep.log)"
    )
    assert (
        broken
        == "no trial meets the constraints (latency <= 10, size < 5); the result is the best "
        "trial that violates them"
    )
    assert "--pareto" in front
    (never,) = conclusion.result_notes(
        {"failed": 0}, [], constraints, replace(breaks, metrics={"latency": 1.0}), False
    )
    assert never == f"{broken}; this trial never reported size"
    early = Result(State.PRUNED, 1.0, steps=1, reason="--minutes, unfinished")
    assert conclusion.result_notes({"failed": 0}, [], (), early, False) == (
        "no trial was completed; the result is one that ended early, after 1 step",
    )
    in_time = replace(early, reason="--minutes")
    assert conclusion.result_notes({"failed": 0}, [], (), in_time, False) == ()
    (one,) = conclusion.result_notes({"failed": 1}, FAILED[:1], (), None, False)
    assert (
        one == "1 trial failed; the error of trial 0003: ValueError: one (all tracebacks are in "
        "sweep.log)"
    )


def test_a_sweep_without_a_value_failed_unless_it_was_interrupted() -> None:
    error = conclusion.failure_of({"failed": 2}, FAILED, "interrupted", Path("/s"))
    assert str(error) == (
        "2 trials failed, and no trial has a value of the objective; the error of the first one, "
        "trial "
        "0003:\nTraceback\nValueError: one\n\nfolder  /s"
    )
    assert conclusion.failure_of({"failed": 0}, [], "interrupted", Path("/s")) is None
    timed_out = str(conclusion.failure_of({"failed": 0}, [], "limits.timeout", Path("/s")))
    assert timed_out.startswith(
        "no trial has a value of the objective (the sweep ended because of limits.timeout)\n"
        "\nfolder  /s\nto continue "
        "the sweep with a higher limit: "
    )
    assert timed_out.endswith("sweeps resume /s --set limits.timeout=...")
    out_of_minutes = str(conclusion.failure_of({"failed": 0}, [], "--minutes", Path("/s")))
    assert out_of_minutes.endswith("sweeps resume /s --minutes 5")
    assert "(no trial ran)" in str(conclusion.failure_of({"failed": 0}, [], None, Path("/s")))


@pytest.mark.parametrize(
    "said, changed, goes_on",
    [
        ({"best": BEST}, False, True),
        ({"best": BEST, "reason": "interrupted"}, False, True),
        (
            {"best": BEST, "reason": "limits.max_failures_in_a_row: 3 consecutive trials failed"},
            False,
            True,
        ),
        ({"best": BEST, "reason": "limits.timeout"}, False, False),
        ({"front": [BEST], "reason": "limits.timeout"}, False, False),
        ({"best": BEST, "reason": "limits.timeout"}, True, True),
        ({"best": None, "reason": "limits.timeout"}, False, True),
    ],
)
def test_what_a_resume_goes_on_with(said: Any, changed: bool, goes_on: bool) -> None:
    earlier = result(**said)
    assert resumption.has_work_left(earlier, 2, changed) == goes_on
    interrupted = earlier.reason == "interrupted"
    assert resumption.has_work_left(earlier, 0, changed) == interrupted


def test_notes_name_what_is_unusual_in_a_report() -> None:
    assert notes_about("0000", Report(1, {"loss": 0.5, "second": 1.0}, 0.0)) == {}
    metrics = {"loss": math.nan, "steps": 3.0, "seconds": 9.0, UNREADABLE_LINE: 1.0}
    notes = notes_about("0003", Report(4, metrics, 0.0))
    assert notes["steps"].startswith("the loop's metric `steps` is logged as `loop/steps`")
    assert notes["seconds"].endswith(", which objectives and constraints mean")
    assert notes[UNREADABLE_LINE].startswith("trial 0003 printed a report that cannot be read")
    assert "step 4" in notes[UNREADABLE_LINE] and len(notes) == 3
