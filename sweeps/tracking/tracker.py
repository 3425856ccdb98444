"""The interface of a tracker.

A tracker records a sweep outside the study, such as in MLflow, in a file or on a web page.
"""

from typing import Protocol, runtime_checkable

from sweeps.study.events import Event


@runtime_checkable
class Tracker(Protocol):
    """Handles the events of one driver of a sweep.

    All calls come from one thread, and this thread calls no other tracker. If a tracker raises an
    exception, it receives no more events. The sweep continues, and a note in the sweep's result
    names the tracker and the exception.
    """

    def handle(self, event: Event) -> None:
        """Handle an event. A tracker ignores event types that it does not know."""

    def close(self) -> None:
        """Write all remaining data, and release files and connections.

        This method may be called before any event, after an error, and more than once.
        """
