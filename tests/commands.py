"""Run `sweeps` as a user does: in a new process, or in this one."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import click.testing
import pytest

REPO = Path(__file__).parent.parent
_started: list[subprocess.Popen[str]] = []


@functools.cache
def mlflow_database() -> Path:
    """Return an empty MLflow database to copy. MLflow takes some seconds to create one."""
    from mlflow.tracking import MlflowClient

    file = Path(tempfile.mkdtemp(prefix="mlflow-")) / "mlflow.db"
    MlflowClient(f"sqlite:///{file}").search_experiments()
    return file


def command(
    *args: object, module: Sequence[object] = ("sweeps.cli",), new_database: bool = False
) -> subprocess.Popen[str]:
    """Start `sweeps ARGS` in a new process group. If the command needs Ray, it starts its own.

    Args:
        args: Arguments of the command line.
        module: A module to run instead of `sweeps`, and its arguments.
        new_database: True to let `sweeps run` create MLflow's SQLite database. By default, an empty
            database is copied, which is faster.
    """
    if args[:1] == ("run",) and not new_database:
        _copy_database(dict(pairwise(map(str, args))))
    env = {**os.environ, "PYTHONPATH": str(REPO), "COLUMNS": "120"}
    full = [sys.executable, "-m", *map(str, (*module, *args))]
    process = subprocess.Popen(
        full,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
        start_new_session=True,
    )
    _started.append(process)
    return process


def _copy_database(options: Mapping[str, str]) -> None:
    """Copy an empty database to the place where a sweep with these options writes to MLflow.

    Nothing is copied if this place is not an SQLite file, if the file exists, or if its folder
    cannot be written.
    """
    uri = options.get("--tracking-uri") or os.environ.get("MLFLOW_TRACKING_URI")
    if uri is None and "--dir" in options:
        uri = f"sqlite:///{options['--dir']}/mlflow.db"
    if (
        uri is None
        or not uri.startswith("sqlite:///")
        or (file := Path(uri.removeprefix("sqlite:///"))).exists()
    ):
        return
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(mlflow_database(), file)


def invoke(*args: object) -> click.testing.Result:
    """Run `sweeps ARGS` in this process, and return its exit code and output.

    This saves the time in which a new process imports pandas, MLflow and scikit-learn, and, with
    the fixture `clean_ray`, the time in which Ray starts. The test fails if the command raises an
    exception that the command line does not print as a one-line error.
    """
    from sweeps.cli import main

    result = click.testing.CliRunner().invoke(main, [str(arg) for arg in args], prog_name="sweeps")
    assert result.exception is None or isinstance(result.exception, SystemExit), repr(
        result.exception
    )
    return result


def check_in_this_process(patch: pytest.MonkeyPatch) -> None:
    """Check exported bundles in this process instead of a new process, which takes some seconds."""
    from sweeps.bundle import check, check_process

    patch.setattr(check_process, "check", lambda bundle, timeout: check.check(bundle))


def end_all() -> None:
    """Kill the commands that a failed test has left running.

    The processes of their Ray then end, too.
    """
    while _started:
        process = _started.pop()
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(20)


def space_of(
    tmp_path: Path,
    loop: str,
    *,
    extra: str = "",
    limits: str = "max_trials: 4",
    x: str = "{uniform: [0.0, 1.0]}",
    data: bool = True,
) -> Path:
    """Write a space file that uses a loop of `tests.user_loops` and a data set of scikit-learn.

    Args:
        tmp_path: The folder of the file, and of the latches.
        loop: The loop's name.
        extra: More keys of the trainer.
        limits: Keys of `limits`.
        x: The domain of the parameter.
        data: False for a sweep without data, which is faster. The loops read no data.
    """
    file = tmp_path / "own.yaml"
    section = 'data: {train: "sklearn:iris", label: target, valid: 0.2}\n' if data else ""
    file.write_text(
        f"""\
name: own
trainer: {{loop: "tests.user_loops:{loop}", backend: none{extra}}}
{section}objective: {{metric: loss, goal: minimize}}
limits: {{{limits}}}
space:
  params: {{x: {x}, latch: {tmp_path}}}
"""
    )
    return file
