"""`sweeps` as a user types it, in a process of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

REPO = Path(__file__).parent.parent
_started: list[subprocess.Popen] = []


def command(*args: object, module: Sequence[object] = ("sweeps.cli",)) -> subprocess.Popen:
    """Start `sweeps ARGS`, the leader of a process group, with a Ray of its own if it needs one; `module` runs in its place."""
    env = {**os.environ, "PYTHONPATH": str(REPO), "COLUMNS": "120"}
    full = [sys.executable, "-m", *map(str, (*module, *args))]
    process = subprocess.Popen(full, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, start_new_session=True)
    _started.append(process)
    return process


def end_all() -> None:
    """End what a failed test has left running; Ray's processes die with theirs."""
    while _started:
        process = _started.pop()
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(20)


def space_of(tmp_path: Path, loop: str, *, extra: str = "", limits: str = "max_trials: 4", x: str = "{uniform: [0.0, 1.0]}") -> Path:
    """A space file around one of the loops of `tests.user_loops`, on data that scikit-learn ships."""
    file = tmp_path / "own.yaml"
    file.write_text(
        f"""\
name: own
trainer: {{loop: "tests.user_loops:{loop}", backend: none{extra}}}
data: {{train: "sklearn:iris", label: target, valid: 0.2}}
objective: {{metric: loss, goal: minimize}}
limits: {{{limits}}}
space:
  params: {{x: {x}, latch: {tmp_path}}}
"""
    )
    return file
