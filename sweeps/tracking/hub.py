"""The hub hands each event of a sweep to every tracker, and never blocks the search.

MLflow has a process of its own (`sweeps.tracking.mlflow.tracker_process`). Every other tracker runs
in a daemon thread with a queue. A tracker that raises an exception is dropped at once and not
retried, because the tracker may have handled a part of the event. A tracker is also dropped if its
queue gets too long. The search continues in both cases, and the sweep's result says which tracker
was dropped, and why.
"""

import logging
import math
import queue
import threading
import time
from collections.abc import Iterable

from sweeps.core.text.secrets import masked
from sweeps.study.events import Event, TrialEvent

from .mlflow.mlflow_tracker import MlflowTracker, OnWait, ignore_wait
from .tracker import Tracker

log = logging.getLogger(__name__)

# A tracker is dropped when its queue has more events than this.
MAX_WAITING = 100_000


class TrackerHub:
    """Publishes the events of one driver to all trackers.

    The module's docstring explains what happens when a tracker fails.

    Args:
        trackers: Trackers other than MLflow, with the names that the space file gives them.
        mlflow: The MLflow tracker; None if the sweep has none.

    Attributes:
        mlflow: The MLflow tracker, or None.
        mlflow_complete: True if MLflow has handled every event, which means that MLflow stored or
            refused the event. Valid after `close`.
    """

    def __init__(
        self, trackers: Iterable[tuple[str, Tracker]] = (), mlflow: MlflowTracker | None = None
    ):
        self.mlflow = mlflow
        self.mlflow_complete = True
        self._threads = [TrackerThread(name, tracker) for name, tracker in trackers]

    def publish(self, event: Event) -> None:
        """Hand an event to every tracker without waiting for the trackers."""
        if self.mlflow is not None:
            self.mlflow.handle(event)
        for thread in self._threads:
            thread.handle(event)

    def close(
        self, timeout: float, on_wait: OnWait = ignore_wait, until: float = math.inf
    ) -> tuple[str, ...]:
        """Wait until the trackers have handled all events, then close them.

        Args:
            timeout: Seconds to wait. For MLflow, the time starts again whenever the MLflow server
                answers.
            on_wait: See `MlflowTracker.close`.
            until: See `MlflowTracker.close`.

        Returns:
            One note for each tracker, other than MLflow, that was dropped or did not finish in
            time.
        """
        deadline = min(time.monotonic() + timeout, until)
        for thread in self._threads:
            thread.finish()
        if self.mlflow is not None:
            self.mlflow_complete = self.mlflow.close(timeout, on_wait, until)
        notes = [thread.join(deadline) for thread in self._threads]
        return tuple(note for note in notes if note is not None)


class TrackerThread:
    """Runs one tracker in a daemon thread.

    Args:
        name: The tracker's name in the space file, for notes and the log.
        tracker: The tracker.

    Attributes:
        failure: Reason why the tracker was dropped; None if it was not dropped.
    """

    def __init__(self, name: str, tracker: Tracker):
        self.name = name
        self.failure: str | None = None
        self._tracker = tracker
        # The item None makes the thread close the tracker.
        self._queue: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"tracker-{name}", daemon=True)
        self._thread.start()

    def handle(self, event: Event) -> None:
        """Queue an event, unless the tracker was dropped."""
        if self.failure is not None:
            return
        if (waiting := self._queue.qsize()) >= MAX_WAITING:
            self._drop(
                f"gets no more events, because it is too slow: {waiting} events were waiting"
            )
            return
        self._queue.put(event)

    def finish(self) -> None:
        """Tell the thread that no more events follow."""
        self._queue.put(None)

    def join(self, deadline: float) -> str | None:
        """Wait for the thread to end.

        Args:
            deadline: Time at which to stop waiting, by the monotonic clock.

        Returns:
            A note if the tracker was dropped or did not finish in time, else None.
        """
        self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._thread.is_alive() and self.failure is None:
            waiting = max(0, self._queue.qsize() - 1)
            self._drop(f"did not finish in time: it had not handled {waiting} events")
        return None if self.failure is None else f"tracker `{self.name}` {self.failure}"

    def _run(self) -> None:
        """Hand events to the tracker until there are no more or the tracker fails. Close it."""
        while self.failure is None and (event := self._queue.get()) is not None:
            try:
                self._tracker.handle(event)
            except BaseException as e:  # Even `sys.exit` in a tracker must leave a note.
                log.exception("tracker `%s` failed", self.name)
                self._drop(
                    f"failed at {_event_text(event)} and gets no more events: {type(e).__name__}: "
                    f"{e} (the traceback is in sweep.log)"
                )
        try:
            self._tracker.close()
        except BaseException as e:
            log.exception("tracker `%s` failed", self.name)
            self._drop(
                f"failed when it was closed: {type(e).__name__}: {e} (the traceback is in "
                "sweep.log)"
            )

    def _drop(self, reason: str) -> None:
        """Give the tracker no more events. Only the first reason is kept."""
        if self.failure is None:
            self.failure = masked(" ".join(reason.split()))
            log.warning("tracker `%s` %s", self.name, self.failure)


def _event_text(event: Event) -> str:
    """Return the name of an event's type, with the trial if there is one."""
    name = type(event).__name__
    return f"{name} of trial {event.trial_id}" if isinstance(event, TrialEvent) else name
