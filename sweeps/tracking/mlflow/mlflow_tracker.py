"""Receive events from the driver, and write them to MLflow in batches from a thread.

The driver never waits for MLflow while a sweep runs. If the server does not answer, events wait in
a queue and are written later. `sweeps.tracking.mlflow.run_writer` decides what is written.
"""

import contextlib
import functools
import logging
import math
import os
import queue
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from sweeps.core.errors import first_line
from sweeps.core.text.secrets import masked, without_password
from sweeps.study.events import Event, SweepEnded

from .run_writer import RunWriter
from .sweep_runs import Destination, is_refusal

log = logging.getLogger(__name__)

# Seconds between two batches, and between two attempts to reach a server
BATCH_EVERY = 0.25
RETRY_EVERY = 2.0
# Seconds that a sweep waits at its end for a server that does not answer
CLOSE_WITHIN = 60.0
# The same after a signal
STOP_WITHIN = 15.0
# The same if the disk is full or the study's database does not answer
CLOSE_SOON = 1.0


class CloseTracker:
    """A message in the queue: no more events follow."""


class ProcessEnded:
    """A message in the queue: the tracker's process has ended."""


Message = Event | CloseTracker | ProcessEnded
OnWait = Callable[[str], None]
# Function that is called after a possible change of a tracker's `parent`, `error` or `waiting`. It
# gets the tracker, the number of messages that were written since the last call, and True if the
# server has accepted a part of a message.
OnChange = Callable[["MlflowTracker", int, bool], None]


def ignore_wait(text: str) -> None:
    """Do nothing."""


def default_uri(root: Path) -> str:
    """Return the URI of the SQLite file in the root of all sweeps.

    A folder cannot be the store, because MLflow 3 does not write to folders.
    """
    return f"sqlite:///{(root / 'mlflow.db').resolve()}"


class MlflowTracker:
    """Writes a sweep to MLflow in a separate thread.

    Args:
        destination: Place in MLflow where the sweep is recorded.
        on_change: See `OnChange`.

    Attributes:
        parent: ID of the parent run; None until the run is found or created.
        error: The latest error that made MLflow miss data; None if there was none.
        waiting: True while the server does not answer.
    """

    def __init__(self, destination: Destination, on_change: OnChange = lambda *_: None):
        self.destination = destination
        self._on_change = on_change
        self.parent: str | None = None
        self.error: str | None = None
        self.waiting = False
        self.writer = RunWriter(destination, self._record_refusal, self._record_answer)
        self._messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._stopped = threading.Event()
        self._last_answer = 0.0  # time at which the server last answered, by the monotonic clock
        self._thread = threading.Thread(target=self._run, name="mlflow", daemon=True)
        # With MLflow's defaults, a server that does not answer would block the thread for minutes.
        # MLflow must not retry requests either: after a lost answer, a retry would create a run
        # twice. The writer looks for the run before it retries a request.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
        self._thread.start()

    def handle(self, event: Event) -> None:
        """Queue an event without waiting for MLflow."""
        self._messages.put(event)

    def close(
        self, timeout: float = CLOSE_WITHIN, on_wait: OnWait = ignore_wait, until: float = math.inf
    ) -> bool:
        """Wait until all events are written.

        Args:
            timeout: Seconds to wait for a server that does not answer.
            on_wait: Function that is called again and again with a text that says how many runs are
                left.
            until: Time at which to stop waiting, also for a server that answers, by the monotonic
                clock.

        Returns:
            True if all events were handled. Otherwise `error` says why, unless the server did not
            answer.
        """
        self._messages.put(CloseTracker())
        self._last_answer = time.monotonic()
        while self._thread.is_alive():
            if time.monotonic() >= min(self._last_answer + timeout, until):
                break
            self._thread.join(0.2)
            if self.writer.left:
                on_wait(f"sending runs to MLflow, {self.writer.left:,} left")
        self._stopped.set()
        complete = not self._thread.is_alive()
        if not complete:
            if time.monotonic() >= until:
                self.error = self.error or "the time of --minutes was over"
            self._give_up()
        return complete

    def _give_up(self) -> None:
        """Leave the events that are not written. They are in the study, and a resume sends them."""

    # The thread

    def _run(self) -> None:
        """Open the sweep's run when the first event arrives, and write events until the end."""
        try:
            import mlflow.tracking  # noqa: F401 - takes a second or two, while the sweep starts

            first = self._messages.get()
            if isinstance(first, CloseTracker | SweepEnded):
                # The sweep never started, so there is nothing to write.
                return self._report_change(1)
            self._until_written(self.writer.open)
            self._report_change()
            if self.writer.parent:  # MLflow has not refused the run of the sweep
                self._write_all(first)
        except Exception as e:
            self.error = first_line(e)
            self._report_change()
            log.error(
                "MLflow gets no more data of this sweep, because the MLflow tracker failed:\n%s",
                masked(traceback.format_exc()),
            )

    def _write_all(self, first: Message) -> None:
        """Write batches of events until the tracker is closed.

        `first` is the first message of the first batch.
        """
        messages = [first]
        while True:
            if not isinstance(messages[0], CloseTracker):
                time.sleep(BATCH_EVERY)  # more messages may come
            with contextlib.suppress(queue.Empty):
                while True:
                    messages.append(self._messages.get_nowait())
            events = [message for message in messages if isinstance(message, Event)]
            self._until_written(functools.partial(self.writer.write, events))
            self._report_change(len(messages))
            if any(isinstance(message, CloseTracker) for message in messages):
                return
            messages = [self._messages.get()]

    def _until_written(self, action: Callable[[], None]) -> None:
        """Repeat an action until the server answers.

        If the server refuses the action's request permanently, report the refusal.
        """
        while True:
            try:
                if self.waiting:  # The answer to a request that created a run may be lost.
                    self.writer.open()
                action()
                self.parent = self.writer.parent
                self.waiting = False
                return self._record_answer()
            except Exception as e:  # MLflow's stores let errors of their libraries pass.
                if is_refusal(e):
                    return self._record_refusal(e)
                reason = e
            if not self.waiting:
                log.warning(
                    "MLflow at %s does not answer (%s); sweeps keeps trying",
                    without_password(self.destination.uri),
                    first_line(reason),
                )
            self.waiting = True
            self._report_change()
            if self._stopped.wait(RETRY_EVERY):
                raise TimeoutError("the sweep ended before the server answered again") from reason

    def _report_change(self, written: int = 0, answered: bool = False) -> None:
        """Call `on_change`; see `OnChange` for the arguments."""
        self._on_change(self, written, answered)

    def _record_answer(self) -> None:
        """Note that the server has answered a request now."""
        self._last_answer = time.monotonic()
        self._report_change(answered=True)

    def _record_refusal(self, error: Exception) -> None:
        """Note and log that the server refuses a request permanently."""
        self.error = first_line(error)
        log.error("MLflow refused a request of the MLflow tracker: %s", self.error)
