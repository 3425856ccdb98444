"""Read the metrics, parameters and artifacts that a script logs with MLflow.

They are read from the files of MLflow's file store.

A script logs into a local folder, not into the trial's run in MLflow. The script may set the status
and the name of its own run, but only the sweep may set those of the trial's run. The folder also
works if no tracking server answers. It has these files:

    EXPERIMENT/RUN/metrics/NAME     one line for each value: time in milliseconds, value, step
    EXPERIMENT/RUN/params/NAME      the value
    EXPERIMENT/RUN/tags/NAME        the value
    EXPERIMENT/RUN/artifacts/
    EXPERIMENT/models/MODEL/artifacts/
"""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path


class MlflowFiles:
    """The folder to which a script logs.

    Args:
        folder: The folder. It need not exist.
        metric: The objective's metric; None if nothing that the script logs is a report.
        asked: Metrics that a report should have: those of all objectives and constraints.
    """

    def __init__(self, folder: Path, metric: str | None, asked: Sequence[str]):
        self.folder = folder
        self._metric = metric
        self._asked = asked
        self._reported: Counter[Path] = Counter()  # number of reports of each run
        self._names: set[str] = set()  # metrics that reports had

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
            lines = _values(file)
            if len(lines) == self._reported[run]:
                continue
            # The latest value of each metric, by step
            by_step = {
                name: {step: value for _, value, step in _values(other)}
                for name, other in files_in(run / "metrics")
            }
            for number in range(self._reported[run], len(lines)):
                _, value, step = lines[number]
                metrics = {name: values[step] for name, values in by_step.items() if step in values}
                metrics[self._metric] = value  # a step may have several values, each is a report
                is_complete = ended or metrics.keys() >= set(self._asked)
                if number == len(lines) - 1 and not is_complete:
                    return
                self._reported[run] = number + 1
                self._names |= metrics.keys()
                yield metrics

    def copy_to_run(self) -> None:
        """Copy what the runs in the folder have to the trial's run.

        Parameters, tags, artifacts and unreported metrics of all runs are copied.
        """
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
        params = [Param(name, file.read_text()) for name, file in files_in(run / "params")]
        tags = [
            RunTag(name, file.read_text())
            for name, file in files_in(run / "tags")
            if not name.startswith("mlflow.")
        ]
        values = [
            Metric(name, value, time, step)
            for name, file in files_in(run / "metrics")
            if name not in self._names
            for time, value, step in _values(file)
        ]
        client.log_batch(target, metrics=values, params=params, tags=tags)
        if any((run / "artifacts").glob("*")):
            mlflow.log_artifacts(str(run / "artifacts"))


def _values(file: Path) -> list[tuple[int, float, int]]:
    """Return the time in milliseconds, the value and the step of each line of a metric's file.

    `log_model` logs the latest values again, so equal lines count once. The script may be writing
    the last line, so it counts only with its end.
    """
    whole = file.read_text().rpartition("\n")[0]
    lines = dict.fromkeys(tuple(line.split()[:3]) for line in whole.splitlines())
    return [(int(time), float(value), int(step)) for time, value, step in lines]


def files_in(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the name and the path of each file below a folder.

    A name with a slash is a file in a folder.
    """
    for parent, _, names in os.walk(folder):
        for name in names:
            file = Path(parent, name)
            yield str(file.relative_to(folder)), file
