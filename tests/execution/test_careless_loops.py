"""Errors of a loop name the line of the loop, and long texts are cut."""

from __future__ import annotations

import math
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sweeps.execution.messages import Job, Ranks
from sweeps.execution.worker import training_loop, trial_logs
from sweeps.execution.worker.metric_values import find_unbeatable, numbers_in
from sweeps.execution.worker.training_loop import traceback_text
from sweeps.execution.worker.trial_session import TrialSession
from sweeps.trainers._script_run import ScriptFailed

LINE = "session.report(metrics, None)"


def session(**objectives: str) -> TrialSession:
    metric, goal = next(iter(objectives.items()))
    job = Job(
        "s",
        {},
        (),
        metric,
        goal,
        None,
        frozenset(),
        asked=tuple(objectives),
        goals=objectives,
    )
    assignment = SimpleNamespace(
        trial=SimpleNamespace(id="0000"),
        ranks=Ranks(),
        folder="",
        checkpoint=None,
        may_change_size=False,
    )
    data = SimpleNamespace(shards={}, opened={})
    return TrialSession(None, job, assignment, data)  # type: ignore[arg-type]


def report(session: TrialSession, metrics: object) -> None:
    session.report(metrics, None)  # type: ignore[arg-type]


def said(session: TrialSession, metrics: object) -> str:
    """The error's text, as it goes on record."""
    with pytest.raises(Exception) as raised:
        report(session, metrics)
    return traceback_text(raised.value)


@pytest.mark.parametrize(
    ("goal", "value", "fails"),
    [
        ("minimize", -math.inf, True),
        ("minimize", math.inf, False),
        ("maximize", math.inf, True),
        ("maximize", -math.inf, False),
        ("minimize", math.nan, False),
    ],
)
def test_r14_an_infinitely_good_value_fails_the_trial(goal: str, value: Any, fails: bool) -> Any:
    assert find_unbeatable({"loss": value}, {"loss": goal}) == ("loss" if fails else None)
    one, other = session(loss=goal), session(auc="maximize", loss=goal)
    if not fails:
        report(one, {"loss": value})
        return report(other, {"auc": 0.5, "loss": value})
    assert "`loss` is " in said(one, {"loss": value}) and "step 1" in said(
        session(loss=goal), {"loss": value}
    )
    assert "`loss` is " in said(other, {"auc": 0.5, "loss": value})


@pytest.mark.parametrize("metrics", [[1], None, "loss", 3.0, [("loss", 1.0)]])
def test_r16_report_that_is_no_dict_is_refused_at_its_line(metrics: Any) -> None:
    lines = said(session(loss="minimize"), metrics).splitlines()
    assert (
        lines[-1].startswith("TypeError: `report` takes a dict of metrics")
        and repr(metrics) in lines[-1]
    )
    assert __file__ in "".join(lines[-4:-1]) and "trial_session.py" not in "".join(lines)


@pytest.mark.parametrize(
    "value", [10**400, 10**5000, "0.5 " * 1000, object()], ids=["large", "huge", "text", "object"]
)
def test_r16_value_that_is_no_number_is_refused_at_its_line(value: Any) -> None:
    lines = said(session(loss="minimize"), {"loss": value}).splitlines()
    assert "`loss` must be a number" in lines[-1] and "step 1" in lines[-1] and len(lines[-1]) < 250
    assert __file__ in "".join(lines[-4:-1]) and "trial_session.py" not in "".join(lines)
    assert numbers_in({"other": value, "x": 1}) == {"x": 1.0}


def test_an_error_that_a_trainer_explains_has_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def loop() -> None:
        raise ScriptFailed("`train.py` ended with exit code 1")

    with pytest.raises(ScriptFailed) as raised:
        loop()
    assert traceback_text(raised.value).startswith("Traceback"), (
        "a frame of the user's code is kept"
    )
    monkeypatch.setattr(training_loop, "PACKAGE", str(Path(__file__).parent))
    assert traceback_text(raised.value) == "ScriptFailed: `train.py` ended with exit code 1"


def test_r5_a_password_in_a_librarys_message_is_masked() -> None:
    text = traceback_text(RuntimeError("API request to http://me:secret@host/api failed"))
    assert "secret" not in text and "http://me:***@host/api" in text


def test_r15_a_log_keeps_its_first_and_its_last_part(tmp_path: Path) -> None:
    log = trial_logs.log_of(tmp_path, 0)
    with trial_logs.redirect_output(log, "attempt 1"):
        for part in range(40):
            os.write(1, f"part {part}\n".encode() + b"x" * 2**20 + b"\n")
    text = log.read_bytes()
    assert (
        len(text) <= trial_logs.MOST_BYTES and text.startswith(b"--- 20") and text.endswith(b"x\n")
    )
    assert (
        b"part 0\n" in text
        and b"part 39\n" in text
        and b"part 20\n" not in text
        and text.count(b"was left out here") == 1
    )
    with trial_logs.redirect_output(log, "attempt 2"):
        os.write(1, b"the second\n" + b"y" * 12 * 2**20 + b"\nthe end\n")
    text = log.read_bytes()
    assert (
        len(text) <= trial_logs.MOST_BYTES
        and text.startswith(b"--- 20")
        and text.endswith(b"the end\n")
        and b"part 0\n" in text
    )
