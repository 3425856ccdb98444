"""The tracker in a process of its own, at a low priority: in the driver's it would share the interpreter's lock with the search.

The driver sends what it says as pickles and keeps each until it is told that it is written. If the process is lost another is
started and told again; a thing said twice changes nothing.
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
from typing import Any, BinaryIO

from sweeps.core import logging_setup
from sweeps.tracking.mlflow.tracker import CLOSE_WITHIN, Tracker

log = logging.getLogger(__name__)

# Lost this often, it is not started again: the study has it all.
STARTS = 5
NICE = 19  # whoever trains goes first
LOST = ("lost", ())


class TrackerProcess(Tracker):
    """A `Tracker` whose work another process does.

    Args:
        uri, root, experiment, sweep, started: see `Tracker`.
        errors: file for what the process may print as it dies.
    """

    def __init__(self, uri: str, root: Path, experiment: str, sweep: str, started: float, errors: Path):
        self._given, self._errors = (uri, root, experiment, sweep, started), errors
        self._unwritten: deque[tuple[str, tuple]] = deque()
        self._closing = False
        self._process: subprocess.Popen | None = None
        super().__init__(*self._given)

    def close(self, timeout: float = CLOSE_WITHIN) -> bool:
        done = super().close(timeout)
        if not done and self._process is not None:
            self._process.kill()
        return done

    # ---- the thread: sends, and starts the process

    def _work(self) -> None:
        code = 0
        for _ in range(STARTS):
            heard = self._start()
            with contextlib.suppress(OSError):  # the process is gone
                self._send()
            code = self._end(heard)
            if self._done.is_set() or (self._closing and code == 0):
                return
        self.error = self.error or f"its process was lost {STARTS} times, the last time with exit code {code}"

    def _start(self) -> threading.Thread:
        command = [sys.executable, "-c", "from sweeps.tracking.mlflow.tracker_process import main; main()"]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
        with open(self._errors, "ab") as errors:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=env)
        heard = threading.Thread(target=self._hear, args=(self._process.stdout,), name="mlflow-hear", daemon=True)
        heard.start()
        return heard

    def _send(self) -> None:
        """Send what is said, until the process ends."""
        assert self._process is not None and self._process.stdin is not None
        pipe = self._process.stdin
        pickle.dump(self._given, pipe)
        for event in list(self._unwritten):
            pickle.dump(event, pipe)
        pipe.flush()
        while (event := self._events.get()) != LOST:
            self._unwritten.append(event)
            self._closing = self._closing or event[0] == "close"
            pickle.dump(event, pipe)
            pipe.flush()

    def _end(self, heard: threading.Thread) -> int:
        """Wait for the process, which ends when its pipe does."""
        assert self._process is not None and self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        code = self._process.wait()
        heard.join()
        while not self._events.empty():  # of this process; what was said meanwhile is kept
            if (event := self._events.get()) != LOST:
                self._unwritten.append(event)
                self._closing = self._closing or event[0] == "close"
        return code

    def _hear(self, pipe: BinaryIO) -> None:
        """Take up what the process says of itself, until it ends."""
        with pipe:
            for line in pipe:
                said = json.loads(line)
                if "log" in said:
                    log.log(said["level"], "%s: %s", said["name"], said["log"])
                    continue
                self.parent, self.error, self.waiting = said["parent"], said["error"], said["waiting"]
                if said["written"] or said["answered"]:
                    self._answered = time.monotonic()
                for _ in range(said["written"]):
                    self._unwritten.popleft()
        self._events.put(LOST)


# ---- the process


class _Worker(Tracker):
    """The tracker that does the work, and says how it goes."""

    def __init__(self, *given: Any, say: Any):
        self._tell = say
        super().__init__(*given)

    def _changed(self, written: int = 0, answered: bool = False) -> None:
        self._tell({"parent": self.parent, "error": self.error, "waiting": self.waiting, "written": written, "answered": answered})


class _Forward(logging.Handler):
    """Sends what is logged to the driver, whose log it belongs to."""

    def __init__(self, say: Any):
        super().__init__()
        self._say, self.formatter = say, logging.Formatter("%(message)s")

    def emit(self, record: logging.LogRecord) -> None:
        self._say({"log": self.format(record), "name": record.name, "level": record.levelno})


def main() -> None:
    """Write what the driver says, until it closes or is gone."""
    for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # meant for the driver, which ends its sweep gently and has more to say then
        signal.signal(one, signal.SIG_IGN)
    status = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a library prints is none of the driver's business
    lock = threading.Lock()

    def say(what: dict[str, Any]) -> None:
        with lock, contextlib.suppress(OSError):  # the driver is gone
            status.write(json.dumps(what) + "\n")

    logging_setup.set_environment()
    logging.basicConfig(handlers=[_Forward(say)], level=logging.WARNING)
    logging.captureWarnings(True)
    import mlflow.tracking  # noqa: F401 - before it is put behind: a short sweep would wait for it

    os.nice(NICE)
    pipe = sys.stdin.buffer
    given = pickle.load(pipe)
    tracker = _Worker(*given, say=say)
    with contextlib.suppress(EOFError):
        while True:
            kind, what = pickle.load(pipe)
            tracker._say(kind, *what)
            if kind == "close":
                tracker._thread.join()
                return
    tracker.close(0.0)  # the driver is gone: whoever resumes the sweep says it all again
