"""Time from a command to the first step of the first trial: `sweeps run`, and a script with
`ray.init` and a bare `Tuner.fit`.

Both are commands, and a process that has loaded nothing starts them. Both start their own Ray with
the same settings: local, no dashboard, and no output from workers. The first trial notes the time
in its first line, before its first report. The script's trial is one function that reports once;
Tune's loggers are off. The sweep has a loop of the same two lines, and reads eight rows of data
from a function. *Real* is a sweep as users start it: XGBoost on scikit-learn's breast cancer data
with a `StandardScaler`. It notes the time when its loop begins.

    python -m benchmarks.cold_start --repeats 1
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.common import Goal, Measure, Median, Side, Task, Workload, ratio
from benchmarks.running import ROOT, script

LEAST = """\
name: cold
trainer: {{loop: "benchmarks.probe_loops:first_step", backend: none}}
data: {{train: "benchmarks.probe_loops:one_row", label: y, valid: 0.5}}
objective: {{metric: x, goal: minimize}}
limits: {{max_trials: 1}}
space:
  params: {{mark: "{mark}"}}
"""
REAL = """\
name: cold
trainer: {{loop: "benchmarks.probe_loops:timed", backend: none}}
data: {{train: "sklearn:breast_cancer", label: target, valid: 0.2}}
objective: {{metric: valid-logloss, goal: minimize}}
limits: {{max_trials: 1}}
space:
  preprocessor: [StandardScaler]
  params: {{num_boost_round: 5, loop: "sweeps.trainers.xgboost:train_func", \
times: "{mark}.ended", mark: "{mark}"}}
"""


def timed(command: list[str], mark: Path) -> dict[str, Any]:
    """Run a command until it ends.

    Returns:
        `first`: seconds from the command's start to the mark. `whole`: seconds until the command's
            end.

    Raises:
        RuntimeError: The command failed.
    """
    began = time.time()
    done = subprocess.run(
        command, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, timeout=180
    )
    whole = time.time() - began
    if done.returncode:
        raise RuntimeError(f"{command} failed: {done.stderr[-2000:]}")
    return {"first": float(mark.read_text()) - began, "whole": whole}


def ours(task: Task, space: str) -> dict[str, Any]:
    mark, file = task.folder / "mark", task.folder / "cold.yaml"
    file.write_text(space.format(mark=mark))
    command = [sys.executable, "-m", "sweeps.cli"] if shutil.which("sweeps") is None else ["sweeps"]
    return timed([*command, "run", str(file), "--dir", str(task.folder / "runs"), "--quiet"], mark)


def bare(task: Task) -> dict[str, Any]:
    mark = task.folder / "mark"
    return timed(
        [
            sys.executable,
            str(ROOT / "benchmarks" / "bare_tuner.py"),
            str(mark),
            str(task.folder / "tune"),
        ],
        mark,
    )


def goals(median: Median) -> list[Goal]:
    return [
        Goal(
            "our time to the first step over the script's",
            ratio(median("ours", "first"), median("bare", "first")),
            1.0,
        )
    ]


WORKLOAD = Workload(
    name="cold_start",
    title="Cold start: from the command to the first step",
    text=(__doc__ or "").partition("\n\n    python")[0],
    sides=(
        Side("ours", "sweeps run", lambda task: ours(task, LEAST), 1),
        Side("bare", "`ray.init` and a bare `Tuner.fit`", bare, 1),
        Side("real", "sweeps run, XGBoost with a preprocessor", lambda task: ours(task, REAL), 1),
    ),
    measures=(Measure("first", "to the first step"), Measure("whole", "to the command's end")),
    goals=goals,
    timeout=300,
)

if __name__ == "__main__":
    sys.exit(script(WORKLOAD))
