"""The job of a tool. Each script reads its job from a JSON file:

python -m benchmarks.tables.tools.SCRIPT VERB JOB.json
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Job:
    """Train on one CSV file, then predict the rows of another.

    Attributes:
        train: CSV file with the rows to train on.
        test: CSV file with the rows to predict, without the label.
        label: Column to predict.
        task: `binary`, `multiclass` or `regression`.
        seed: Seed of the tool.
        deadline: Time, as of `time.time`, at which the command that trains should end.
        folder: Folder for the model and all else that the tool writes.
        predictions: CSV file to write: a column of probabilities for each class, or one column of
            numbers.
        overrides: Arguments of `--set` for `sweeps run`.
        preset: Preset of AutoGluon; "" for other tools.
    """

    train: str
    test: str
    label: str
    task: str
    seed: int
    deadline: float
    folder: str
    predictions: str
    overrides: tuple[str, ...] = ()
    preset: str = ""

    @property
    def seconds_left(self) -> float:
        """Seconds until the deadline, at least one."""
        return max(1.0, self.deadline - time.time())


def main(train: Callable[[Job], None], predict: Callable[[Job], None]) -> None:
    """Run the command line of a tool's script."""
    verb, file = sys.argv[1:]
    job = Job(**json.loads(Path(file).read_text()))
    {"train": train, "predict": predict}[verb](job)
