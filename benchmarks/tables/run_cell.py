"""Run one tool on one table: write the rows as CSV files, run its two commands, and score its
predictions.
"""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pandas as pd

from benchmarks.running import ROOT, machine
from benchmarks.tables.catalog import Table
from benchmarks.tables.cells import Cell
from benchmarks.tables.peers import TOOLS, Tool, versions
from benchmarks.tables.scores import evaluate
from benchmarks.tables.tools.job import Job

# A tool that needs more than this many times its budget, plus the grace, is killed.
TIMES, GRACE = 3.0, 300.0


@dataclass(frozen=True)
class Measured:
    """The times and the peak memory of a command, and why it failed; "" if it did not."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int
    error: str


@dataclass(frozen=True)
class Options:
    """Settings that all cells of a run share.

    Attributes:
        data: Folder with the files of tables.
        peers: Folder with the environments of the peers.
        overrides: Arguments of `--set` for `sweeps run`.
        name: Name under which the results of sweeps are kept.
    """

    data: Path
    peers: Path | None
    overrides: tuple[str, ...] = ()
    name: str = "sweeps"

    def tool(self, name: str) -> Tool:
        """Return the tool of a cell."""
        return TOOLS["sweeps"] if name == self.name else TOOLS[name]


def write_split(table: Table, data: Path, seed: int, folder: Path) -> tuple[int, int]:
    """Write `train.csv`, `test.csv` without the label, and `labels.csv`.

    Return the numbers of rows and of columns without the label.
    """
    train, test = table.split(data, seed)
    train.to_csv(folder / "train.csv", index=False)
    test.drop(columns=table.label).to_csv(folder / "test.csv", index=False)
    test[[table.label]].to_csv(folder / "labels.csv", index=False)
    return len(train) + len(test), len(train.columns) - 1


def run_cell(cell: Cell, table: Table, options: Options, split: Path, work: Path) -> Cell:
    """Run the tool of a cell, and return the cell with its results, or with the reason why the tool
    failed.

    Args:
        cell: Cell without results.
        table: Table of the cell.
        options: Options that all cells have in common.
        split: Folder with the files of `write_split`.
        work: Empty folder for all that the tool writes.
    """
    tool = options.tool(cell.tool)
    about = machine()
    releases = versions(tool, options.peers)
    if tool.name == "sweeps":
        releases = {"sweeps": about.get("commit", "unknown"), **releases}
    cell = replace(
        cell,
        versions=releases,
        machine=f"{about['cores']} cores, {about.get('processor', 'unknown processor')}",
        load=round(os.getloadavg()[0], 2),
        date=datetime.date.today().isoformat(),
    )
    job = Job(
        train=str(split / "train.csv"),
        test=str(split / "test.csv"),
        label=table.label,
        task=table.task,
        seed=cell.seed,
        deadline=time.time() + (cell.budget or GRACE),
        folder=str(work),
        predictions=str(work / "predictions.csv"),
        overrides=options.overrides,
        preset=tool.preset,
    )
    trained = run_verb("train", tool, job, options, TIMES * cell.budget + GRACE)
    cell = replace(
        cell,
        seconds=round(trained.seconds, 2),
        cpu_seconds=round(trained.cpu_seconds, 2),
        peak_mib=trained.peak_bytes >> 20,
        error=trained.error,
    )
    if cell.error:
        return cell
    predicted = run_verb("predict", tool, job, options, GRACE)
    cell = replace(cell, predict_seconds=round(predicted.seconds, 2), error=predicted.error)
    if cell.error:
        return cell
    labels = pd.read_csv(split / "labels.csv", dtype=str, keep_default_na=False)[table.label]
    try:
        score, auc = evaluate(labels, pd.read_csv(job.predictions), table.task)
    except ValueError as e:
        return replace(cell, error=str(e))
    return replace(cell, score=round(score, 6), auc=None if auc is None else round(auc, 5))


def run_verb(verb: str, tool: Tool, job: Job, options: Options, limit: float) -> Measured:
    """Run one command of a tool for at most `limit` seconds; see `benchmarks.tables.measure`."""
    folder = Path(job.folder)
    (folder / "job.json").write_text(json.dumps(asdict(job)))
    result, log = folder / f"{verb}.json", folder / f"{verb}.log"
    command = [sys.executable, "-m", "benchmarks.tables.measure", str(result), str(limit)]
    command += [str(tool.python(options.peers)), "-m", f"benchmarks.tables.tools.{tool.script}"]
    with open(log, "w") as out:
        subprocess.run(
            [*command, verb, str(folder / "job.json")],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=out,
            stderr=subprocess.STDOUT,
            check=True,
        )
    measured = json.loads(result.read_text())
    error = ""
    if measured["code"] is None:
        error = f"{verb}: took longer than {limit:.0f} s"
    elif measured["code"] != 0:
        error = f"{verb}: {tail(log.read_text(errors='replace'))}"
    del measured["code"]
    return Measured(**measured, error=error)


def tail(text: str, lines: int = 3) -> str:
    """Return the last lines of a log that are not empty, as one line."""
    nonempty = [line.strip() for line in text.splitlines() if line.strip()]
    return " | ".join(nonempty[-lines:]) or "no output"
