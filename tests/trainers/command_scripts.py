"""Scripts for the trainer `command`, and a loop that runs them without Ray."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sweeps.core.loop_context import Current
from sweeps.testing.fake_session import LoopRun, run_loop
from sweeps.trainers.command import train_func

CALLS = """
import json, os, sys
from pathlib import Path
import sweeps

lr, steps = float(sys.argv[1]), int(sys.argv[2])
folder = Path(os.environ["SWEEPS_CHECKPOINT_DIR"])
file = folder / "state.json"
step, loss = json.loads(file.read_text()) if file.exists() else (0, 1.0)
while step < steps:
    step, loss = step + 1, loss * (1 - lr)
    file.write_text(json.dumps([step, loss]))
    sweeps.report({"loss": loss}, checkpoint=folder)
"""


# The same training with JSON lines. Two files must always have the same step.
LINES = """
import json, sys, time
from pathlib import Path

lr, steps, folder = float(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
step, loss = 0, 1.0
while step < steps:
    time.sleep(0.05)  # a step of training
    step, loss = step + 1, loss * (1 - lr)
    (folder / "state.json").write_text(json.dumps([step, loss]))
    (folder / "again.json").write_text(json.dumps([step, loss]))
    print(json.dumps({"loss": loss, "epoch": step}))
"""


COMMAND = ["python", "train.py", "{params.lr}", "{params.steps}", "{checkpoint_dir}"]


PARAMS = {"lr": 0.5, "steps": 4}


LOSSES = [0.5, 0.25, 0.125, 0.0625]


def about(folder: Path, *words: str, **changed: Any) -> Current:
    """Return what the loop knows of a trial whose files are in `folder`. `words` is the command."""
    options = {"command": list(words or COMMAND), "grace_seconds": 5, "resume": True} | changed.pop(
        "options", {}
    )
    given: dict[str, Any] = {
        "metric": "loss",
        "goal": "minimize",
        "asked": ("loss",),
        "roots": (folder,),
        "_folder": folder / "trial" / "files",
    }
    given |= {
        "trial": "0007",
        "seed": 3,
        "label": None,
        "task": None,
        "classes": None,
        "max_t": None,
        "threads": 1,
        "check": None,
    }
    return Current(**given | {"options": options} | changed)


def run(
    folder: Path,
    script: str,
    *words: str,
    name: str = "train.py",
    params: dict[str, Any] | None = None,
    shards: Any = None,
    **more: Any,
) -> LoopRun:
    """Run a script in this process's loop.

    Arguments of `run_loop` are passed on, and all others change the `Current`.
    """
    (folder / name).write_text(script)
    keep = folder / "kept"
    keep.mkdir(exist_ok=True)
    ours = {key: more.pop(key) for key in ("resume", "stop_at") if key in more}
    return run_loop(
        train_func,
        PARAMS if params is None else params,
        about(folder, *words, **more),
        shards or {},
        keep,
        **ours,
    )


def losses(run: LoopRun) -> list[float]:
    return [metrics["loss"] for metrics in run.metrics]


def record(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "trial" / "files" / "command.json").read_text())
    return content
