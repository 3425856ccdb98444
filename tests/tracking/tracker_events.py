"""Events of a sweep that was never run, for tests of trackers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from sweeps.core.resources import Shape
from sweeps.core.result import SweepResult
from sweeps.core.trial import Report, Result, State, Trial
from sweeps.space import Space
from sweeps.study.events import (
    ArtifactSaved,
    Event,
    History,
    SweepEnded,
    SweepStarted,
    TrialEnded,
    TrialReported,
    TrialStarted,
)
from tests.sweep_report.report_data import space_in

START = 1_700_000_000.0


def trial(number: int) -> Trial:
    shape = Shape(2, (("CPU", 1.0),))
    return Trial(
        number,
        {"eta": 0.1, "nested": {"a": [1, 2]}},
        (),
        shape,
        7,
        {"params.eta": 0.1, "preprocessor": "Std"},
    )


def reports(n: int, start: int = 1) -> tuple[Report, ...]:
    return tuple(
        Report(s, {"loss": 1 / s, "odd": math.nan}, START + s) for s in range(start, start + n)
    )


def sweep_started(
    folder: Path, space: Space | None = None, history: History | None = None
) -> SweepStarted:
    return SweepStarted(
        START, space or space_in(folder), folder / "sweep-1", "abc", history=history
    )


def begin(trial: Trial, time: float = START) -> TrialStarted:
    return TrialStarted(time, trial.number, trial)


def report(number: int, reports: tuple[Report, ...]) -> TrialReported:
    return TrialReported(reports[-1].time, number, reports)


def end(number: int, result: Result, time: float = START + 100) -> TrialEnded:
    return TrialEnded(time, number, result)


def sweep_result(folder: Path, **more: Any) -> SweepResult:
    best = {"trial": "0000", "value": 0.25, "test": None}
    known: dict[str, Any] = {
        "sweep": "sweep-1",
        "dir": folder / "sweep-1",
        "trials": {"completed": 1, "pruned": 1, "failed": 1},
    }
    known |= {
        "best": best,
        "bundle": None,
        "checkpoint": None,
        "mlflow": {},
        "fits": 1,
        "seconds": 200.0,
    }
    return SweepResult(**{**known, **more})


def sweep_events(folder: Path) -> list[Event]:
    """Return the events of a sweep with four trials: one completes, one is pruned, one fails and
    one is interrupted.
    """
    events: list[Event] = [sweep_started(folder), ArtifactSaved(START, "environment.json", "[]\n")]
    for number, state in enumerate((State.COMPLETE, State.PRUNED, State.FAIL, State.RUNNING)):
        error = "Traceback: no" if state is State.FAIL else None
        final = {"valid-auc@5": 0.75} if state is State.COMPLETE else {}
        result = Result(state, 0.25, 3, 3, None, error, 1.5, final=final)
        events += [begin(trial(number)), report(number, reports(3)), end(number, result)]
    return [*events, SweepEnded(START + 200, sweep_result(folder), trial(0))]
