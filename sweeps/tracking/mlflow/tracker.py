"""The sweep in MLflow: a parent run, a child a trial, written by the driver alone from one background thread in batches.

Nothing waits for MLflow while a sweep runs. When the server is away, what there is to say is kept and said later. Runs are found by
tag, timestamps are those of the reports, so that saying a thing twice changes nothing.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
import queue
import shutil
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator
from pathlib import Path
from typing import Any

from sweeps.core.crash_cleanup import write
from sweeps.core.resources import COSTS
from sweeps.core.sweep_folder import masked, without_password
from sweeps.core.trial import FILES, RUN, Report, Result, State, Trial
from sweeps.space import Space
from sweeps.tracking.mlflow import sqlite_tables, views
from sweeps.tracking.mlflow.client import Client
from sweeps.tracking.mlflow.run_contents import NOTE, PARAM_LENGTH, described, parameters, settings
from sweeps.tracking.mlflow.views import legal

log = logging.getLogger(__name__)

# Of a trial: itself, when it began, its reports, how it stands, when it ended (of one that has not: anything).
Told = tuple[Trial, float, tuple[Report, ...], Result, float]
STATUS = {State.COMPLETE: "FINISHED", State.PRUNED: "FINISHED", State.FAIL: "FAILED", State.RUNNING: "KILLED"}
# MLflow's own limits of one log_batch call.
BATCH_METRICS, BATCH_PARAMS = 1000, 100
# Without it the UI asks the user whether this is about language models.
KIND, MACHINE_LEARNING = "mlflow.experimentKind", "custom_model_development"
REFUSALS = ("INVALID_PARAMETER_VALUE", "RESOURCE_DOES_NOT_EXIST", "BAD_REQUEST")
BATCH_EVERY = 0.25
BATCH_EVENTS = 200
RETRY_EVERY = 2.0
# How long a sweep waits at its end for a server that does not answer, in seconds: one that ends by itself, by a signal, for lack of disk.
CLOSE_WITHIN, STOP_WITHIN, CLOSE_SOON = 60.0, 15.0, 1.0


def default_uri(root: Path) -> str:
    """MLflow 3 refuses the file store; the embedded default is SQLite in the root of all sweeps."""
    return f"sqlite:///{(root / 'mlflow.db').resolve()}"


def _is_final(error: Exception) -> bool:
    """Return whether the same request would fail again: MLflow refuses it, or a text in it cannot be encoded.

    MLflow's own store wraps an encoding error like a fault of the server. Other errors may pass.
    """
    from mlflow.exceptions import MlflowException

    if isinstance(error, MlflowException):
        return error.error_code in REFUSALS or isinstance(error.__cause__, UnicodeError)
    return isinstance(error, UnicodeError)


class Tracker:
    """Writes a sweep to MLflow from a thread of its own.

    Args:
        uri: tracking URI.
        root: the folder of all sweeps; a new experiment of the embedded store keeps its artifacts there.
        experiment: the experiment's name.
        sweep: the parent run's name, which is that of the sweep's folder in the root.
        started: when the sweep began, seconds since the epoch.
    """

    def __init__(self, uri: str, root: Path, experiment: str, sweep: str, started: float):
        self.uri, self.root, self.experiment, self.sweep, self.started = uri, root, experiment, sweep, started
        self.parent: str | None = None
        self.error: str | None = None
        self.waiting = False  # for a server that does not answer
        self._runs: dict[int, str] = {}
        self._whole: set[int] = set()  # trials of an earlier driver of which the server has the end
        self._logged: dict[int, dict[Path, tuple[int, int]]] = {}  # of trials that have ended: their files, as they were logged
        self._objectives: list[str] = []
        self._constrained = False
        self._events: queue.SimpleQueue = queue.SimpleQueue()
        self._done = threading.Event()
        self._answered = 0.0  # when the server last took something, by the monotonic clock
        self._client: Any = None
        self._thread = threading.Thread(target=self._work, name="mlflow", daemon=True)
        # A server that is away must not hold the thread for MLflow's default of minutes.
        # Nor may it ask again by itself, as it did not hear that a run was made: who asks again here looks for it first.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
        self._thread.start()

    # ---- said by the driver; none of these waits

    def tag_parent(self, tags: dict[str, str], params: dict[str, str] | None = None) -> None:
        self._say("parent", tags, params or {})

    def artifact(self, name: str, text: str) -> None:
        """A text file beside the parent run."""
        self._say("artifact", name, text)

    def describe(self, space: Space) -> None:
        """Log how the sweep searches, and save what MLflow's UI shows of its trials and of all sweeps of the experiment."""
        self._say("describe", space)

    def report(self, markdown: str, html: str, best: Trial | None) -> None:
        """The sweep's report: the parent run's description and two files beside it; and the best trial's configuration as its tags."""
        self._say("report", markdown, html, best)

    def go_on(self, told: Callable[[Container[int]], Iterable[Told]]) -> None:
        """Tell again what the server may have missed of the trials that an earlier driver has begun.

        Args:
            told: what there is to tell of all trials but those of the numbers it is called with. It is called where the tracker works.
        """
        self._say("go_on", told)

    def begin(self, trial: Trial, began: float) -> None:
        self._say("begin", trial, began)

    def reports(self, number: int, reports: tuple[Report, ...]) -> None:
        if reports:
            self._say("reports", number, reports)

    def end(self, number: int, result: Result, ended: float) -> None:
        self._say("end", number, result, ended)

    def tag(self, number: int, tags: dict[str, str]) -> None:
        """Tags of a trial."""
        self._say("tag", number, tags)

    def metrics(self, values: dict[str, float], at: float) -> None:
        """Metrics of the sweep as a whole."""
        self._say("metrics", values, at)

    def finish(self, status: str, ended: float) -> None:
        self._say("finish", status, ended)

    def close(self, timeout: float = CLOSE_WITHIN) -> bool:
        """Wait until all is written; False if the server stayed away for `timeout` seconds."""
        self._say("close")
        self._answered = time.monotonic()
        while self._thread.is_alive() and time.monotonic() - self._answered < timeout:
            self._thread.join(0.2)
        self._done.set()
        return not self._thread.is_alive()

    def _say(self, kind: str, *what: Any) -> None:
        self._events.put((kind, what))

    # ---- the thread

    def _work(self) -> None:
        try:
            import mlflow.tracking  # noqa: F401 - a second or two, while the sweep starts

            events = [self._events.get()]
            if events[0][0] in ("finish", "close"):
                return self._changed(1)  # it never began: nothing to tell
            self._insist(self._open)
            self._changed()
            while True:
                events = events or [self._events.get()]
                time.sleep(BATCH_EVERY if events[0][0] != "close" else 0)
                with contextlib.suppress(queue.Empty):
                    while True:
                        events.append(self._events.get_nowait())
                said = [e for e in events if e[0] != "close"]
                for begin in range(0, len(said), BATCH_EVENTS):  # of a long queue a part at a time, so that it is seen to get on
                    self._insist(functools.partial(self._write, part := said[begin : begin + BATCH_EVENTS]))
                    self._changed(len(part))
                if any(kind == "close" for kind, _ in events):
                    return self._changed(1)
                events = []
        except Exception as e:
            self.error = masked(f"{type(e).__name__}: {e}")
            self._changed()
            log.error("MLflow: giving up\n%s", masked(traceback.format_exc()))

    def _changed(self, written: int = 0, answered: bool = False) -> None:
        """Called when `parent`, `error` or `waiting` may have changed, so many events were written, or the server took part of one."""

    def _insist(self, action: Callable[[], None]) -> None:
        """Try until the server is there; what the server refuses for good is written to the log and left."""
        from mlflow.exceptions import MlflowException

        while True:
            try:
                action()
                self.waiting, self._answered = False, time.monotonic()
                return
            except (MlflowException, UnicodeError, OSError) as e:
                if _is_final(e):
                    return self._refused(e)
                reason = e
            if not self.waiting:
                log.warning("MLflow at %s does not answer, trying again: %s", without_password(self.uri), masked(str(reason)))
            self.waiting = True
            self._changed()
            if self._done.wait(RETRY_EVERY):
                raise TimeoutError("the sweep ended before the server came back") from reason

    def _open(self) -> None:
        sqlite_tables.make(self.uri)
        self._client = client = Client(self.uri)
        found = client.get_experiment_by_name(self.experiment)
        if found is not None:
            self.experiment_id = found.experiment_id
            if KIND not in found.tags:
                client.set_experiment_tag(self.experiment_id, KIND, MACHINE_LEARNING)
        else:
            place = (self.root / "mlartifacts" / self.experiment).resolve().as_uri() if self.uri.startswith("sqlite") else None
            self.experiment_id = client.create_experiment(self.experiment, artifact_location=place, tags={KIND: MACHINE_LEARNING})
        began = round(self.started * 1000)  # a sweep of the same name may have begun in the same second elsewhere
        self.parent = self._run(
            f"tags.`sweeps.sweep` = '{self.sweep}' and tags.`sweeps.kind` = 'sweep' and attributes.start_time = {began}"
        )
        if self.parent is None:
            tags = {"sweeps.kind": "sweep", "sweeps.sweep": self.sweep}
            run = client.create_run(self.experiment_id, began, tags, run_name=self.sweep)
            self.parent = run.info.run_id
        else:  # a sweep that goes on
            client.update_run(self.parent, status="RUNNING")
            for run in client.search_runs([self.experiment_id], f"tags.`mlflow.parentRunId` = '{self.parent}'", max_results=50_000):
                number = int(run.data.tags["sweeps.trial"])
                self._runs[number] = run.info.run_id
                if run.info.status in ("FINISHED", "FAILED"):  # which is said last of all
                    self._whole.add(number)

    def _run(self, where: str) -> str | None:
        runs = self._client.search_runs([self.experiment_id], where, max_results=1)
        return runs[0].info.run_id if runs else None

    def _write(self, events: list[tuple[str, tuple]]) -> None:
        """Write events; safe to call again with the same ones after it failed half way."""
        from mlflow.entities import Metric, Param, RunTag

        metrics: dict[str, list] = defaultdict(list)
        params: dict[str, dict[str, str]] = defaultdict(dict)
        tags: dict[str, dict[str, str]] = defaultdict(dict)
        ends: list[tuple[str, str, int]] = []
        begun: list[Trial] = []
        over: list[int] = []  # trials
        assert self.parent is not None
        for kind, what in self._with_the_missed(events):
            if kind == "parent":
                tags[self.parent].update(what[0])
                params[self.parent] |= {legal(k): v[:PARAM_LENGTH] for k, v in what[1].items()}
            elif kind == "artifact":
                self._client.log_text(self.parent, what[1], what[0])
            elif kind == "describe":
                self._objectives = [objective.metric for objective in what[0].objectives]
                self._constrained = bool(what[0].constraints)
                self._permit(self._save_views, what[0])
                told = {legal(k): v[:PARAM_LENGTH] for k, v in settings(what[0]).items()}
                known = self._client.get_run(self.parent).data.params  # of an earlier driver: a parameter cannot be changed
                params[self.parent] |= {k: v for k, v in told.items() if k not in known}
            elif kind == "report":
                tags[self.parent] |= self._report(*what)
            elif kind == "begin":
                trial, began = what
                if trial.number in self._runs:  # it goes on
                    self._permit(functools.partial(self._client.update_run, self._runs[trial.number], status="RUNNING"))
                run = self._child(trial, began)
                params[run] |= {legal(k): v for k, v in parameters(trial).items()}
                tags[run] |= {"sweeps.pbt": trial.lineage} if trial.lineage else {}
                begun.append(trial)
            elif kind == "reports":
                run = self._runs[what[0]]
                for report in what[1]:
                    metrics[run] += [Metric(legal(k), v, int(report.time * 1000), report.step) for k, v in report.metrics.items()]
            elif kind == "end":
                number, result, ended = what
                run, at = self._runs[number], int(ended * 1000)
                tags[run]["sweeps.state"] = result.state.value if result.state is not State.RUNNING else "INTERRUPTED"
                if self._constrained:
                    tags[run]["sweeps.feasible"] = str(result.feasible).lower()
                if result.error:
                    tags[run]["sweeps.error"] = result.error[-4000:]
                if result.state is not State.RUNNING:  # it may go on, and a metric cannot be taken back
                    whole = {"objective": result.value, "steps": result.steps, "seconds": result.seconds}
                    whole |= {name: result.metrics[name] for name in COSTS if name in result.metrics}
                    if len(self._objectives) > 1:
                        whole |= {legal(f"objective.{o}"): v for o, v in zip(self._objectives, result.values, strict=False)}
                    whole |= {legal(f"final/{name}"): value for name, value in result.final.items()}
                    metrics[run] += [Metric(k, v, at, 0) for k, v in whole.items() if v is not None]
                    over.append(number)
                ends.append((run, STATUS[result.state], at))
            elif kind == "tag":
                tags[self._runs[what[0]]] |= what[1]
            elif kind == "metrics":
                metrics[self.parent] += [Metric(k, v, int(what[1] * 1000), 0) for k, v in what[0].items()]
            elif kind == "finish":
                ends.append((self.parent, what[0], int(what[1] * 1000)))
                over += self._logged  # one that a rung stopped may have written more since
        for run in {**metrics, **params, **tags}:
            once = [Param(k, v) for k, v in params[run].items()]  # said twice in a batch, MLflow refuses the whole
            self._permit(self._batch, run, metrics[run], once, [RunTag(k, v) for k, v in tags[run].items()])
        for trial in begun:  # not before its parameters are there: a loop may log some of the same names
            self._note_run(trial)
        for number in dict.fromkeys(over):
            self._log_files(number)
        for run, status, at in ends:
            self._permit(self._client.set_terminated, run, status, at)

    def _note_run(self, trial: Trial) -> None:
        """Leave word in the trial's folder of its run, for a loop that logs to MLflow itself."""
        folder = self._folder(trial.number)
        if folder.is_dir():
            run = {"tracking_uri": without_password(self.uri), "experiment_id": self.experiment_id, "run_id": self._runs[trial.number]}
            write(folder / RUN, json.dumps(run) + "\n")

    def _log_files(self, number: int) -> None:
        """Log what a trial's loop has written to its folder of files, as far as that has changed since it was last logged."""
        logged, top = self._logged.setdefault(number, {}), self._folder(number) / FILES
        for path in sorted(top.rglob("*")):
            try:
                if not path.is_file() or logged.get(path) == (now := (path.stat().st_size, path.stat().st_mtime_ns)):
                    continue
                place = Path(FILES, path.relative_to(top)).parent
                self._permit(self._client.log_artifact, self._runs[number], str(path), str(place))
            except (FileNotFoundError, PermissionError, shutil.Error) as e:  # the file's fault, not the server's
                log.error("MLflow: %s is not logged: %s", path, masked(str(e)))
                continue
            logged[path] = now
            self._answered = time.monotonic()
            self._changed(answered=True)

    def _folder(self, number: int) -> Path:
        return self.root / self.sweep / "trials" / f"{number:04d}"

    def _with_the_missed(self, events: list[tuple[str, tuple]]) -> Iterator[tuple[str, tuple]]:
        """The events, with all that there is to tell of earlier trials in the place of `go_on`."""
        for kind, what in events:
            if kind != "go_on":
                yield kind, what
                continue
            try:
                missed = list(what[0](self._whole))
            except Exception as e:  # a database that is away, as a server may be
                raise ConnectionError(f"the study cannot be read: {e}") from e
            for trial, began, reports, result, ended in missed:
                yield "begin", (trial, began)
                yield "reports", (trial.number, reports)
                yield "end", (trial.number, result, ended)

    def _permit(self, action: Callable[..., Any], *what: Any) -> None:
        """Do what the server may refuse for good, of one run, without harm to the others."""
        from mlflow.exceptions import MlflowException

        try:
            action(*what)
        except (MlflowException, UnicodeError) as e:
            if not _is_final(e):
                raise
            self._refused(e)

    def _refused(self, error: Exception) -> None:
        self.error = masked(str(error))
        log.error("MLflow refused: %s", self.error)

    def _save_views(self, space: Space) -> None:
        trials = views.saved(f"{self.sweep}: trials", self.started, views.trials_view(self.sweep, space))
        sweeps = views.saved("all sweeps", self.started, views.sweeps_view(space))
        for name, value in {self.sweep: trials, views.ALL_SWEEPS: sweeps}.items():
            self._client.set_experiment_tag(self.experiment_id, views.VIEW_TAG + name, value)

    def _report(self, markdown: str, html: str, best: Trial | None) -> dict[str, str]:
        """Write the report's files; the parent's tags."""
        self._client.log_text(self.parent, markdown, "report.md")
        self._client.log_text(self.parent, html, "report.html")
        assert self.parent is not None
        links = {
            "All trials, best first": views.runs_link("", self.experiment_id, self.sweep),
            "Charts": views.runs_link("", self.experiment_id, self.sweep, chart=True),
            "Report with figures": views.run_link("", self.experiment_id, self.parent, "report.html"),
            "Space file": views.run_link("", self.experiment_id, self.parent, "space.yaml"),
        }
        tags: dict[str, str] = {}
        if best is not None and best.number in self._runs:
            run = self._runs[best.number]
            links = {f"Trial {best.id}": views.run_link("", self.experiment_id, run), **links}
            logged, tuned = parameters(best), {"preprocessor", "scaling.num_workers", *best.labels}
            tags = {"sweeps.best_run": run, **{legal(f"best.{k}"): v for k, v in logged.items() if k in tuned}}
            for name in self._client.get_run(self.parent).data.tags:
                if name.startswith("best.") and name not in tags:  # of an earlier winner
                    self._client.delete_tag(self.parent, name)
        return {**tags, NOTE: described(markdown, links)}

    def _child(self, trial: Trial, began: float) -> str:
        if trial.number not in self._runs:
            tags = {"mlflow.parentRunId": self.parent, "sweeps.kind": "trial", "sweeps.sweep": self.sweep}
            tags |= {"sweeps.trial": trial.id, "sweeps.seed": str(trial.seed)}
            tags |= {} if trial.origin is None else {"sweeps.repeats": f"{trial.origin:04d}"}
            mine = f"tags.`mlflow.parentRunId` = '{self.parent}' and tags.`sweeps.trial` = '{trial.id}'"
            found = self._run(mine) if self.waiting else None  # the server went away: it may have made the run and not said so
            if found is None:
                found = self._client.create_run(self.experiment_id, int(began * 1000), tags, run_name=trial.id).info.run_id
            self._runs[trial.number] = found
        return self._runs[trial.number]

    def _batch(self, run: str, metrics: list, params: list, tags: list) -> None:
        first = True
        while first or metrics or params or tags:
            room = BATCH_METRICS - len(params[:BATCH_PARAMS]) - len(tags[:BATCH_PARAMS])
            self._client.log_batch(run, metrics[:room], params[:BATCH_PARAMS], tags[:BATCH_PARAMS])
            metrics, params, tags, first = metrics[room:], params[BATCH_PARAMS:], tags[BATCH_PARAMS:], False
