"""A user's script as a child process: its reports, its signals and its end.

The script runs in a session and a process group of its own. A shell process watches the pipe to
this worker. When the pipe closes, because the script has ended or because this worker has died, the
shell kills what is left of the process group and removes the script's temporary folders.
"""

import contextlib
import functools
import json
import math
import os
import queue
import re
import selectors
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO

from sweeps.core.loop_context import UNREADABLE_LINE
from sweeps.core.text.secrets import hide_known_bytes

from ._mlflow_files import MlflowFiles, files_in
from ._script_reports import CALL, LINE, MLFLOW, ScriptReport, Sources, metrics_in, names_metric

# The folders are renamed first, because another attempt at the trial may already fill a new folder
# with the old name. The shell leaves the work to a child and ends, because Ray kills the children
# of a worker that it closes.
WATCH = """
exec 3<&0
{
    cat <&3 >/dev/null
    kill -s KILL -- "-$1" 2>/dev/null
    shift
    for folder; do mv -- "$folder" "$folder.removed" && rm -rf -- "$folder.removed"; done
} &
"""
POLL_SECONDS = 0.1  # time between two looks whether the script has ended
DRAIN_SECONDS = 1.0  # longest time to read output after the end of the script
CHUNK = 1 << 16  # bytes that are read at once
# A line on standard output that is longer than this, in bytes, cannot be read.
LONGEST_LINE = 1 << 20
# The part of an unreadable line that the trial's log quotes, in bytes.
QUOTED_BYTES = 200
# The part of standard error that the error of a failed trial quotes.
TAIL_BYTES = 1 << 14
TAIL_LINES = 20


class Script:
    """A running script. A thread of this process reads its output and its reports.

    Args:
        command: The program and its arguments.
        folder: The script's working directory.
        environment: The script's environment variables.
        metric: The objective's metric, by which a JSON line is recognized; None to read no JSON
            lines.
        listener: Listening socket for `sweeps.report`. None on ranks other than 0, whose output is
            not read.
        mlflow: The files to which the script logs with MLflow; None on ranks other than 0.
        temporary: Folders that are removed when the script has ended.

    Attributes:
        command: The program and its arguments.
        folder: The script's working directory.
        events: Reports, then the exit code of the script. An exception in place of a report means
            that the trial fails. On ranks other than 0, None means that rank 0 reports no more.
        sources: The sources of reports, of which one counts.
        unused: The last line of output that looked like JSON and was no report.
        metric_text: The last part of the output that looked like the metric and its value, such as
            `loss: 0.5`, and was no report.

    Raises:
        FileNotFoundError: The program does not exist.
    """

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        *,
        metric: str | None,
        listener: socket.socket | None,
        mlflow: MlflowFiles | None,
        temporary: Sequence[Path],
    ):
        self.command = list(command)
        self.folder = folder
        self.events = queue.SimpleQueue[ScriptReport | int | Exception | None]()
        self._metric = metric
        self._listener = listener
        self._mlflow = mlflow
        self.sources = Sources()
        self.unused = b""
        self.metric_text = b""
        name = re.escape(metric or "").encode()
        self._metric_pattern = re.compile(rb"(?<![\w.])" + name + rb"\W{1,5}[-+.\d]+\w*")
        self._line = b""  # the beginning of the line that is not complete yet
        self._errors = b""
        self._unrecorded = 0  # number of reports for which the script is paused
        self._lock = threading.Lock()
        # Connections of `sweeps.report`, for which the script waits.
        self._calls: list[socket.socket] = []
        output = None if listener is None else subprocess.PIPE
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._watcher = _watch(self._process.pid, temporary)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._read, name="sweeps-script", daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """True while the command's own process runs. Processes that it started may run longer."""
        return self._process.poll() is None

    @property
    def last_errors(self) -> str:
        """The last lines that the script wrote to standard error."""
        lines = self._errors.decode(errors="replace").replace("\r", "\n").rstrip().splitlines()
        return "\n".join(lines[-TAIL_LINES:])

    def stop(self, grace: float) -> int:
        """End the script. Return its exit code, which is negative after a signal.

        If it runs, send SIGTERM to its process group, and wait until all processes of the group
        have ended. Kill those that are left.

        Args:
            grace: Longest time to wait after SIGTERM, in seconds.
        """
        if self.is_running:
            self._signal(signal.SIGTERM)
            self._signal(signal.SIGCONT)
            # A script that handles SIGTERM can now return from `sweeps.report`.
            for connection in self._calls:
                connection.close()
            until = time.monotonic() + grace
            while self._group_exists() and time.monotonic() < until:
                time.sleep(0.02)
        self._signal(signal.SIGKILL)
        code = self._process.wait()
        self._closed.set()
        self._thread.join()
        for stream in (self._process.stdout, self._process.stderr, self._listener):
            if stream is not None:
                stream.close()
        return code

    def remove_folders(self) -> None:
        """Remove the temporary folders."""
        self._watcher.communicate()  # Closes its input, and waits until its output is closed.

    def _group_exists(self) -> bool:
        """Return whether a process of the script's process group is alive."""
        self._process.poll()  # A process that has ended stays in its group until it is waited for.
        return self._signal(0)

    def _signal(self, number: int) -> bool:
        """Send a signal to the script's process group. Return whether the group still exists."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)
            return True
        return False

    def _pause(self) -> None:
        """Pause the script until a report is recorded. Reports may wait at the same time."""
        with self._lock:
            self._unrecorded += 1
            self._signal(signal.SIGSTOP)

    def _continue(self) -> None:
        """Let the script continue after a report is recorded, unless another report waits."""
        with self._lock:
            self._unrecorded -= 1
            if not self._unrecorded:
                self._signal(signal.SIGCONT)

    # ---- the thread

    def _read(self) -> None:
        """Read the script's output and reports until the script has ended.

        Then put its exit code into `events`.
        """
        try:
            self._read_all()
            for report in self.sources.end():
                self.events.put(report)
            code = self._process.poll()
            if code is not None:
                self.events.put(code)
        except Exception as e:  # The trial must fail, because nobody reads the output any longer.
            self.events.put(e)

    def _read_all(self) -> None:
        """Read until the script has ended, and then until there is nothing left to read.

        After the end, read for at most `DRAIN_SECONDS`.
        """
        until = math.inf
        with selectors.DefaultSelector() as selector:
            # The data of a stream is a function that reads it, and returns False at its end.
            for stream, read in (
                (self._process.stdout, self._read_output),
                (self._process.stderr, self._read_errors),
            ):
                if stream is not None:
                    selector.register(stream, selectors.EVENT_READ, read)
            if self._listener is not None:
                selector.register(
                    self._listener, selectors.EVENT_READ, functools.partial(self._accept, selector)
                )
            while not self._closed.is_set() and time.monotonic() < until:
                ended = self._process.poll() is not None
                if ended and until == math.inf:
                    # Processes that the script has left behind may write for ever.
                    until = time.monotonic() + DRAIN_SECONDS
                ready = selector.select(0 if ended else POLL_SECONDS)
                for key, _ in ready:
                    if not key.data(key.fileobj):
                        selector.unregister(key.fileobj)
                if self._mlflow is not None:
                    for metrics in self._mlflow.new_reports(ended):
                        self._offer(ScriptReport(MLFLOW, metrics, saves=True))
                if ended and not ready:
                    break

    def _read_output(self, stream: IO[bytes]) -> bool:
        """Copy output of the script to the trial's log, and look for reports in it.

        Return False at the end of the stream.
        """
        chunk = os.read(stream.fileno(), CHUNK)
        _write(1, chunk)
        *lines, rest = re.split(rb"[\r\n]", self._line + chunk)
        self._line = rest[: LONGEST_LINE + 1]
        for line in lines if chunk else [rest]:
            self._read_line(line)
        return bool(chunk)

    def _read_line(self, line: bytes) -> None:
        """Read a line of output. Metrics in the line become a report."""
        metric = self._metric
        metrics = metrics_in(line, metric) if len(line) <= LONGEST_LINE else None
        if metrics is not None:
            self._offer(ScriptReport(LINE, metrics, saves=True))
        elif line.lstrip().startswith(b"{"):
            self.unused = line
            if metric is not None and names_metric(line, metric):
                start = hide_known_bytes(line.strip())[:QUOTED_BYTES]
                _write(2, b"--- this line has no number for the objective: %s\n" % start)
                unreadable = {metric: math.nan, UNREADABLE_LINE: 1.0}
                self._offer(ScriptReport(LINE, unreadable, saves=True))
        elif match := self._metric_pattern.search(line):
            self.metric_text = match[0]

    def _read_errors(self, stream: IO[bytes]) -> bool:
        """Copy errors of the script to the trial's log, and keep the last ones.

        Return False at the end of the stream.
        """
        chunk = os.read(stream.fileno(), CHUNK)
        _write(2, chunk)
        self._errors = hide_known_bytes(self._errors + chunk)[-TAIL_BYTES:]
        return bool(chunk)

    def _accept(self, selector: selectors.BaseSelector, listener: socket.socket) -> bool:
        """Accept a connection of `sweeps.report`, and read its message when it arrives."""
        connection, _ = listener.accept()
        message = bytearray()

        def receive(connection: socket.socket) -> bool:
            chunk = connection.recv(CHUNK)
            if not chunk:  # The script was killed while it sent the message.
                connection.close()
                return False
            message.extend(chunk)
            if not chunk.endswith(b"\n"):
                return True
            call = json.loads(message)
            checkpoint = None if call["checkpoint"] is None else Path(call["checkpoint"])
            self._calls.append(connection)
            done = functools.partial(self._answer, connection)
            self._offer(ScriptReport(CALL, call["metrics"], checkpoint, done=done))
            return False

        selector.register(connection, selectors.EVENT_READ, receive)
        return True

    def _answer(self, connection: socket.socket) -> None:
        """Let a call of `sweeps.report` return."""
        self._calls.remove(connection)
        connection.close()

    def _offer(self, report: ScriptReport) -> None:
        """Put the reports that count now into `events`.

        Pause the script until they are recorded, unless it waits for `sweeps.report`.
        """
        try:
            counting = self.sources.add(report)
        except ValueError as e:
            self.events.put(e)
            return
        for counted in counting:
            if counted.source != CALL:
                self._pause()
                counted = replace(counted, done=self._continue)
            self.events.put(counted)


def state_of(folder: Path) -> frozenset[tuple[str, int, int]]:
    """Return the path, size and time of change of each file in a folder.

    The result changes if a file is written.
    """
    states = set()
    for name, file in files_in(folder):
        with contextlib.suppress(FileNotFoundError):  # The script may delete files meanwhile.
            status = file.stat()
            states.add((name, status.st_size, status.st_mtime_ns))
    return frozenset(states)


def _write(descriptor: int, data: bytes) -> None:
    """Write all data to a file descriptor."""
    while data:
        data = data[os.write(descriptor, data) :]


def _watch(group: int, temporary: Sequence[Path]) -> subprocess.Popen[bytes]:
    """Start the shell that kills a process group and removes folders when its input closes."""
    # Without the variables of this process, sweeps does not kill the shell before it has removed
    # the folders.
    return subprocess.Popen(
        ["/bin/sh", "-c", WATCH, "sh", str(group), *map(str, temporary)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        env={"PATH": os.defpath},
    )
