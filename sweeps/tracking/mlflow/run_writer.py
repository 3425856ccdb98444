"""Writes the events of a sweep into MLflow: a parent run for the sweep and a child run for each trial.

Every request can be sent twice without harm: runs are found again by their tags, and metrics carry
the times of their reports.
"""

from __future__ import annotations

import functools
import json
import logging
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeps.core.atomic_files import write_text
from sweeps.core.errors import shorten
from sweeps.core.origin import valid_origin_keys
from sweeps.core.regular_files import FILE, kind_of
from sweeps.core.resources import COSTS
from sweeps.core.secrets import masked, without_password
from sweeps.core.sweep_folder import FILES, MLFLOW_RUN, SweepFolder
from sweeps.core.trial import Result, State, Trial, format_trial_id
from sweeps.space import Space
from sweeps.tracking import events
from sweeps.tracking.mlflow import run_contents, sqlite_tables, views
from sweeps.tracking.mlflow.client import Client
from sweeps.tracking.mlflow.views import legal_name

if TYPE_CHECKING:
    from mlflow.entities import Metric, Param, RunTag

log = logging.getLogger(__name__)

STATUS = {
    State.COMPLETE: "FINISHED",
    State.PRUNED: "FINISHED",
    State.FAIL: "FAILED",
    State.RUNNING: "KILLED",
}
# The most metrics, and the most parameters and tags, in one `log_batch` call. MLflow accepts 1,000
# entities, 100 parameters and 100 tags.
BATCH_METRICS, BATCH_PARAMS = 800, 100
# If an experiment lacks this tag, the UI asks the user whether the experiment is about language
# models.
KIND, MACHINE_LEARNING = "mlflow.experimentKind", "custom_model_development"
# MLflow's limits for the value of a parameter and of a tag.
PARAM_LENGTH, TAG_LENGTH = 6000, 8000
REFUSALS = ("INVALID_PARAMETER_VALUE", "BAD_REQUEST")
ENDED = [state.value for state in State if state is not State.RUNNING]
# The tag of a trial's run with the last step that MLflow has.
LOGGED = "sweeps.logged_step"


def is_kept(step: int) -> bool:
    """Return whether MLflow gets the report of a step: every step below 1,000, then every tenth, from 10,000 on every hundredth, ...

    >>> [step for step in range(998, 1031) if is_kept(step)]
    [998, 999, 1000, 1010, 1020, 1030]
    """
    return len(str(step).rstrip("0")) <= 3  # significant digits


def is_refusal(error: Exception) -> bool:
    """Return whether MLflow would refuse the same request again, for example because a text in the request cannot be encoded.

    MLflow's own store reports an encoding error as an internal error of the server. A deleted run
    or experiment can be restored. All other errors may be temporary.
    """
    from mlflow.exceptions import MlflowException

    if isinstance(error, MlflowException):
        refused = error.error_code in REFUSALS and "'active' state" not in str(error)
        return refused or isinstance(error.__cause__, UnicodeError)
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
class Batch:
    """Requests to MLflow for a group of events.

    Attributes:
        metrics: Metrics to log, by run ID.
        params: Parameters to log, by run ID and name. MLflow refuses a batch that names a parameter
            twice.
        tags: Tags to set, by run ID.
        statuses: Status and end time in milliseconds of each run to terminate, by run ID.
        started: Trials that started in this group of events.
        ended: Numbers of the trials whose artifact files are logged: trials that ended, and at the
            end of the sweep all trials once more.
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


class RunWriter:
    """Writes events into the runs of one sweep.

    Args:
        destination: Place in MLflow where the sweep is recorded.
        on_refusal: Function that is called with the error of a request that MLflow refuses
            permanently.
        on_answer: Function that is called whenever MLflow has answered a request.

    Attributes:
        parent: ID of the parent run; "" before `open`.
        experiment_id: ID of the experiment.
        runs: IDs of the trials' runs, by trial number.
        left: Number of runs whose values of the current batch are not written yet.
    """

    _client: Client

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
        self.left = 0
        self._sweep = destination.sweep
        self._on_refusal, self._on_answer = on_refusal, on_answer
        self._logged: dict[int, int] = {}  # last step in MLflow of each trial of earlier drivers
        self._complete: set[int] = (
            set()
        )  # numbers of the trials of earlier drivers whose runs are complete
        self._logged_files: dict[
            int, dict[Path, tuple[int, int]]
        ] = {}  # size and time of each logged file, by trial number
        self._objectives: list[str] = []
        self._constrained = False
        self._log_dimensions: list[str] = []

    # Runs

    def open(self) -> None:
        """Find or create the experiment and the parent run, and find the trials' runs.

        Restore what was deleted.

        After an error, call this method again: MLflow may have created a run although its answer
        was lost.
        """
        from mlflow.entities import ViewType

        uri, sweep = self.destination.uri, self._sweep
        sqlite_tables.create(uri)
        self._client = Client(uri)
        self.experiment_id = self._find_experiment()
        started = round(
            self.destination.started * 1000
        )  # On another machine, a sweep of this name may have started in the same second.
        where = (
            f"tags.`sweeps.sweep` = '{sweep}' and tags.`sweeps.kind` = 'sweep' and "
            f"attributes.start_time = {started}"
        )
        found = self._client.search_runs([self.experiment_id], where, ViewType.ALL, max_results=1)
        if found:
            self.parent = str(found[0].info.run_id)
            if found[0].info.lifecycle_stage == "deleted":
                self._client.restore_run(self.parent)
            self._client.update_run(self.parent, status="RUNNING")
            self._find_trials()
        else:
            tags = {"sweeps.kind": "sweep", "sweeps.sweep": sweep}
            self.parent = self._client.create_run(
                self.experiment_id, started, tags, run_name=sweep
            ).info.run_id

    def _find_experiment(self) -> str:
        """Find or create the experiment, and return the experiment's ID."""
        to = self.destination
        existing = self._client.get_experiment_by_name(to.experiment)
        if existing is None:
            location = None
            if to.uri.startswith("sqlite"):
                location = (to.root / "mlartifacts" / to.experiment).resolve().as_uri()
            tags = {KIND: MACHINE_LEARNING}
            return str(self._client.create_experiment(to.experiment, location, tags))
        if existing.lifecycle_stage == "deleted":
            self._client.restore_experiment(existing.experiment_id)
        if KIND not in existing.tags:
            self._client.set_experiment_tag(existing.experiment_id, KIND, MACHINE_LEARNING)
        return str(existing.experiment_id)

    def _find_trials(self) -> None:
        """Find the runs of the trials of a resumed sweep."""
        self.runs.clear()
        for run in self._client.search_runs(
            [self.experiment_id], f"tags.`mlflow.parentRunId` = '{self.parent}'", max_results=50_000
        ):
            number = int(run.data.tags.get("sweeps.trial", -1))
            self.runs[number] = run.info.run_id
            self._logged[number] = int(run.data.tags.get(LOGGED, 0))
            # MLflow gets the status first and the tags last.
            ended = run.data.tags.get("sweeps.state") in ENDED
            if ended and run.info.status in ("FINISHED", "FAILED"):
                self._complete.add(number)

    def _trial_run(self, trial: Trial, started: float) -> str:
        """Return the ID of a trial's run. If no run is known, create one."""
        if trial.number not in self.runs:
            tags = {
                "mlflow.parentRunId": self.parent,
                "sweeps.kind": "trial",
                "sweeps.sweep": self._sweep,
                "sweeps.trial": trial.id,
                "sweeps.seed": str(trial.seed),
            }
            if trial.repeat_of is not None:
                tags["sweeps.repeats"] = format_trial_id(trial.repeat_of)
            if trial.enqueued:
                tags["sweeps.enqueued"] = "true"
            run = self._client.create_run(
                self.experiment_id, int(started * 1000), tags, run_name=trial.id
            )
            self.runs[trial.number] = str(run.info.run_id)
            self._on_answer()
        return self.runs[trial.number]

    # Events

    def write(self, group: Sequence[events.Event]) -> None:
        """Write events. After an error, call `open` before you write the same events again."""
        batch = Batch()
        for event in group:
            self._add_known(event, batch)
            if isinstance(event, events.SweepStarted) and event.history is not None:
                for earlier in self._read_history(event.history):
                    self._add_known(earlier, batch)
        self._send(batch)

    def _add_known(self, event: events.Event, batch: Batch) -> None:
        """Add the requests for one event to a batch.

        A trial whose run has vanished from MLflow is reported as missed.
        """
        starts = isinstance(event, events.TrialStarted)
        if isinstance(event, events.TrialEvent) and not starts and event.number not in self.runs:
            self._on_refusal(LookupError(f"the run of trial {event.trial_id} was deleted"))
        else:
            self._add(event, batch)

    def _read_history(self, history: events.History) -> Sequence[events.Event]:
        """Return the events of the trials of earlier drivers that MLflow may have missed."""
        try:
            return list(history(self._complete))
        except Exception as e:  # The study's database may be unreachable for a while.
            raise ConnectionError(f"the study cannot be read: {e}") from e

    @functools.singledispatchmethod
    def _add(self, event: events.Event, batch: Batch) -> None:
        """Add the requests for one event to a batch.

        For event types that are not registered below, add nothing.
        """

    @_add.register
    def _(self, event: events.SweepStarted, batch: Batch) -> None:
        space, parent = event.space, self.parent
        self._objectives = [objective.metric for objective in space.objectives]
        self._constrained = bool(space.constraints)
        self._log_dimensions = [d.name for d in space.dimensions if d.is_log]
        tags = {
            "sweeps.data_fingerprint": event.fingerprint,
            "sweeps.space": space.public(space.text),
            "sweeps.dir": str(event.folder),
        }
        if learned_from := valid_origin_keys(event.folder).get("learned_from"):
            tags["sweeps.learned_from"] = "\n".join(learned_from)
        if event.git_commit is not None and event.git_dirty is not None:
            tags |= {
                "mlflow.source.git.commit": event.git_commit,
                "sweeps.git_dirty": event.git_dirty,
            }
        batch.tags[parent] |= tags
        self._permit(self._save_views, space)
        # MLflow refuses to change parameters that an earlier driver logged
        existing = self._client.get_run(parent).data.params
        params = run_contents.space_params(space)
        params = {legal_name(name): value for name, value in params.items()}
        for name in sorted(params.keys() - existing.keys()):
            batch.params[parent][name] = params[name]
        self._permit(self._client.log_text, parent, space.public(space.text), "space.yaml")
        if inputs := run_contents.datasets(space, event.fingerprint):
            self._permit(self._client.log_inputs, parent, inputs)

    @_add.register
    def _(self, event: events.TrialStarted, batch: Batch) -> None:
        trial = event.trial
        continues = trial.number in self.runs
        run = self._trial_run(trial, event.time)
        if continues:
            self._permit(self._client.update_run, run, "RUNNING")
            batch.tags[run]["sweeps.state"] = State.RUNNING.value
            batch.statuses.pop(run, None)  # a pause has ended
        params = run_contents.trial_params(trial) | run_contents.log_params(
            trial, self._log_dimensions
        )
        batch.params[run] |= {legal_name(name): value for name, value in params.items()}
        batch.tags[run] |= {"sweeps.pbt": trial.lineage} if trial.lineage else {}
        batch.started.append(trial)

    @_add.register
    def _(self, event: events.TrialReported, batch: Batch) -> None:
        run, known = self.runs[event.number], self._logged.get(event.number, 0)
        for report in event.reports:
            if report.step > known and is_kept(report.step):
                batch.add_metrics(run, report.metrics.items(), report.time, report.step)
        batch.tags[run][LOGGED] = str(max(known, event.reports[-1].step))

    @_add.register
    def _(self, event: events.TrialChanged, batch: Batch) -> None:
        run = self.runs[event.number]
        batch.add_metrics(run, event.metrics.items(), event.time, event.step)
        if event.trial.lineage:
            batch.tags[run]["sweeps.pbt"] = event.trial.lineage

    @_add.register
    def _(self, event: events.TrialPaused, batch: Batch) -> None:
        run = self.runs[event.number]
        batch.tags[run]["sweeps.state"] = "PAUSED"
        batch.statuses[run] = ("SCHEDULED", int(event.time * 1000))

    @_add.register
    def _(self, event: events.TrialEnded, batch: Batch) -> None:
        run, result = self.runs[event.number], event.result
        tags = batch.tags[run]
        interrupted = result.state is State.RUNNING
        tags["sweeps.state"] = "INTERRUPTED" if interrupted else result.state.value
        if self._constrained:
            tags["sweeps.feasible"] = str(result.feasible).lower()
        if result.reason:
            tags["sweeps.reason"] = result.reason
        if result.error:
            tags["sweeps.error"] = result.error
        if not interrupted:  # an interrupted trial may continue, and metrics cannot be removed
            batch.add_metrics(run, self._final_metrics(result).items(), event.time)
            batch.ended.append(event.number)
        batch.statuses[run] = (STATUS[result.state], int(event.time * 1000))

    def _final_metrics(self, result: Result) -> dict[str, float | None]:
        """Return the final metrics of an ended trial."""
        metrics: dict[str, float | None] = {
            "objective": result.value,
            "steps": result.steps,
            "seconds": result.seconds,
        }
        metrics |= {name: result.metrics[name] for name in COSTS if name in result.metrics}
        if len(self._objectives) > 1:
            metrics |= {
                f"objective.{o}": v for o, v in zip(self._objectives, result.values, strict=False)
            }
        return metrics | {f"final/{name}": value for name, value in result.final.items()}

    @_add.register
    def _(self, event: events.ArtifactSaved, batch: Batch) -> None:
        self._permit(self._client.log_text, self.parent, event.text, event.name)

    @_add.register
    def _(self, event: events.SweepEnded, batch: Batch) -> None:
        parent, result = self.parent, event.result
        if result is not None:
            front = {int(best["trial"]) for best in result.front}
            for number in sorted(self.runs.keys() & {*front, *event.earlier_front}):
                batch.tags[self.runs[number]]["sweeps.front"] = str(number in front).lower()
            batch.tags[parent] |= run_contents.sweep_tags(result)
            batch.add_metrics(parent, run_contents.sweep_metrics(result).items(), event.time)
        if event.report:
            batch.tags[parent] |= self._report_tags(event.report, event.best)
        batch.statuses[parent] = (run_contents.sweep_status(result), int(event.time * 1000))
        batch.ended += (
            self._logged_files
        )  # A trial may have written more files after the scheduler stopped it.

    def _report_tags(self, markdown: str, best: Trial | None) -> dict[str, str]:
        """Return the parent run's description and the tags that name the best trial.

        Delete the tags that name an earlier best trial.
        """
        parent = self.parent
        links = {
            "All trials, best first": views.runs_link("", self.experiment_id, self._sweep),
            "Charts": views.runs_link("", self.experiment_id, self._sweep, chart=True),
            "Report with figures": views.run_link("", self.experiment_id, parent, "report.html"),
            "Space file": views.run_link("", self.experiment_id, parent, "space.yaml"),
        }
        tags: dict[str, str] = {}
        if best is not None and best.number in self.runs:
            run = self.runs[best.number]
            links = {f"Trial {best.id}": views.run_link("", self.experiment_id, run), **links}
            tuned = {"preprocessor", "scaling.num_workers", *best.labels}
            tags = {
                legal_name(f"best.{name}"): value
                for name, value in run_contents.trial_params(best).items()
                if name in tuned
            }
            tags["sweeps.best_run"] = run
            for name in self._client.get_run(parent).data.tags:
                if name.startswith("best.") and name not in tags:
                    self._client.delete_tag(parent, name)
        return {**tags, run_contents.NOTE: run_contents.description(markdown, links)}

    def _save_views(self, space: Space) -> None:
        started = self.destination.started
        view = views.trials_view(self._sweep, space)
        trials = views.saved_view(f"{self._sweep}: trials", started, view)
        sweeps = views.saved_view("all sweeps", started, views.sweeps_view(space))
        for name, value in {self._sweep: trials, views.ALL_SWEEPS: sweeps}.items():
            self._client.set_experiment_tag(self.experiment_id, views.VIEW_TAG + name, value)

    # Requests

    def _send(self, batch: Batch) -> None:
        """Send the requests of a batch.

        The status of a run is sent first, because its values may take long.
        """
        from mlflow.entities import Param, RunTag

        for run, status_and_time in batch.statuses.items():
            self._permit(self._client.set_terminated, run, *status_and_time)
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

        The tags come with the last metrics. Until then, a tag names the step before which all
        metrics are logged.
        """
        from mlflow.entities import RunTag

        while metrics or params or tags:
            part = tags[:BATCH_PARAMS]
            if left := metrics[BATCH_METRICS:]:
                tags = [RunTag(LOGGED, str(left[0].step - 1)), *tags]
                part = tags[:1]
            self._permit(
                self._client.log_batch, run, metrics[:BATCH_METRICS], params[:BATCH_PARAMS], part
            )
            metrics, params, tags = left, params[BATCH_PARAMS:], tags[len(part) :]

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
        """Log the files that a trial's loop wrote, if they changed since they were last logged.

        Links are left out.
        """
        logged, top = self._logged_files.setdefault(number, {}), self._folder(number) / FILES
        for path in sorted(top.rglob("*")):
            try:
                if kind_of(path) != FILE:
                    continue
                now = (path.stat().st_size, path.stat().st_mtime_ns)
                if logged.get(path) != now:
                    target = Path(FILES, path.relative_to(top)).parent
                    to = (self.runs[number], str(path), str(target))
                    self._permit(self._client.log_artifact, *to)
                    logged[path] = now
            # The file cannot be read; the server is not the cause
            except (FileNotFoundError, PermissionError, shutil.Error) as e:
                log.error("the file %s was not logged to MLflow: %s", path, masked(str(e)))

    def _folder(self, number: int) -> Path:
        return SweepFolder(self.destination.root / self._sweep).trial(number)

    def _permit(self, action: Callable[..., Any], *args: Any) -> None:
        """Send a request.

        If MLflow refuses the request permanently, report this and continue, because other runs are
        not affected.
        """
        from mlflow.exceptions import MlflowException

        try:
            action(*args)
            self._on_answer()
        except (MlflowException, UnicodeError) as e:
            if not is_refusal(e):
                raise
            self._on_refusal(e)
