"""Run the MLflow tracker in a separate process with low priority.

Tracker and search therefore do not share an interpreter lock.

The driver sends events as pickles, and keeps each event until the process reports that the event is
written. If the process is lost, the driver starts a new process and sends the kept events again.
Writing an event twice has no effect.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TextIO

from sweeps.core.host import logging_setup

from .mlflow_tracker import CloseTracker, Message, MlflowTracker, ProcessEnded
from .sweep_runs import Destination

if TYPE_CHECKING:
    from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

log = logging.getLogger(__name__)

# If the process is lost this many times, it is not started again. A resume then sends the missing
# events, from the study.
STARTS = 5
NICE = 10  # Training has priority.
# MLflow's switch for system metrics.
SYSTEM_METRICS = "MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING"


class TrackerProcess(MlflowTracker):
    """An `MlflowTracker` whose work is done by another process.

    Args:
        destination: Place in MLflow where the sweep is recorded.
        errors: File to which the output of the process is appended.
    """

    def __init__(self, destination: Destination, errors: Path):
        self._errors = errors
        self._unwritten: deque[Message] = deque()
        self._closing = False
        self._process: subprocess.Popen[bytes] | None = None
        super().__init__(destination)

    def _give_up(self) -> None:
        """Kill the process. See `MlflowTracker`."""
        if self._process is not None:
            self._process.kill()

    # The thread sends events, and starts the process

    def _run(self) -> None:
        """Send events to a process. If the process is lost, start another one."""
        code = 0
        for _ in range(STARTS):
            listener = self._start()
            with contextlib.suppress(OSError):  # The process has ended.
                self._send()
            code = self._end(listener)
            if self._stopped.is_set() or (self._closing and code == 0):
                return
        died = f"died {STARTS} times, the last time with exit code {code}"
        self.error = self.error or f"the process that writes to MLflow {died}"

    def _start(self) -> threading.Thread:
        """Start the process, and return the thread that reads its status lines."""
        program = "from sweeps.tracking.mlflow.tracker_process import main; main()"
        command = [sys.executable, "-c", program]
        path = os.pathsep.join(folder or os.getcwd() for folder in sys.path)
        env = {**os.environ, "PYTHONPATH": path}
        with open(self._errors, "ab") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=env
            )
        listener = threading.Thread(
            target=self._listen, args=(self._process.stdout,), name="mlflow-listen", daemon=True
        )
        listener.start()
        return listener

    def _send(self) -> None:
        """Send events until the process ends."""
        assert self._process is not None and self._process.stdin is not None
        pipe = self._process.stdin
        pickle.dump(self.destination, pipe)
        for message in list(self._unwritten):
            pickle.dump(message, pipe)
        pipe.flush()
        while not isinstance(message := self._messages.get(), ProcessEnded):
            self._keep(message)
            pickle.dump(message, pipe)
            pipe.flush()

    def _keep(self, message: Message) -> None:
        """Keep a message, so that it can be sent again until it is written."""
        self._unwritten.append(message)
        self._closing = self._closing or isinstance(message, CloseTracker)

    def _end(self, listener: threading.Thread) -> int:
        """Close the pipe, which ends the process. Wait for the end, and return the exit code."""
        assert self._process is not None and self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        code = self._process.wait()
        listener.join()
        while not self._messages.empty():
            if not isinstance(message := self._messages.get(), ProcessEnded):
                self._keep(message)
        return code

    def _listen(self, pipe: BinaryIO) -> None:
        """Read the status lines of the process until it ends."""
        with pipe:
            for line in pipe:
                status = json.loads(line)
                self.parent = status["parent"]
                self.error = status["error"]
                self.waiting = status["waiting"]
                self.writer.left = status["left"]
                if status["written"] or status["answered"]:
                    self._last_answer = time.monotonic()
                for _ in range(status["written"]):
                    self._unwritten.popleft()
        self._messages.put(ProcessEnded())


# The process


class _Progress:
    """Writes the progress of the tracker to a pipe: JSON objects, one on each line.

    When the run of the sweep is known, MLflow's monitor of this machine starts.
    """

    def __init__(self, pipe: TextIO):
        self._pipe = pipe
        self.monitor: SystemMetricsMonitor | None = None
        # True until the monitor is started; False if the user has switched it off
        self._needs_monitor = os.environ.get(SYSTEM_METRICS, "true").lower() not in ("false", "0")

    def __call__(self, tracker: MlflowTracker, written: int, answered: bool) -> None:
        """Write the status of the tracker; see `OnChange`."""
        if tracker.parent and self._needs_monitor:
            self._needs_monitor = False
            self.monitor = _start_monitor(tracker.parent, tracker.destination.uri)
        status = {
            "parent": tracker.parent,
            "error": tracker.error,
            "waiting": tracker.waiting,
            "left": tracker.writer.left,
            "written": written,
            "answered": answered,
        }
        with contextlib.suppress(OSError):  # The driver has ended.
            self._pipe.write(json.dumps(status) + "\n")


def _start_monitor(run: str, uri: str) -> SystemMetricsMonitor | None:
    """Log the use of this machine's CPUs, memory, disk and network to a run.

    The use of its GPUs is logged if `nvidia-ml-py` is installed.
    """
    from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

    try:
        monitor = SystemMetricsMonitor(  # type: ignore[no-untyped-call]
            run, resume_logging=True, tracking_uri=uri
        )
        monitor.start()  # type: ignore[no-untyped-call]
    except Exception:  # The sweep does not need these metrics.
        log.warning("MLflow gets no system metrics", exc_info=True)
        return None
    return monitor


def main() -> None:
    """Write the events that the driver sends, until the driver closes the tracker or has ended."""
    # The driver handles these signals, and still has events to send.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    progress = _Progress(os.fdopen(os.dup(1), "w", buffering=1))
    os.dup2(2, 1)  # Output of libraries goes to the sweep's log, not to the driver.
    logging_setup.set_environment()
    handler = logging_setup.file_handler(2)
    sys.stderr = handler.stream
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    logging.captureWarnings(True)
    # Import at normal priority, because a short sweep would wait for it.
    import mlflow.tracking  # noqa: F401

    os.nice(NICE)
    pipe = sys.stdin.buffer
    tracker = MlflowTracker(pickle.load(pipe), progress)
    with contextlib.suppress(EOFError):
        while True:
            message = pickle.load(pipe)
            tracker._messages.put(message)
            if isinstance(message, CloseTracker):
                tracker._thread.join()
                if progress.monitor is not None and not tracker.waiting:
                    progress.monitor.finish()  # type: ignore[no-untyped-call]
                return
    tracker.close(0.0)  # The driver has ended. A resume sends all events again.
