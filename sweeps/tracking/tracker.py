"""The port of a tracker, which records a sweep somewhere: in MLflow, in a file, on a web page."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from sweeps.tracking.events import Event


@runtime_checkable
class Tracker(Protocol):
    """A tracker handles the events of one driver of a sweep, in order, in one thread of its own.

    A tracker that raises gets no more events. The sweep continues, and its result has a note that says why.
    """

    def handle(self, event: Event) -> None:
        """Handle an event. A tracker ignores event types that it does not know."""

    def close(self) -> None:
        """Write what is left and release files and connections. This is called once more than needed after an error."""
