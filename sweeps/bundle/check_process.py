"""Check a bundle in a new process.

The process imports only installed packages and the code in the bundle.

A sweep starts this process early. The process imports slow packages while the sweep waits for Ray,
so the check at the end does not wait for these imports.
"""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from sweeps.core.errors import BundleError

from . import integrity
from .check import SPEED

# Program of the process: import packages, wait for a line with the folder of the bundle, and check
# the bundle. Without a line, end.
_PROGRAM = """
import contextlib, importlib, json, os, runpy, sys
for name in sys.argv[1:]:
    with contextlib.suppress(Exception):
        importlib.import_module(name)
if line := sys.stdin.readline():
    bundle, *code = json.loads(line)
    os.environ["PYTHONPATH"] = os.pathsep.join(code)
    sys.path[:0] = code
    os.chdir(code[-1])
    sys.argv[1:] = [bundle]
    runpy.run_module("sweeps.bundle.check", run_name="__main__", alter_sys=True)
"""
# Niceness of the process. While a sweep starts, other processes have more urgent work.
_NICENESS = 5
# The process that `started_early` has started, until a check uses the process.
_early: subprocess.Popen[str] | None = None


def _start(packages: Sequence[str] = ()) -> subprocess.Popen[str]:
    """Start a process that checks one bundle.

    Args:
        packages: Names of packages that the process imports before it gets a bundle to check. A
            package that cannot be imported is skipped.
    """
    env = {
        **os.environ,
        "PYTHONDONTWRITEBYTECODE": "1",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "CUDA_VISIBLE_DEVICES": "",
    }
    env.pop("PYTHONPATH", None)
    imported = ["mlflow.pyfunc", "pandas", "pyarrow.parquet", *packages]
    # The process gets its own session, so that Ctrl-C in the terminal does not end the check. A
    # sweep that was stopped with Ctrl-C still finishes its export.
    return subprocess.Popen(
        [sys.executable, "-P", "-c", _PROGRAM, *imported],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )


def _end(process: subprocess.Popen[str]) -> None:
    """Kill a process if it has not ended."""
    process.kill()
    with contextlib.suppress(OSError):
        process.communicate()


@contextlib.contextmanager
def started_early(packages: Sequence[str] = ()) -> Iterator[None]:
    """Start a process now. The first call of `check` in the `with` block uses this process.

    Args:
        packages: See `_start`.
    """
    global _early
    process = _early = _start(packages)
    # The system may not know niceness, or the process may have ended.
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, process.pid, _NICENESS)
    try:
        yield
    finally:
        _early = None
        _end(process)


def check(bundle: Path, timeout: float) -> float | None:
    """Check a bundle in the process that was started early, or in a new one.

    Returns:
        The rows that the bundle predicts in a second; see `sweeps.bundle.check.check`.

    Raises:
        BundleError: The bundle is not good. The text is the output of the check.
        subprocess.TimeoutExpired: The check took longer than `timeout` seconds.
    """
    global _early
    process = _early or _start()
    _early = None
    paths = [bundle, bundle / integrity.SWEEPS_COPY, bundle / integrity.CODE_FOLDER]
    line = json.dumps([str(path) for path in paths]) + "\n"
    try:
        output, errors = process.communicate(line, timeout=timeout)
    finally:
        _end(process)
    if process.returncode != 0:
        raise BundleError(errors.strip() or f"exit code {process.returncode}")
    # The user's code may have printed other lines.
    speeds = [line for line in output.splitlines() if line.startswith(SPEED)]
    return float(speeds[-1].removeprefix(SPEED)) if speeds else None
