"""The quickstart and the taxi space, with an earlier version and the current version: duration of
the command, and the value found.

*Before* is commit 3d17d2a, in a separate folder. Its default search is `tpe`, and its trainer
measures six metrics in every round. *Now* is this checkout, once with `search.algorithm: auto`,
which is `gp` in both spaces, and once with `tpe`. Both spaces run unchanged, with the seed that
they contain: 16 trials of the quickstart, and 24 trials of the taxi space, whose objective is an
AUC.

    TLC_FILES=... python -m benchmarks.spaces --repeats 3
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import taxi
from benchmarks.common import Goal, Measure, Median, Side, Task, Workload, ratio
from benchmarks.running import ROOT, script

BEFORE = "3d17d2a"
SPACES = {"quickstart": "search_spaces/quickstart.yaml", "taxi": "search_spaces/taxi_big_tip.yaml"}


def checkout(folder: Path) -> Path:
    """Write the files of the earlier version to a folder."""
    folder.mkdir()
    packed = subprocess.run(
        ["git", "archive", BEFORE], cwd=ROOT, check=True, capture_output=True
    ).stdout
    subprocess.run(["tar", "-x"], cwd=folder, input=packed, check=True)
    return folder


def sweep(space: str, folder: Path, where: Path, changes: Sequence[str]) -> dict[str, Any]:
    """Run a space file as a command, and return what `sweeps run --json` prints.

    Args:
        space: The file, relative to the checkout.
        folder: The root folder of the sweep.
        where: The checkout that runs it.
        changes: Changes of the file, as `--set` takes them.

    Raises:
        RuntimeError: The command failed.
    """
    command = [
        sys.executable,
        "-c",
        "from sweeps.cli import main; main()",
        "run",
        space,
        "--json",
        "--dir",
        str(folder),
    ]
    done = subprocess.run(
        [*command, *(f"--set={text}" for text in changes)],
        cwd=where,
        env={**os.environ, "PYTHONPATH": str(where)},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"{space} failed: {done.stderr[-2000:]}")
    outcome: dict[str, Any] = json.loads(done.stdout)
    return outcome


def run(task: Task, space: str, before: bool, overrides: tuple[str, ...]) -> dict[str, Any]:
    """Run a shipped space file with the earlier or the current version.

    Raise a RuntimeError if the command fails.
    """
    where = checkout(task.folder / "before") if before else ROOT
    began = time.time()
    outcome = sweep(SPACES[space], task.folder / "runs", where, overrides)
    whole = time.time() - began
    return {
        "whole": whole,
        "value": outcome["best"]["value"],
        "test": outcome["best"]["test"],
        "trials": outcome["trials"],
    }


def goals(median: Median) -> list[Goal]:
    return [
        Goal(
            f"{space}: seconds now over before",
            ratio(median(f"{space}-auto", "whole"), median(f"{space}-before", "whole")),
            1.0,
        )
        for space in SPACES
    ]


def sides() -> tuple[Side, ...]:
    """Return three sides for each space: before, now with `auto`, and now with `tpe`."""
    ways = {"before": (True, ()), "auto": (False, ()), "tpe": (False, ("search.algorithm=tpe",))}
    labels = {"before": "before, `tpe`", "auto": "now, `auto`", "tpe": "now, `tpe`"}
    return tuple(
        Side(
            f"{space}-{way}",
            f"{space}, {labels[way]}",
            lambda task, space=space, way=way: run(task, space, *ways[way]),
            trials,
        )
        for space, trials in (("quickstart", 16), ("taxi", 24))
        for way in ways
    )


WORKLOAD = Workload(
    name="spaces",
    title="The spaces that come with sweeps, before and now",
    text=(__doc__ or "").partition("\n\n    TLC_FILES")[0],
    sides=sides(),
    measures=(
        Measure("whole", "seconds of the command"),
        Measure("value", "value found", ""),
        Measure("test", "of the test split", ""),
    ),
    goals=goals,
    reference="",
    absent=taxi.absent,
    timeout=900,
)

if __name__ == "__main__":
    sys.exit(script(WORKLOAD))
