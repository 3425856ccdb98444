"""Direct a training loop's own MLflow calls to the run of its trial, and reset MLflow after each trial.

MLflow calls the function `get_tracking_uri` to find the server to log to. This function reads an
environment variable. At the first such call inside a trial, this module finds the trial's run and
sets the variable. If a loop never uses MLflow, this module does not import MLflow.

The driver's MLflow tracker creates the run and writes the run's id to the file `MLFLOW_RUN` in the
trial's folder. If the server does not answer in time, the loop logs to an SQLite file in the
trial's folder. Only the sweep sets the run's status, end time and name. If a loop changes one of
the three, the change is dropped.

All uses of MLflow's private parts are in this file. tests/execution/test_loop_mlflow.py shows what
a new MLflow version breaks.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import http.client
import inspect
import json
import os
import socket
import ssl
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sweeps.core.safe_names import loop_name
from sweeps.core.sweep_folder import MLFLOW_RUN
from sweeps.execution.import_hook import ImportHook

# Module of MLflow's fluent API. After its import, all modules that this file patches are imported.
FLUENT = "mlflow.tracking.fluent"
URI, RUN_ID = "MLFLOW_TRACKING_URI", "MLFLOW_RUN_ID"
# Time limits in seconds: for the server to answer, and for the tracker to create the trial's run.
ANSWER_WITHIN, RUN_WITHIN = 10.0, 60.0
# The same limits for a process in which an earlier trial found no run.
ANSWER_AGAIN, RUN_AGAIN = 1.0, 5.0
LOOK_EVERY = 0.1
PORTS = {"http": 80, "https": 443, "postgresql": 5432, "mysql": 3306, "mssql": 1433}
# Limits for calls of a server. By default, MLflow retries for minutes.
BOUNDS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": f"{ANSWER_WITHIN:.0f}",
}
# Methods of a store that log to a run or read a run. The first argument of each is the run's id.
CALLS = ("log_batch", "log_metric", "log_param", "set_tag", "get_run")

_current_run: TrialRun | None = None
_last_wait_failed = False


def watch() -> None:
    """Patch MLflow in this process, now or when MLflow is imported.

    MLflow then logs to the run of the trial that this process runs.
    """
    if FLUENT in sys.modules:
        _attach(sys.modules[FLUENT])
    elif not any(
        isinstance(finder, ImportHook) and finder.module == FLUENT for finder in sys.meta_path
    ):
        sys.meta_path.insert(0, ImportHook(FLUENT, _attach))


@contextlib.contextmanager
def logged(run: TrialRun, keep: bool = False) -> Iterator[None]:
    """Within the block, MLflow logs to this run.

    Afterwards, end the runs that the loop left active and restore MLflow's settings.

    Args:
        run: Run of the running trial.
        keep: Whether to keep the changes that the block makes to MLflow's settings. True for the
            import of the user's module, because the settings of the module apply to all trials.
    """
    global _current_run
    settings, status = _Settings(), "FINISHED"
    _current_run = run
    try:
        yield
    except Exception:  # `Stopped` is no Exception: a trial that the scheduler stops has not failed.
        status = "FAILED"
        raise
    finally:
        try:
            fluent: Any = sys.modules.get(FLUENT)
            if fluent is not None:
                _end_runs(fluent, run, status)
                if not keep:
                    settings.put_back(fluent)
                elif (
                    fluent._active_experiment_id == run.experiment
                ):  # The run set this experiment, and not the user's module.
                    fluent._active_experiment_id = settings.experiment
        except (
            Exception
        ) as e:  # A trial must not fail because MLflow's settings cannot be restored.
            run.say(
                "the settings of MLflow could not be restored after the trial: "
                f"{type(e).__name__}: {e}"
            )
        finally:
            _current_run = None


class TrialRun:
    """The MLflow run that one rank of one trial logs to.

    Args:
        tracking: The sweep's tracking URI. None in a rerun, and if the sweep does not use MLflow.
            In both cases, the loop logs to a file in the trial's folder.
        folder: The trial's folder.
        rank: Rank of this process.

    Attributes:
        uri: Tracking URI that MLflow logs to; None before the loop's first MLflow call.
        id: Id of the run; None before the loop's first MLflow call.
        experiment: Id of the run's experiment; None before the loop's first MLflow call.
        mirror: MLflow's store for the SQLite file to which the loop logs, and the id of the run in
            this store, if the server has stopped answering; else None.
    """

    def __init__(self, tracking: str | None, folder: str | Path, rank: int):
        self.tracking, self.folder, self.rank = tracking, Path(folder), rank
        self.uri: str | None = None
        self.id: str | None = None
        self.experiment: str | None = None
        self.mirror: tuple[Any, str] | None = None
        self._said: set[str] = set()
        self._given = (os.environ.get(URI), os.environ.get(RUN_ID))
        self._lock, self._connecting = threading.RLock(), False

    def connect(self) -> None:
        """Make MLflow log to the trial's run, or to an SQLite file in the trial's folder if the run cannot be reached.

        Do nothing if an earlier call has done this already, or if the loop has set another tracking
        URI.
        """
        with self._lock:
            if (
                self.uri is not None
                or self._connecting
                or os.environ.get(URI) not in (self._given[0], self.tracking)
            ):
                return
            self._connecting = True
            try:
                self._connect()
            finally:
                self._connecting = False

    def _connect(self) -> None:
        from mlflow.tracking._tracking_service.utils import _get_store

        fluent: Any = sys.modules[FLUENT]
        for name, value in BOUNDS.items():
            os.environ.setdefault(name, value)
        found = None if self.tracking is None else find(self.tracking, self.folder, self.say)
        if found is not None and self.tracking is not None:
            self.uri, self.id, self.experiment = (
                self.tracking,
                found["run_id"],
                found["experiment_id"],
            )
            _guard(_get_store(self.uri))
        else:
            self.uri, self.experiment, self.id = self._local()
        os.environ[URI] = self.uri
        if fluent._active_experiment_id is None:
            fluent._active_experiment_id = self.experiment

    def _local(self) -> tuple[str, str, str]:
        """Create a run in an SQLite file in the trial's folder.

        Returns:
            The tracking URI of the file, the id of the experiment, and the id of the run.
        """
        from mlflow.tracking import MlflowClient

        name = (
            f"mlflow-rank-{self.rank}" if self.rank else "mlflow"
        )  # Two ranks cannot create the tables of one file at the same time.
        uri = f"sqlite:///{self.folder.resolve() / name}.db"
        client = MlflowClient(uri)
        made = client.get_experiment_by_name(
            "trial"
        )  # An earlier attempt may have created the experiment.
        artifacts = (self.folder / f"{name}-artifacts").resolve().as_uri()
        experiment = made.experiment_id if made else client.create_experiment("trial", artifacts)
        run = client.create_run(experiment, run_name=self.folder.name).info.run_id
        self.say(
            f"the data that the loop logs to MLflow is written to {uri}; `mlflow ui "
            f"--backend-store-uri {uri}` shows this data"
        )
        return uri, experiment, run

    @property
    def logs_here(self) -> bool:
        """True if the next `start_run` must use the trial's run.

        False if the loop has set another tracking URI or experiment.
        """
        from mlflow.tracking import fluent
        from mlflow.tracking._tracking_service import utils

        if utils._tracking_uri not in (None, self.tracking):
            return False
        self.connect()
        return utils.get_tracking_uri() == self.uri and fluent._active_experiment_id in (
            None,
            self.experiment,
        )

    def forget_outer_run(self) -> None:
        """Remove the environment variable `MLFLOW_RUN_ID` if it still has the value that it had before the trial.

        In this case, the variable names a run of the process that started the sweep, and not the
        trial's run.
        """
        if self._given[1] is not None and os.environ.get(RUN_ID) == self._given[1]:
            del os.environ[RUN_ID]

    def calls(self, name: str, plain: Callable[..., Any], given: dict[str, Any]) -> Any:
        """Call a method of MLflow's store for this run.

        If the server does not answer, this call and later calls use the SQLite file.

        Args:
            name: Name of the method, one of `CALLS`.
            plain: The method without the patch of this module.
            given: Arguments of the call, by name.
        """
        given = {key: self._renamed(value) for key, value in given.items()}
        if logs_params := name in ("log_batch", "log_param"):
            given = self._without_known(plain, given)
        if self.mirror is None:
            try:
                return plain(**given)
            except Exception as e:
                if logs_params and "IntegrityError" in str(
                    e
                ):  # Another rank logged the same parameter at the same time.
                    return plain(**self._without_known(plain, given))
                if self.tracking is None or answers(self.tracking, ANSWER_AGAIN):
                    raise
            from mlflow.tracking._tracking_service.utils import _get_store

            self.say(f"MLflow at {_shown(self.tracking)} no longer answers")
            uri, _, run = self._local()
            self.mirror = _get_store(uri), run
        store, run = self.mirror
        return getattr(store, name)(**{**given, "run_id": run})

    def _renamed(self, value: Any) -> Any:
        """Return an argument of a call.

        Metrics and tags with a name that sweeps itself uses get another name; see `loop_name`.
        """
        if isinstance(value, list | tuple):
            return [self._renamed(inner) for inner in value]
        key = getattr(value, "key", "")
        if key == (name := loop_name(key)) or type(value).__name__ == "Param":
            return value
        self.say(f"`{key}` is logged to MLflow as `{name}`, because sweeps itself logs `{key}`")
        value = copy.copy(value)
        value._key = name
        return value

    def _without_known(self, plain: Callable[..., Any], given: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call that logs parameters, changed so that each parameter that the run already has keeps its value.

        MLflow would reject the whole call for one such parameter. In a batch, the parameter is left
        out. In a call for one parameter, the run's value replaces the new one.
        """
        params = [given["param"]] if "param" in given else given.get("params") or ()
        if not params or self.mirror is not None:
            return given
        known: dict[str, str] = {}
        with contextlib.suppress(Exception):  # The call itself will report the error.
            known = plain.__self__.get_run(self.id).data.params  # type: ignore[attr-defined]
        others = [p for p in params if known.get(p.key, str(p.value)) != str(p.value)]
        for param in others:
            kept = (
                f"in MLflow, the trial's parameter `{param.key}` keeps the value {known[param.key]}"
            )
            self.say(f"{kept}; the value {param.value} that the loop logged is ignored")
        if not others:
            return given
        if "param" in given:
            return {**given, "param": type(others[0])(others[0].key, known[others[0].key])}
        return {**given, "params": [p for p in params if p not in others]}

    def is_run(self, run_id: Any) -> bool:
        """Return whether `run_id` is the id of the trial's run, or of the run in the SQLite file that replaces it."""
        return self.id is not None and run_id in (self.id, self.mirror and self.mirror[1])

    def say(self, line: str) -> None:
        """Write a line to the trial's log, unless it was written before.

        The line is logged even if the loop has replaced `sys.stderr`.
        """
        if line not in self._said:
            self._said.add(line)
            with contextlib.suppress(OSError):
                os.write(2, f"--- {line}\n".encode(errors="replace"))


# ---- find the trial's run


def find(tracking: str, folder: Path, say: Callable[[str], None]) -> dict[str, str] | None:
    """Wait until the tracker has created the trial's run.

    Args:
        tracking: The sweep's tracking URI.
        folder: The trial's folder, to which the tracker writes the run's id.
        say: Function that writes a line to the trial's log. It is called with the reason if no run
            is found.

    Returns:
        A dict with `run_id` and `experiment_id`. None if the server does not answer in time, if the
        tracker does not create the run in time, or if the tracking URI names an SQLite file that is
        not on this node.
    """
    global _last_wait_failed
    within, made_within = (
        (ANSWER_AGAIN, RUN_AGAIN) if _last_wait_failed else (ANSWER_WITHIN, RUN_WITHIN)
    )
    began, shown, found = time.monotonic(), _shown(tracking), None
    while (
        not (reachable := answers(tracking, max(LOOK_EVERY, began + within - time.monotonic())))
        and time.monotonic() - began < within
    ):
        time.sleep(LOOK_EVERY)
    while (
        reachable
        and (found := _recorded_run(folder, shown)) is None
        and time.monotonic() - began < made_within
    ):
        time.sleep(LOOK_EVERY)
    if (
        reachable
        and found is not None
        and (file := _file_of(tracking)) is not None
        and not file.exists()
    ):
        say(f"MLflow's database {file} is not on this node")
        found = None
    elif found is None:
        say(
            f"MLflow at {shown} {'has no run of this trial' if reachable else 'does not answer'} "
            f"after {time.monotonic() - began:.0f} s"
        )
    _last_wait_failed = found is None
    return found


def _shown(tracking: str) -> str:
    """Return a tracking URI without its password, for logs."""
    from sweeps.core.secrets import (
        without_password,
    )  # Imported here, because only workers whose loop uses MLflow need it.

    return without_password(tracking)


def _recorded_run(folder: Path, shown: str) -> dict[str, str] | None:
    """Return the dict that the tracker has written to the trial's folder; None if there is none, or if the run is on another server."""
    try:
        noted = json.loads((folder / MLFLOW_RUN).read_text())
    except (OSError, ValueError):
        return None
    return noted if noted.get("tracking_uri") == shown else None


def _file_of(tracking: str) -> Path | None:
    """Return the file of an SQLite tracking URI; None for other URIs."""
    return (
        Path(tracking.partition("///")[2].partition("?")[0])
        if tracking.startswith("sqlite")
        else None
    )


def answers(tracking: str, within: float) -> bool:
    """Return whether a tracking server answers.

    Args:
        tracking: Tracking URI. If it names a file, or has a scheme that is not in `PORTS`, the
            result is always True.
        within: Timeout in seconds.
    """
    parts = urllib.parse.urlsplit(tracking)
    scheme = parts.scheme.partition("+")[0]
    try:
        if scheme in ("http", "https"):
            address = parts._replace(
                netloc=parts.netloc.rpartition("@")[2], query="", fragment=""
            ).geturl()
            urllib.request.urlopen(address, timeout=within).close()
        elif parts.hostname and scheme in PORTS:
            socket.create_connection((parts.hostname, parts.port or PORTS[scheme]), within).close()
    except urllib.error.HTTPError:
        return True  # The server answers, for example with a request for a password.
    except (OSError, http.client.HTTPException) as e:
        return isinstance(
            getattr(e, "reason", e), ssl.SSLError
        )  # MLflow's client decides whether to trust the certificate.
    return True


# ---- patch MLflow


def _attach(fluent: Any) -> None:
    """Patch MLflow's fluent API, so that loops log to their trial's run.

    Do nothing if it is patched already.

    Args:
        fluent: Module of the fluent API.
    """
    if hasattr(fluent, "_sweeps_attached"):
        return
    fluent._sweeps_attached = True
    from mlflow.tracking._tracking_service import utils

    variable: Any = utils.MLFLOW_TRACKING_URI
    plain = variable.get

    def get() -> Any:
        if _current_run is not None:
            _current_run.connect()
        return plain()

    variable.get = get
    start, signature = fluent.start_run, inspect.signature(fluent.start_run)

    @functools.wraps(start)
    def start_run(*args: Any, **kwargs: Any) -> Any:
        """Replacement of MLflow's `start_run`. It makes the trial's run active.

        With `nested`, it starts a child of the trial's run.
        """
        given, run = dict(signature.bind(*args, **kwargs).arguments), _current_run
        if run is not None:
            run.forget_outer_run()
            elsewhere = (
                given.get("run_id") or os.environ.get(RUN_ID) or fluent._active_run_stack.get()
            )
            if (
                not elsewhere
                and run.logs_here
                and given.get("experiment_id") in (None, run.experiment)
            ):
                if given.get("nested") or given.get("parent_run_id"):
                    given["parent_run_id"] = given.get("parent_run_id") or run.id
                else:
                    given["run_id"] = run.id
        return start(**given)

    fluent.start_run = start_run
    top: Any = sys.modules.get("mlflow")
    if getattr(top, "start_run", None) is start:  # MLflow was imported before the patch.
        top.start_run = start_run


def _guard(store: Any) -> None:
    """Patch an MLflow store, so that a loop cannot change the status, end time and name of the trial's run.

    If the store's server stops answering, calls for the trial's run use an SQLite file instead; see
    `TrialRun.calls`.
    """
    if hasattr(
        store, "_sweeps_guards"
    ):  # MLflow caches stores, so a store serves later trials as well.
        return
    store._sweeps_guards = True
    for name in (*CALLS, "update_run_info"):
        setattr(store, name, _guarded(store, name))


def _guarded(store: Any, name: str) -> Callable[..., Any]:
    plain = getattr(store, name)
    signature = inspect.signature(plain)

    @functools.wraps(plain)
    def call(*args: Any, **kwargs: Any) -> Any:
        given, run = dict(signature.bind(*args, **kwargs).arguments), _current_run
        if run is None or not run.is_run(given["run_id"]):
            return plain(**given)
        if name == "update_run_info":
            return store.get_run(given["run_id"]).info
        return run.calls(name, plain, given)

    return call


# ---- restore MLflow


def _end_runs(fluent: Any, run: TrialRun, status: str) -> None:
    """End the runs that a loop has left active in any thread.

    The trial's run on the server stays active, because the sweep will end it.

    Args:
        fluent: Module of MLflow's fluent API.
        run: Run of the trial.
        status: Status for the ended runs: "FINISHED" or "FAILED".
    """
    for monitor in list(fluent.run_id_to_system_metrics_monitor.values()):
        monitor.finish()
    fluent.run_id_to_system_metrics_monitor.clear()
    left = [
        active
        for stack in fluent._active_run_stack.get_all_thread_values().values()
        for active in stack
    ]
    ends = [
        active.info.run_id
        for active in left
        if run.uri != run.tracking or not run.is_run(active.info.run_id)
    ]
    if (
        run.uri is not None and run.uri != run.tracking
    ):  # The run is in a file, so the sweep does not end it.
        ends.append(run.id)
    for run_id in dict.fromkeys(ends):
        with contextlib.suppress(Exception):  # The loop may have set another server since.
            fluent.MlflowClient().set_terminated(run_id, status)
    if run.mirror is not None:
        from mlflow.entities import RunStatus

        store, run_id = run.mirror
        store.update_run_info(run_id, RunStatus.from_string(status), int(time.time() * 1000), None)
    elif run.uri is not None:
        with contextlib.suppress(Exception):
            fluent._get_store(run.uri).flush_async_logging()
    for value in vars(fluent).values():
        if (
            type(value).__name__ == "ThreadLocalVariable"
        ):  # The active run, the last run and the last model.
            value.reset()


class _Settings:
    """MLflow's settings in this process before a trial.

    Settings in environment variables are left out, because `isolation.isolated` restores them.
    """

    def __init__(self) -> None:
        self.tracking: str | None = None
        self.registry: str | None = None
        self.experiment: str | None = None
        self.autologs: dict[str, Any] = {}
        self.hooks: dict[str, list[Any]] = {}
        if fluent := sys.modules.get(FLUENT):
            from mlflow.tracking._model_registry import utils as registry
            from mlflow.tracking._tracking_service import utils
            from mlflow.utils import autologging_utils, import_hooks

            self.tracking, self.registry = utils._tracking_uri, registry._registry_uri
            self.experiment = fluent._active_experiment_id
            self.autologs = dict(autologging_utils.AUTOLOGGING_INTEGRATIONS)
            self.hooks = {
                name: list(hooks) for name, hooks in import_hooks._post_import_hooks.items()
            }

    def put_back(self, fluent: Any) -> None:
        """Restore the settings, and undo calls of `mlflow.autolog`, also for libraries that are not imported yet.

        Args:
            fluent: Module of MLflow's fluent API.
        """
        from mlflow.tracking._model_registry import utils as registry
        from mlflow.tracking._tracking_service import utils
        from mlflow.utils import autologging_utils, import_hooks

        utils.set_tracking_uri(self.tracking)  # type: ignore[arg-type]
        registry._registry_uri = self.registry  # type: ignore[assignment]
        fluent._active_experiment_id = self.experiment
        for name, given in autologging_utils.AUTOLOGGING_INTEGRATIONS.items():
            if given != (before := self.autologs.get(name, {})):
                autologging_utils.revert_patches(name)
                autologging_utils.AUTOLOGGING_INTEGRATIONS[name] = before
        hooks = import_hooks._post_import_hooks
        for name in list(hooks):
            if hooks[name] and name not in self.hooks:
                del hooks[name]
            elif hooks[name]:
                hooks[name][:] = self.hooks[name]
