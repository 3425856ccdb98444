"""The runs of one sweep in MLflow: a run for the sweep with a child run for each trial.

Every request can be sent twice without harm: runs are found again by their tags, and metrics carry
the times of their reports.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec

from sweeps.core.errors import shorten
from sweeps.core.files.atomic_files import write_text
from sweeps.core.files.regular_files import FILE, kind_of
from sweeps.core.files.sweep_folder import FILES, MLFLOW_RUN, SweepFolder
from sweeps.core.text.secrets import masked, without_password
from sweeps.core.trial import State, Trial, format_trial_id

from . import sqlite_tables
from .run_contents import legal_name

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param, RunTag

log = logging.getLogger(__name__)
P = ParamSpec("P")

# Largest numbers of metrics, and of parameters and tags, in one `log_batch` call. MLflow accepts
# 1,000 entities, 100 parameters and 100 tags.
BATCH_METRICS = 800
BATCH_PARAMS = 100
# Name and value of a tag. If an experiment lacks it, the UI asks the user whether the experiment is
# about language models.
KIND = "mlflow.experimentKind"
MACHINE_LEARNING = "custom_model_development"
# MLflow's limits for the value of a parameter and of a tag
PARAM_LENGTH = 6000
TAG_LENGTH = 8000
# Codes of the errors with which MLflow refuses a request permanently
REFUSALS = ("INVALID_PARAMETER_VALUE", "BAD_REQUEST")
# Values of the tag `sweeps.state` of a trial that has ended
ENDED = [state.value for state in State if state is not State.RUNNING]


def is_refusal(error: Exception) -> bool:
    """Return whether MLflow would refuse the same request again.

    For example, MLflow always refuses a text that cannot be encoded.

    MLflow's own store reports an encoding error as an internal error of the server. All other
    errors may be temporary.
    """
    from mlflow.exceptions import MlflowException

    if isinstance(error, MlflowException):
        return error.error_code in REFUSALS or isinstance(error.__cause__, UnicodeError)
    return isinstance(error, UnicodeError)


@dataclass(frozen=True)
class Destination:
    """Place in MLflow where a sweep is recorded.

    Attributes:
        uri: Tracking URI.
        root: Folder of all sweeps. With a SQLite store, a new experiment keeps its artifacts in
            this folder.
        experiment: Name of the experiment.
        sweep: Name of the sweep. The parent run and the sweep's folder in the root have the same
            name.
        started: When the sweep's first driver started, in seconds since the epoch.
    """

    uri: str
    root: Path
    experiment: str
    sweep: str
    started: float


@dataclass
class RequestBatch:
    """Requests to MLflow for a group of events.

    Attributes:
        metrics: Metrics to log, by run ID.
        params: Parameters to log, by run ID and name. MLflow refuses a batch that names a parameter
            twice.
        tags: Tags to set, by run ID.
        statuses: Status and end time in milliseconds of each run to terminate, by run ID.
        started: Trials that started in this group of events.
        ended: Numbers of the trials that ended, whose files are logged.
    """

    metrics: dict[str, list[Metric]] = field(default_factory=lambda: defaultdict(list))
    params: dict[str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    tags: dict[str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    statuses: dict[str, tuple[str, int]] = field(default_factory=dict)
    started: list[Trial] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)

    def add_metrics(
        self, run: str, values: Iterable[tuple[str, float | None]], time: float, step: int = 0
    ) -> None:
        """Add metrics to the batch, except those whose value is None.

        Args:
            run: The run's ID.
            values: (name, value) pairs.
            time: Seconds since the epoch.
            step: The step of the trial.
        """
        from mlflow.entities import Metric

        self.metrics[run] += [
            Metric(legal_name(name), value, int(time * 1000), step)
            for name, value in values
            if value is not None
        ]


class SweepRuns:
    """The runs of one sweep.

    Args:
        destination: Place in MLflow where the sweep is recorded.
        on_refusal: Function that is called with the error of a request that MLflow refuses
            permanently.
        on_answer: Function that is called whenever MLflow has answered a request.

    Attributes:
        parent: ID of the parent run; "" before `open`.
        experiment_id: ID of the experiment.
        runs: IDs of the trials' runs, by trial number.
        complete: Numbers of the trials of earlier drivers whose runs are complete.
        front: Numbers of the trials that have the tag of the Pareto front.
        left: Number of runs whose values of the current batch are not written yet.
    """

    client: MlflowClient

    def __init__(
        self,
        destination: Destination,
        on_refusal: Callable[[Exception], None],
        on_answer: Callable[[], None],
    ):
        self.destination = destination
        self.parent = ""
        self.experiment_id = ""
        self.runs: dict[int, str] = {}
        self.complete: set[int] = set()
        self.front: set[int] = set()
        self.left = 0
        self._on_refusal = on_refusal
        self._on_answer = on_answer

    def open(self) -> None:
        """Find or create the experiment and the parent run, and find the trials' runs.

        After an error, call this method again: MLflow may have created a run although its answer
        was lost.
        """
        from mlflow.tracking import MlflowClient

        sqlite_tables.create(self.destination.uri)
        self.client = MlflowClient(self.destination.uri)
        self.experiment_id = self._find_experiment()
        # On another machine, a sweep of this name may have started in the same second.
        started = round(self.destination.started * 1000)
        where = (
            f"tags.`sweeps.sweep` = '{self.destination.sweep}' and tags.`sweeps.kind` = 'sweep' "
            f"and attributes.start_time = {started}"
        )
        runs = self.client.search_runs([self.experiment_id], where, max_results=1)
        if runs:
            self.parent = str(runs[0].info.run_id)
            self.client.update_run(self.parent, status="RUNNING")
            self._find_trials()
        else:
            tags = {"sweeps.kind": "sweep", "sweeps.sweep": self.destination.sweep}
            created = self.client.create_run(
                self.experiment_id, started, tags, run_name=self.destination.sweep
            )
            self.parent = str(created.info.run_id)

    def _find_experiment(self) -> str:
        """Find or create the experiment, and return the experiment's ID."""
        name = self.destination.experiment
        existing = self.client.get_experiment_by_name(name)
        if existing is not None:
            return str(existing.experiment_id)
        location = None
        if self.destination.uri.startswith("sqlite"):
            location = (self.destination.root / "mlartifacts" / name).resolve().as_uri()
        return str(self.client.create_experiment(name, location, {KIND: MACHINE_LEARNING}))

    def _find_trials(self) -> None:
        """Find the runs of the trials of a resumed sweep."""
        where = f"tags.`mlflow.parentRunId` = '{self.parent}'"
        for run in self.client.search_runs([self.experiment_id], where, max_results=50_000):
            number = int(run.data.tags.get("sweeps.trial", -1))
            self.runs[number] = run.info.run_id
            if run.data.tags.get("sweeps.front") == "true":
                self.front.add(number)
            # MLflow gets the status first and the tags last.
            ended = run.data.tags.get("sweeps.state") in ENDED
            if ended and run.info.status in ("FINISHED", "FAILED"):
                self.complete.add(number)

    def trial_run(self, trial: Trial, started: float) -> str:
        """Return the ID of a trial's run. If no run is known, create one."""
        if trial.number not in self.runs:
            tags = {
                "mlflow.parentRunId": self.parent,
                "sweeps.kind": "trial",
                "sweeps.sweep": self.destination.sweep,
                "sweeps.trial": trial.id,
                "sweeps.seed": str(trial.seed),
            }
            if trial.repeat_of is not None:
                tags["sweeps.repeats"] = format_trial_id(trial.repeat_of)
            if trial.enqueued:
                tags["sweeps.enqueued"] = "true"
            run = self.client.create_run(
                self.experiment_id, int(started * 1000), tags, run_name=trial.id
            )
            self.runs[trial.number] = str(run.info.run_id)
            self._on_answer()
        return self.runs[trial.number]

    def send(self, batch: RequestBatch) -> None:
        """Send the requests of a batch.

        The status of a run is sent first, because its values may take long.
        """
        from mlflow.entities import Param, RunTag

        for run, status_and_time in batch.statuses.items():
            self.permit(self.client.set_terminated, run, *status_and_time)
        runs = {**batch.metrics, **batch.params, **batch.tags}
        self.left = len(runs)
        for run in runs:
            params = [Param(k, shorten(v, PARAM_LENGTH)) for k, v in batch.params[run].items()]
            tags = [RunTag(k, shorten(v, TAG_LENGTH)) for k, v in batch.tags[run].items()]
            self._log_batch(run, batch.metrics[run], params, tags)
            self.left -= 1
        # This follows the trial's parameters, because the loop may log the same names
        for trial in batch.started:
            self._write_run_file(trial)
        for number in dict.fromkeys(batch.ended):
            self._log_files(number)

    def _log_batch(
        self, run: str, metrics: list[Metric], params: list[Param], tags: list[RunTag]
    ) -> None:
        """Log any number of metrics, parameters and tags in calls that stay within MLflow's limits.

        The tags come with the last metrics.
        """
        while metrics or params or tags:
            rest = metrics[BATCH_METRICS:]
            sent_tags = [] if rest else tags[:BATCH_PARAMS]
            self.permit(
                self.client.log_batch,
                run,
                metrics[:BATCH_METRICS],
                params[:BATCH_PARAMS],
                sent_tags,
            )
            metrics = rest
            params = params[BATCH_PARAMS:]
            tags = tags[len(sent_tags) :]

    def _write_run_file(self, trial: Trial) -> None:
        """Write the run's ID into the trial's folder, for loops that log to MLflow themselves."""
        folder = self._folder(trial.number)
        if folder.is_dir():
            run = {
                "tracking_uri": without_password(self.destination.uri),
                "experiment_id": self.experiment_id,
                "run_id": self.runs[trial.number],
            }
            write_text(folder / MLFLOW_RUN, json.dumps(run) + "\n")

    def _log_files(self, number: int) -> None:
        """Log the files that a trial's loop wrote. Links are left out."""
        top = self._folder(number) / FILES
        for path in sorted(top.rglob("*")):
            try:
                if kind_of(path) == FILE:
                    target = Path(FILES, path.relative_to(top)).parent
                    self.permit(self.client.log_artifact, self.runs[number], str(path), str(target))
            # The file cannot be read; the server is not the cause
            except (FileNotFoundError, PermissionError, shutil.Error) as e:
                log.error("the file %s was not logged to MLflow: %s", path, masked(str(e)))

    def _folder(self, number: int) -> Path:
        """Return the folder of a trial."""
        return SweepFolder(self.destination.root / self.destination.sweep).trial(number)

    def permit(self, action: Callable[P, object], *args: P.args, **options: P.kwargs) -> None:
        """Send a request.

        If MLflow refuses the request permanently, report this and continue, because other runs are
        not affected.
        """
        from mlflow.exceptions import MlflowException

        try:
            action(*args, **options)
            self._on_answer()
        except (MlflowException, UnicodeError) as e:
            if not is_refusal(e):
                raise
            self._on_refusal(e)
