"""Let a training loop use MLflow as it is, and let what the loop logs go to the run of its trial.

The driver's MLflow tracker creates the run and writes its id to the file `MLFLOW_RUN` in the
trial's folder. Before the loop starts, or when the loop imports MLflow, this module sets the
environment variables in which MLflow looks for its server and its run. If a loop never imports
MLflow, nothing waits for the run.

If a function of MLflow that logs raises an exception, for example because the server is away, the
trial's log gets a line, and the loop continues.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import socket
import sys
import time
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

from sweeps.core.files.sweep_folder import MLFLOW_RUN
from sweeps.execution.isolation.import_hook import ImportHook

T = TypeVar("T")

URI = "MLFLOW_TRACKING_URI"
RUN_ID = "MLFLOW_RUN_ID"
EXPERIMENT_ID = "MLFLOW_EXPERIMENT_ID"
# Limits for calls of a server. By default, MLflow retries for minutes.
CALL_LIMITS = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0", "MLFLOW_HTTP_REQUEST_TIMEOUT": "5"}
# Seconds to wait for the tracker to create the run
RUN_WITHIN = 10.0
# The same if the tracker has created no run for an earlier trial
RUN_WITHIN_AFTER_MISS = 1.0
# Seconds between two looks for the run
LOOK_EVERY = 0.1
# After a call that failed and took longer than `SLOW_CALL` seconds, calls are skipped for
# `SKIP_SECONDS`.
SLOW_CALL = 1.0
SKIP_SECONDS = 60.0
# Seconds for a database server to accept a connection.
CONNECT_WITHIN = 5.0
PORTS = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}
# MLflow's functions that select a server or an experiment. If a loop selects others than those of
# the sweep, its next run is a run of its own.
SELECTING_FUNCTIONS = ("set_tracking_uri", "set_experiment")
# Beginnings of the names of MLflow's functions that write to a run.
LOGGING_PREFIXES = ("log_", "set_tag", "delete_tag", "set_terminated", "update_run")

_current: TrialRun | None = None


def prepare(tracking: str | None) -> None:
    """Prepare this process for loops that use MLflow.

    Args:
        tracking: The sweep's tracking URI; None if the sweep does not use MLflow.
    """
    for name, value in CALL_LIMITS.items():
        os.environ.setdefault(name, value)
    # The variables may name a run of the process that started the sweep.
    os.environ.pop(RUN_ID, None)
    if tracking is not None:
        os.environ[URI] = tracking
    if "mlflow" in sys.modules:
        _attach(sys.modules["mlflow"])
    else:
        sys.meta_path.insert(0, ImportHook("mlflow", _attach))


@contextlib.contextmanager
def log_to(run: TrialRun) -> Iterator[None]:
    """Let MLflow log to this run while the `with` block runs. Then end all active runs."""
    global _current
    _current = run
    try:
        if "mlflow" in sys.modules:
            run.connect()
        yield
    finally:
        mlflow = sys.modules.get("mlflow")
        while mlflow is not None and mlflow.active_run() is not None:
            mlflow.end_run()
        _current = None


class TrialRun:
    """The run of a trial in MLflow, to which one rank of the trial logs.

    Args:
        tracking: The sweep's tracking URI. None in a rerun or a refit, and if the sweep does not
            use MLflow. The loop then starts a run of its own.
        folder: The trial's folder.
        rank: Rank of this process.
    """

    # True if the latest trial in this process has found no run
    _missed = False

    def __init__(self, tracking: str | None, folder: str | Path, rank: int):
        self.tracking = tracking
        self.folder = Path(folder)
        self.rank = rank
        self._experiment: str | None = None
        self._skip_until = 0.0
        self._logged: set[str] = set()  # the lines that `log_line` has written

    def connect(self) -> None:
        """Set the environment variables in which MLflow finds its server and the trial's run."""
        os.environ.pop(RUN_ID, None)
        os.environ.pop(EXPERIMENT_ID, None)
        if self.tracking is None:
            database = self.folder.resolve() / f"mlflow-{self.rank}.db"
            os.environ.setdefault(URI, f"sqlite:///{database}")
            return
        mlflow = sys.modules["mlflow"]
        mlflow.set_tracking_uri(self.tracking)
        # An earlier trial, or the user's module, may have selected another experiment.
        mlflow.tracking.fluent._active_experiment_id = None
        if not _accepts_connections(self.tracking):
            self.log_line("MLflow's server does not answer; what the loop logs is lost")
            self._skip_until = time.monotonic() + SKIP_SECONDS
        elif (run := self._await_run()) is not None:
            os.environ[RUN_ID] = run["run_id"]
            os.environ[EXPERIMENT_ID] = self._experiment = run["experiment_id"]
        else:
            self.log_line(
                "MLflow has no run of this trial yet, so the loop logs to a run of its own"
            )

    def _await_run(self) -> dict[str, str] | None:
        """Wait for the tracker's file, and return the ids in it: `run_id` and `experiment_id`.

        Return None if the tracker does not write the file in time.
        """
        until = time.monotonic() + (RUN_WITHIN_AFTER_MISS if TrialRun._missed else RUN_WITHIN)
        file = self.folder / MLFLOW_RUN
        while not file.is_file():
            if time.monotonic() > until:
                TrialRun._missed = True
                return None
            time.sleep(LOOK_EVERY)
        TrialRun._missed = False
        run: dict[str, str] = json.loads(file.read_text())
        return run

    def _respect_selection(self) -> None:
        """If the loop has selected another server or experiment, do not name the trial's run."""
        if sys.modules["mlflow"].get_tracking_uri() != self.tracking:
            os.environ.pop(EXPERIMENT_ID, None)
        if os.environ.get(EXPERIMENT_ID) != self._experiment:
            os.environ.pop(RUN_ID, None)

    def call(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T | None:
        """Call a function of MLflow.

        If it fails, write a line to the trial's log and return None.
        """
        name = function.__name__
        if time.monotonic() < self._skip_until and name != "end_run":
            return None
        run_id = os.environ.get(RUN_ID)
        began = time.monotonic()
        try:
            result = function(*args, **kwargs)
            if name in SELECTING_FUNCTIONS:
                self._respect_selection()
            return result
        except Exception as e:
            if run_id is not None:  # A `start_run` that failed has removed the variable.
                os.environ[RUN_ID] = run_id
            lines = str(e).splitlines() or [""]
            self.log_line(f"mlflow.{name}: {type(e).__name__}: {lines[0]}")
            if time.monotonic() - began > SLOW_CALL:
                self._skip_until = time.monotonic() + SKIP_SECONDS
            return None

    def log_line(self, line: str) -> None:
        """Write a line to the trial's log, unless it was written before."""
        if line not in self._logged:
            self._logged.add(line)
            os.write(2, f"--- {line}\n".encode(errors="replace"))


class NoRun(contextlib.AbstractContextManager["NoRun"]):
    """Stand-in for a run that could not be started. Its context loses all that is logged."""

    info = SimpleNamespace(run_id="", experiment_id="", run_name="", artifact_uri="")

    def __exit__(self, *error: object) -> None:
        """Let errors pass."""


def _accepts_connections(tracking: str) -> bool:
    """Return whether a database server accepts a connection. MLflow itself would try for minutes.

    For a file and for a server that speaks HTTP, the result is True.
    """
    parts = urllib.parse.urlsplit(tracking)
    port = parts.port or PORTS.get(parts.scheme.partition("+")[0])
    if parts.scheme in ("http", "https") or not parts.hostname or port is None:
        return True
    try:
        socket.create_connection((parts.hostname, port), CONNECT_WITHIN).close()
    except OSError:
        return False
    return True


# ---- wrap MLflow's functions


def _attach(mlflow: Any) -> None:
    """Wrap the functions of MLflow that log, and connect MLflow to the run of the running trial."""
    fluent = mlflow.tracking.fluent
    mlflow.start_run = fluent.start_run = _wrap(fluent.start_run, NoRun)
    mlflow.end_run = fluent.end_run = _wrap(fluent.end_run)
    for owner in (mlflow, mlflow.MlflowClient):
        for name in dir(owner):
            if name.startswith(LOGGING_PREFIXES):
                setattr(owner, name, _wrap(getattr(owner, name)))
    for name in SELECTING_FUNCTIONS:
        setattr(mlflow, name, _wrap(getattr(mlflow, name)))
    if _current is not None:
        _current.connect()


def _wrap(
    function: Callable[..., T], make_default: Callable[[], T | NoRun] | None = None
) -> Callable[..., T | NoRun | None]:
    """Return a function that calls `function` by `TrialRun.call`, if a trial runs.

    Args:
        function: The function.
        make_default: Function that makes the value to return if `function` has failed. None to
            return None.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> T | NoRun | None:
        if _current is None:
            return function(*args, **kwargs)
        result = _current.call(function, *args, **kwargs)
        return make_default() if result is None and make_default is not None else result

    return call
