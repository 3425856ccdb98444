"""One attempt at a trial of the trainer `command`, on one rank."""

import contextlib
import json
import keyword
import os
import queue
import shlex
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import ray.util
from ray.train.collective import broadcast_from_rank_zero

from sweeps import trial
from sweeps.core.errors import SweepsError
from sweeps.core.plugins.command_template import INTERPRETERS, fill, folder_of
from sweeps.core.plugins.script_report import SOCKET

from . import Params, shard, without
from ._mlflow_files import MlflowFiles
from ._script import Script, state_of
from ._script_reports import CALL, ScriptReport, number_names_in

# The checkpoint folder of the running script, beside `Current.folder`.
CHECKPOINT_DIR = "script_checkpoint"
# The record of the script, in `Current.folder`.
RECORD = "command.json"
# Environment variable that names the folder of the prepared data
DATA_DIR = "SWEEPS_DATA_DIR"
# Variables that name a run or an experiment of the process that started the sweep.
OTHER_RUN = ("MLFLOW_RUN_ID", "MLFLOW_EXPERIMENT_ID", "MLFLOW_EXPERIMENT_NAME")


class ScriptFailed(SweepsError):
    """The script ended with an exit code other than 0, or without a report."""


class ScriptRun:
    """One attempt at a trial on this rank.

    Args:
        config: The trial's parameters.

    Attributes:
        rank: Rank of this worker.
        checkpoint_dir: Folder in which the script saves, and from which it continues. All ranks use
            the same folder.
    """

    def __init__(self, config: Params):
        self.config = config
        self.current = trial.current()
        self.context = ray.train.get_context()
        self.rank = self.context.get_world_rank()
        self.checkpoint_dir = self.current.folder.parent / CHECKPOINT_DIR
        # State of the checkpoint folder when it was last copied.
        self._copied: frozenset[tuple[str, int, int]] = frozenset()
        self._resumed = False
        self._last: Mapping[str, Any] | None = None  # Metrics of the latest report.

    @contextlib.contextmanager
    def started(self) -> Iterator[Script]:
        """Start the script. After the block, stop the script, and record its exit code."""
        address = ("", 0)
        if self.rank == 0:
            self._fill_checkpoint_dir()
            address = _free_address(self.context.get_world_size())
        # The other ranks wait here until the checkpoint folder is filled.
        address = broadcast_from_rank_zero(address)
        work = _temporary_folder()
        mlflow = MlflowFiles(work / "mlflow", self.current.metric, self.current.asked)
        environment = (
            self._environment(*address)
            | mlflow.environment
            | {SOCKET: str(work / "report") if self.rank == 0 else ""}
        )
        try:
            if self.current.check is not None:
                environment[DATA_DIR] = str(_write_shards(work / "data"))
            script = self._start(environment, mlflow, work)
        except BaseException:
            shutil.rmtree(work)
            raise
        self._record(script, None)
        try:
            yield script
        finally:
            try:
                code = script.stop(self.current.options["grace_seconds"])
                _log(f"the command ended {ending(code)}")
                self._record(script, code)
                if self.rank == 0:
                    _copy_mlflow(mlflow)
            finally:
                script.remove_folders()

    def _fill_checkpoint_dir(self) -> None:
        """Empty the checkpoint folder, or fill it with a copy of the checkpoint of the trial.

        The trial continues from this checkpoint.
        """
        shutil.rmtree(self.checkpoint_dir, ignore_errors=True)
        checkpoint = ray.train.get_checkpoint() if self.current.options["resume"] else None
        if checkpoint is None:
            self.checkpoint_dir.mkdir(parents=True)
            return
        with checkpoint.as_directory() as folder:
            shutil.copytree(folder, self.checkpoint_dir)
        self._resumed = True
        self._copied = state_of(self.checkpoint_dir)

    def _environment(self, address: str, port: int) -> dict[str, str]:
        """Return the script's environment variables: this worker's, torchrun's and those of sweeps.

        Args:
            address: Address of the node of rank 0.
            port: A free port of this node.
        """
        context = self.context
        size = str(self.context.get_world_size())
        inherited = without(os.environ, OTHER_RUN)
        torchrun = {
            "RANK": str(self.rank),
            "WORLD_SIZE": size,
            "LOCAL_RANK": str(context.get_local_rank()),
            "LOCAL_WORLD_SIZE": str(context.get_local_world_size()),
            "GROUP_RANK": str(context.get_node_rank()),
            "NODE_RANK": str(context.get_node_rank()),
            "MASTER_ADDR": address,
            "MASTER_PORT": str(port),
            "TORCHELASTIC_RUN_ID": self.current.trial,
        }
        sweeps = {"SWEEPS_CHECKPOINT_DIR": str(self.checkpoint_dir), "PYTHONUNBUFFERED": "1"}
        return {"OMP_NUM_THREADS": str(self.current.threads)} | inherited | torchrun | sweeps

    def _start(self, environment: Mapping[str, str], mlflow: MlflowFiles, work: Path) -> Script:
        """Start the command of the trial.

        Args:
            environment: The script's environment variables.
            mlflow: The folder to which the script logs with MLflow.
            work: Folder for temporary files of this rank.

        Raises:
            ScriptFailed: The program does not exist.
        """
        facts = {
            "trial": self.current.trial,
            "seed": self.current.seed,
            "scaling.num_workers": self.context.get_world_size(),
            "checkpoint_dir": str(self.checkpoint_dir),
            "data_dir": environment.get(DATA_DIR, ""),
        }
        template = self.current.options["command"]
        command = fill(template, self.config, facts)
        if command[0] in INTERPRETERS:
            command[0] = sys.executable
        _log(f"$ {shlex.join(command)}")
        leads = self.rank == 0
        listener = socket.socket(socket.AF_UNIX) if leads else None
        if listener is not None:
            listener.bind(environment[SOCKET])
            listener.listen()
        try:
            return Script(
                command,
                folder_of(template, self.current.roots),
                environment,
                metric=self.current.metric,
                listener=listener,
                mlflow=mlflow if leads else None,
                temporary=[work, self.checkpoint_dir] if leads else [work],
            )
        except OSError as e:
            raise ScriptFailed(
                f"`{command[0]}` cannot be started: {e.strerror}; check `trainer.command`"
            ) from None

    def _record(self, script: Script, code: int | None) -> None:
        """On rank 0, write the command into the trial's folder for other files.

        MLflow shows these files as artifacts.

        Args:
            script: The script.
            code: Its exit code; None while it runs.
        """
        if self.rank:
            return
        record = {"command": script.command, "folder": str(script.folder), "exit_code": code}
        (self.current.folder / RECORD).write_text(json.dumps(record, indent=1) + "\n")

    @contextlib.contextmanager
    def _may_end(self, script: Script, report: ScriptReport) -> Iterator[None]:
        """If the report in the block is the last one of the trial, let the script end by itself.

        The script has `grace_seconds` for this, unless it reports again. Otherwise, it would
        receive SIGTERM before its last lines.
        """
        try:
            yield
        except BaseException as e:
            # Only the exception that stops a loop has this attribute.
            is_last = getattr(e, "finished", False)
            if is_last and script.is_running:
                report.done()
                with contextlib.suppress(queue.Empty):
                    script.events.get(timeout=self.current.options["grace_seconds"])
            raise

    # ---- rank 0

    def lead(self, script: Script) -> None:
        """Report what the script of rank 0 reports, until it has ended.

        Raises:
            ScriptFailed: The script ended with an exit code other than 0, or it has reported
                nothing.
        """
        while not isinstance(event := script.events.get(), int):
            if isinstance(event, ScriptReport):
                self._report(script, event)
            elif event is not None:
                raise event
        _check(script, event)
        metric = self.current.metric
        if self._last is None and not self._resumed and metric is not None:
            raise ScriptFailed(_no_report(script, metric))
        if (
            self._last is not None
            and script.sources.chosen != CALL
            and state_of(self.checkpoint_dir) != self._copied
        ):
            # The script has saved its model after its last report.
            self._report(script, ScriptReport("", self._last, saves=True))
        broadcast_from_rank_zero(False)

    def _report(self, script: Script, report: ScriptReport) -> None:
        """Report a step on this rank, and tell the other ranks to do so."""
        folder = report.checkpoint
        if report.saves and (state := state_of(self.checkpoint_dir)) != self._copied:
            self._copied = state
            folder = self.checkpoint_dir
        broadcast_from_rank_zero(True)
        self._last = report.metrics
        checkpoint = None if folder is None else ray.train.Checkpoint.from_directory(folder)
        with self._may_end(script, report):
            ray.train.report(dict(report.metrics), checkpoint=checkpoint)
        report.done()

    # ---- other ranks

    def follow(self, script: Script) -> None:
        """Report as often as rank 0, until this rank's script and the reports of rank 0 have ended.

        Raises:
            ScriptFailed: The script of this rank ended with an exit code other than 0.
        """
        rank_0_reports = True
        script_runs = True
        _listen(script)
        while rank_0_reports or script_runs:
            event = script.events.get()
            if event is None:
                rank_0_reports = False
            elif isinstance(event, int):
                _check(script, event)
                script_runs = False
            elif isinstance(event, ScriptReport):
                with self._may_end(script, event):
                    ray.train.report({})
                _listen(script)
            else:
                raise event


def _listen(script: Script) -> None:
    """Wait in a thread until rank 0 reports, and put a report into the script's events.

    If the reports of rank 0 have ended, put None.
    """

    def wait() -> None:
        try:
            script.events.put(ScriptReport("", {}) if broadcast_from_rank_zero(None) else None)
        except Exception as e:
            script.events.put(e)

    threading.Thread(target=wait, name="sweeps-rank-0", daemon=True).start()


def _no_report(script: Script, metric: str) -> str:
    """Return the message for a script that has ended without a report."""
    is_keyword_argument = metric.isidentifier() and not keyword.iskeyword(metric)
    arguments = f"{metric}=..." if is_keyword_argument else f'{{"{metric}": ...}}'
    message = (
        f"the command has ended, but has not reported `{metric}`; call "
        f"sweeps.report({arguments}), print a line of JSON such as "
        f'{{"{metric}": 0.5}}, or log the metric with MLflow'
    )
    names = " and ".join(f"`{name}`" for name in number_names_in(script.unused)[:10])
    if names:
        message += f"; its last line of JSON has {names}"
    text = script.metric_text.decode(errors="replace")
    if text:
        message += f"; its output has lines such as `{text}`, which sweeps does not read"
    return message


def _check(script: Script, code: int) -> None:
    """Raise an error if the script's exit code is not 0.

    Raises:
        ScriptFailed: The exit code is not 0. The message has the last lines of standard error.
    """
    if code:
        message = f"`{shlex.join(script.command)}` ended {ending(code)}"
        if script.last_errors:
            message += f"; its last lines on standard error:\n{script.last_errors}"
        raise ScriptFailed(message)


def ending(code: int) -> str:
    """Return a text about the end of a process, given its exit code.

    The exit code is negative after a signal.

    >>> ending(3), ending(-9)
    ('with exit code 3', 'by the signal SIGKILL')
    """
    return f"with exit code {code}" if code >= 0 else f"by the signal {signal.Signals(-code).name}"


def _free_address(workers: int) -> tuple[str, int]:
    """Return an address of this node that all workers reach, and a free port."""
    util: Any = ray.util  # has no types
    with socket.socket() as probe:
        probe.bind(("", 0))
        return "127.0.0.1" if workers == 1 else util.get_node_ip_address(), probe.getsockname()[1]


def _temporary_folder() -> Path:
    """Create a temporary folder whose path is short enough for a socket.

    The path of a socket may have at most 107 characters.
    """
    parent = "/tmp" if len(tempfile.gettempdir()) > 70 else None
    return Path(tempfile.mkdtemp(prefix="sweeps-script-", dir=parent))


def _write_shards(folder: Path) -> Path:
    """Write this rank's part of the prepared data to a new folder, and return the folder.

    The files are train.parquet and valid.parquet.
    """
    folder.mkdir()
    for name in ("train", "valid"):
        shard(name).to_parquet(folder / f"{name}.parquet", index=False)
    return folder


def _copy_mlflow(mlflow: MlflowFiles) -> None:
    """Copy what the script logged with MLflow to the trial's run. An error is only logged."""
    try:
        mlflow.copy_to_run()
    except Exception as e:  # MLflow must not fail the trial.
        _log(
            "what the script logged with MLflow could not be copied to the trial's run: "
            f"{type(e).__name__}: {e}"
        )


def _log(line: str) -> None:
    """Write a line to the trial's log."""
    os.write(2, f"--- {line}\n".encode(errors="replace"))
