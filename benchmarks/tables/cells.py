"""The results of the benchmark.

Each is one line of JSON, and is kept as soon as the tool has ended.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Cell:
    """The result of one tool on one table with one seed.

    Attributes:
        table: Name of the table.
        task: `binary`, `multiclass` or `regression`.
        rows: Number of rows of the table, with those that are held out.
        columns: Number of columns without the label.
        seed: Seed of the split and of the tool.
        tool: Name of the tool.
        budget: Seconds of wall time that the tool was given; 0 for a tool that takes none.
        score: Log loss or RMSE on the rows that are held out; None if the tool failed.
        auc: Area under the ROC curve; of several classes, the mean of each against the others. None
            for a regression.
        seconds: Wall time of the command that trains.
        cpu_seconds: CPU time of this command and of all processes that it started.
        peak_mib: Largest memory of this command and all its processes at one time, in MiB; see
            `benchmarks.tables.measure`.
        predict_seconds: Wall time of the command that predicts the rows that are held out.
        versions: Versions of the tool and of what it rests on.
        machine: Cores and processor.
        load: Load average of the machine before the command.
        date: Day of the measurement.
        error: Reason why the tool failed; "" if it did not.
    """

    table: str
    task: str
    rows: int
    columns: int
    seed: int
    tool: str
    budget: int
    score: float | None = None
    auc: float | None = None
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_mib: int = 0
    predict_seconds: float = 0.0
    versions: dict[str, str] = field(default_factory=dict)
    machine: str = ""
    load: float = 0.0
    date: str = ""
    error: str = ""

    @property
    def key(self) -> tuple[str, int, str, int]:
        """Key of the cell. A report has one cell for each key."""
        return self.table, self.seed, self.tool, self.budget


def read(file: Path) -> list[Cell]:
    """Return the cells that are kept.

    If a cell was measured several times, the last measurement counts.

    A line that an interrupted run has not finished is left out.
    """
    if not file.exists():
        return []
    lines = [line for line in file.read_text().splitlines() if line.endswith("}")]
    cells = [Cell(**json.loads(line)) for line in lines]
    return list({cell.key: cell for cell in cells}.values())


def append(file: Path, cell: Cell) -> None:
    """Keep a cell."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with open(file, "a") as out:
        out.write(json.dumps(asdict(cell)) + "\n")


def missing(wanted: Iterable[Cell], kept: Iterable[Cell], retry: bool) -> list[Cell]:
    """Return the cells that are still to be measured, in the order in which they are wanted.

    Args:
        wanted: Cells without results.
        kept: Cells with results.
        retry: True to measure the cells of tools that failed again.
    """
    done = {cell.key for cell in kept if not (retry and cell.error)}
    return [cell for cell in wanted if cell.key not in done]
