"""Read the metrics, parameters and artifacts that a script logs with MLflow, from the files of MLflow's file store.

A script logs into a local folder, not into the trial's run in MLflow. The script may set the status
and the name of its own run, but only the sweep may set those of the trial's run. The folder also
works if no tracking server answers. It has these files:

    EXPERIMENT/RUN/metrics/NAME     one line for each value: time in milliseconds, value, step
    EXPERIMENT/RUN/params/NAME      the value
    EXPERIMENT/RUN/tags/NAME        the value
    EXPERIMENT/RUN/artifacts/
    EXPERIMENT/models/MODEL/artifacts/
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

# The server takes at most this many parameters, tags and metrics in one call.
BATCH = 100


class MlflowFiles:
    """The folder to which a script logs.

    Args:
        folder: The folder. It need not exist.
        metric: The objective's metric; None if nothing that the script logs is a report.
        asked: Metrics that a report should have: those of all objectives and constraints.
    """

    def __init__(self, folder: Path, metric: str | None, asked: Sequence[str]):
        self.folder, self._metric, self._asked = folder, metric, asked
        self._series: dict[Path, _Series] = {}
        self._reported: dict[Path, int] = {}  # Number of reports of each run.
        self._names: set[str] = set()  # Metrics that reports had.

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables with which MLflow logs to the folder."""
        return {"MLFLOW_TRACKING_URI": self.folder.as_uri(), "MLFLOW_ALLOW_FILE_STORE": "true"}

    def new_reports(self, ended: bool) -> Iterator[dict[str, float]]:
        """Yield the metrics of each report since the last call.

        Each value of the objective's metric is a report. It also has every other metric that was
        logged for the same step. The latest value is held back until all asked metrics have a value
        for its step, or the objective's metric has another value.

        Args:
            ended: True if the script has ended, so that no value is held back.
        """
        if self._metric is None or not self.folder.is_dir():
            return
        for file in self.folder.glob(f"*/*/metrics/{self._metric}"):
            run = file.parents[len(Path(self._metric).parts)]
            if (run / "tags" / "mlflow.parentRunId").exists():
                continue
            lines = self._read(file).lines
            for number in range(self._reported.get(run, 0), len(lines)):
                metrics = self._at(run, lines[number][2]) | {self._metric: lines[number][1]}
                if (
                    number == len(lines) - 1
                    and not ended
                    and not metrics.keys() >= set(self._asked)
                ):
                    return
                self._reported[run] = number + 1
                self._names |= metrics.keys()
                yield metrics

    def _at(self, run: Path, step: int) -> dict[str, float]:
        """Return the latest value of each metric of a run for one step."""
        series = {name: self._read(file) for name, file in _texts(run / "metrics")}
        return {name: found.at[step] for name, found in series.items() if step in found.at}

    def _read(self, file: Path) -> _Series:
        return self._series.setdefault(file, _Series(file)).read()

    def copy_to_run(self) -> None:
        """Copy the parameters, tags, artifacts and unreported metrics of all runs in the folder to the run of the trial."""
        runs = [
            file.parent
            for file in self.folder.glob("*/*/meta.yaml")
            if file.parent.parent.name != ".trash"
        ]
        if not runs:
            return
        import mlflow

        with mlflow.start_run() as active:
            for run in runs:
                self._copy(run, active.info.run_id)
            for model in self.folder.glob("*/models/*/artifacts"):
                mlflow.log_artifacts(str(model), f"models/{model.parent.name}")

    def _copy(self, run: Path, target: str) -> None:
        """Copy one run of the folder to the run with the id `target`."""
        import mlflow
        from mlflow.entities import Metric, Param, RunTag

        client = mlflow.MlflowClient()
        params = [Param(name, file.read_text()) for name, file in _texts(run / "params")]
        tags = [
            RunTag(name, file.read_text())
            for name, file in _texts(run / "tags")
            if not name.startswith("mlflow.")
        ]
        values = [
            Metric(name, value, time, step)
            for name, file in _texts(run / "metrics")
            if name not in self._names
            for time, value, step in self._read(file).lines
        ]
        for batch in _batches(params):
            client.log_batch(target, params=batch)
        for batch in _batches(tags):
            client.log_batch(target, tags=batch)
        for batch in _batches(values):
            client.log_batch(target, metrics=batch)
        if any((run / "artifacts").glob("*")):
            mlflow.log_artifacts(str(run / "artifacts"))


class _Series:
    """The values of one metric in a run.

    Args:
        file: File of the metric.

    Attributes:
        lines: Time in milliseconds, value and step of each line of the file.
        at: The latest value for each step.
    """

    def __init__(self, file: Path):
        self._file, self._offset = file, 0
        self._seen: set[tuple[str, ...]] = set()
        self.lines: list[tuple[int, float, int]] = []
        self.at: dict[int, float] = {}

    def read(self) -> _Series:
        """Read the lines that were added since the last call. Return this object."""
        if self._file.stat().st_size > self._offset:
            with self._file.open("rb") as file:
                file.seek(self._offset)
                text = file.read()
            whole = text[: text.rfind(b"\n") + 1]  # The script may be writing the last line.
            self._offset += len(whole)
            for line in whole.decode().splitlines():
                fields = tuple(line.split()[:3])
                if fields in self._seen:  # `log_model` logs the run's latest values again.
                    continue
                self._seen.add(fields)
                time, value, step = fields
                self.lines.append((int(time), float(value), int(step)))
                self.at[int(step)] = float(value)
        return self


def _texts(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the name and the path of each file below a folder.

    A name with a slash is a file in a folder.
    """
    for parent, _, names in os.walk(folder):
        for name in names:
            file = Path(parent, name)
            yield str(file.relative_to(folder)), file


def _batches(entities: Iterable[Any]) -> Iterator[list[Any]]:
    """Yield the entities in lists of at most `BATCH`."""
    remaining = iter(entities)
    while batch := list(itertools.islice(remaining, BATCH)):
        yield batch
