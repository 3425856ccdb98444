"""The port of a tracker. A tracker records a sweep outside the study, such as in MLflow, in a file or on a web page."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from sweeps.tracking.events import Event


@runtime_checkable
class Tracker(Protocol):
    """Handles the events of one driver of a sweep.

    All calls come from one thread, which calls no other tracker. If a tracker raises, it gets no more events. The sweep continues, and
    its result has a note that says why.
    """

    def handle(self, event: Event) -> None:
        """Handle an event. A tracker ignores event types that it does not know."""

    def close(self) -> None:
        """Write what is left, and release files and connections. It may be called before any event, after an error, and twice."""
