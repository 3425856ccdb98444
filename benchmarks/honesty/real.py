"""Real sweeps on few rows of large tables, and the score of their models on many new rows.

They illustrate what `sweeps run` prints. The simulated sweeps judge it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.honesty.pools import GENERATED_ROWS
from benchmarks.tables import generated
from benchmarks.tables.catalog import tables
from benchmarks.tables.generated import LABEL
from benchmarks.tables.scores import evaluate
from benchmarks.tables.tools.sweeps_commands import columns

ROWS, NEW_ROWS = 1_000, 10_000


def rows_of(name: str, data: Path) -> tuple[pd.DataFrame, str, str]:
    """Return a table with enough rows, the name of its label, and its task."""
    table = tables()[name]
    if name in generated.RECIPES:
        recipe = replace(generated.RECIPES[name], rows=GENERATED_ROWS)
        return generated.table_of(recipe, zlib.crc32(name.encode())), LABEL, table.task
    return table.load(data), table.label, table.task


def measured(
    data: Path, work: Path, names: Sequence[str], count: int, minutes: float
) -> Iterator[dict[str, Any]]:
    """Run sweeps, and yield what each has printed, and the score of its model on new rows."""
    for number in range(count):
        name = names[number % len(names)]
        frame, label, task = rows_of(name, data)
        order = np.random.default_rng(number).permutation(len(frame))
        folder = work / f"{number:02d}"
        folder.mkdir(parents=True, exist_ok=True)
        frame.iloc[order[:ROWS]].to_csv(folder / "train.csv", index=False)
        new = frame.iloc[order[ROWS : ROWS + NEW_ROWS]]
        new.drop(columns=label).to_csv(folder / "new.csv", index=False)
        started = ["run", folder / "train.csv", "--label", label, "--minutes", minutes, "--json"]
        result = json.loads(_sweeps(*started, "--dir", folder / "runs"))
        out = folder / "out.csv"
        _sweeps("predict", result["bundle"], folder / "new.csv", "--output", out)
        predicted = columns(pd.read_csv(out), task)
        score, _ = evaluate(new[label].reset_index(drop=True), predicted, task)
        best = result["best"]
        average = best.get("ensemble")
        about = best["new_rows"]
        default = next((t for t in about.get("trials", ()) if "default" in t), {})
        yield {
            "table": name,
            "trials": sum(result["trials"].values()),
            "printed": average["value"] if average else best["value"],
            "new": score,
            "default": default.get("value"),
            "default_low": default.get("low"),
            **{key: about.get(key) for key in ("value", "low", "high", "unknown")},
        }


def _sweeps(*args: object) -> str:
    """Run a command of sweeps, and return what it prints."""
    command = [sys.executable, "-m", "sweeps.cli", *map(str, args)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout
