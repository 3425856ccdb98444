"""Run `sweeps`, and kill it with SIGKILL at a chosen point: `python -m tests.faults.crashing POINT
ARGS...`.

A point is a function that is called where state is written. The process dies before, during or
after the call. The code of sweeps has no such points; this module patches the functions.
"""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple


class Point(NamedTuple):
    """Point at which the process dies.

    Attributes:
        what: Description for the report.
        target: The function, as `module:function`.
        how: `before`, `half` or `after`: when the process dies relative to the function's work.
        nth: Number of the call at which the process dies. Only calls for which `when` returns True
            are counted.
        when: Function of the call's arguments.
    """

    what: str
    target: str
    how: str  # before, half or after
    nth: int = 1
    when: Callable[..., bool] = lambda *args, **kwargs: True


def _pruned(controller: Any, end: Any) -> bool:
    return bool(end.state.value == "PRUNED")


def _paused(progress: Any, state: Any) -> bool:
    return state.paused_at is not None


def _logs_event(journal: Any, logs: list[Any]) -> bool:
    return "events.1" in str(logs)


def _trial_ended(hub: Any, event: Any) -> bool:
    return type(event).__name__ == "TrialEnded"


POINTS = {
    "folder": Point(
        "after the folder was created, before the study",
        "sweeps.runs.sweep_run:SweepRun.run",
        "before",
    ),
    "sampling": Point(
        "while the parameters of a trial were sampled",
        "sweeps.search.optuna_asker:suggest",
        "before",
        4,
    ),
    "journal": Point(
        "while a record of the journal was written",
        "sweeps.study.journal:Journal.append_logs",
        "half",
        1,
        _logs_event,
    ),
    "checkpoint": Point(
        "while a checkpoint was copied", "tests.user_loops:", "half"
    ),  # in a worker, which sees the driver's environment
    "rung": Point(
        "between the report at a rung and the decision",
        "sweeps.controller.decide:_decide_at_rung",
        "before",
    ),
    "verdict": Point(
        "between a decision to stop and the stop",
        "sweeps.controller.controller:SweepController._end",
        "before",
        1,
        _pruned,
    ),
    "end": Point(
        "between the end of a trial and its record",
        "sweeps.study.study_store:StudyStore.end",
        "before",
    ),
    "told": Point(
        "between the record of a trial's end and Optuna's record of it",
        "sweeps.study.study_store:StudyStore._tell",
        "before",
    ),
    "recorded": Point(
        "between the record of a trial and MLflow",
        "sweeps.tracking:TrackerHub.publish",
        "before",
        1,
        _trial_ended,
    ),
    "batch": Point(
        "while a batch was sent to MLflow", "mlflow.tracking:MlflowClient.log_batch", "before", 2
    ),
    "batched": Point(
        "after a batch was written, before the MLflow run ended",
        "mlflow.tracking:MlflowClient.set_terminated",
        "before",
    ),
    "ended": Point(
        "after an MLflow run ended, before the next one ended",
        "mlflow.tracking:MlflowClient.set_terminated",
        "after",
        1,
    ),
    "export": Point("when the export started", "sweeps.bundle.export:export_trial", "before"),
    "copy": Point(
        "while the winner's checkpoint was copied", "sweeps.bundle.write:copy_checkpoint", "half"
    ),
    "result": Point(
        "after everything else, before the result was written",
        "sweeps.sweep_report.content:write",
        "before",
    ),
}


# Points that only a sweep with a scheduler that pauses trials reaches.
PAUSE_POINTS = {
    "pause": Point(
        "between the record of a pause and the pause",
        "sweeps.controller.progress:SweepProgress.on_end",
        "before",
        2,
        _paused,
    ),
}


def die(driver: int | None = None) -> None:
    """Kill the driver, if it is another process, and then this process."""
    for pid in (driver, os.getpid()):
        if pid is not None:
            os.kill(pid, signal.SIGKILL)


def _half(name: str, args: tuple[Any, ...]) -> None:
    """Do half of the function's work."""
    if name.endswith("append_logs"):
        import json

        text = "".join(
            json.dumps(entry, separators=(",", ":")) + "\n" for entry in args[1]
        ).encode()
        with open(args[0]._file_path, "ab") as f:
            f.write(text[: len(text) // 2])
    else:
        work = args[1].with_name(f".{args[1].name}-half")
        work.mkdir()
        shutil.copy(next(Path(args[0]).iterdir()), work)


def arm(point: Point, driver: int | None = None) -> None:
    """Patch the function so that this process and the driver die at the point.

    Args:
        point: The point.
        driver: Process id of the driver; None if this process is the driver.
    """
    module, _, name = point.target.partition(":")
    owner: Any = importlib.import_module(module)
    *inside, last = name.split(".")
    for part in inside:
        owner = getattr(owner, part)
    whole, count = getattr(owner, last), 0

    def latched(*args: Any, **kwargs: Any) -> Any:
        nonlocal count
        count += point.when(*args, **kwargs)
        if count < point.nth:
            return whole(*args, **kwargs)
        if point.how == "half":
            _half(name, args)
        elif point.how == "after":
            whole(*args, **kwargs)
        die(driver)

    setattr(owner, last, latched)


class _Latched:
    """Stand-in for `subprocess` that also patches the tracker's process."""

    PIPE = subprocess.PIPE

    def __init__(self, name: str) -> None:
        self.name = name

    def Popen(self, command: list[str], **how: Any) -> subprocess.Popen[Any]:
        return subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.faults.crashing",
                "--tracker",
                self.name,
                str(os.getpid()),
            ],
            **how,
        )


def main() -> None:
    from sweeps.core.host import logging_setup

    logging_setup.set_environment()
    if sys.argv[1] == "--tracker":
        from sweeps.tracking.mlflow import tracker_process

        arm(POINTS[sys.argv[2]], int(sys.argv[3]))
        return tracker_process.main()
    name = sys.argv[1]
    if name == "checkpoint":
        os.environ["DIE_IN_A_COPY"] = str(os.getpid())
    elif name in POINTS and POINTS[name].target.startswith("mlflow"):
        from sweeps.tracking.mlflow import tracker_process

        module: Any = tracker_process
        module.subprocess = _Latched(name)
    else:
        arm((POINTS | PAUSE_POINTS)[name])
    from sweeps import cli

    sys.argv = ["sweeps", *sys.argv[2:]]
    cli.main()


if __name__ == "__main__":
    main()
