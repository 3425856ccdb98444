"""Show a running sweep in the output of a notebook's cell; each status replaces the one before."""

import contextlib
import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sweeps.controller.status import STOPPING_GENTLY, SweepStatus

from .output_cell import in_notebook

StatusCallback = Callable[[SweepStatus], None]
# Seconds between two updates of the view.
UPDATE_EVERY = 0.5
STOPPING = f"{STOPPING_GENTLY}; interrupt again to stop at once"


@contextlib.contextmanager
def live_view(
    on_progress: StatusCallback | None, notes: Sequence[str] = ()
) -> Iterator[StatusCallback | None]:
    """Yield a function to call with each status of a sweep, or None.

    The function is `on_progress`, or a live view in a notebook.

    Args:
        on_progress: The user's function; None if the user gave none.
        notes: Lines that the live view shows above the sweep.
    """
    if on_progress is not None or not in_notebook():
        yield on_progress
        return
    import IPython.display

    ipython: Any = IPython.display  # which has no types
    view = NotebookView(ipython.DisplayHandle(), notes)
    try:
        yield view
    finally:
        view.close()


class NotebookView:
    """Callable that shows each status that it receives, as the live view in a terminal does.

    Args:
        handle: IPython's handle of one output, with the methods `display` and `update`.
        notes: Lines above the sweep.
    """

    def __init__(self, handle: Any, notes: Sequence[str] = ()):
        self._handle = handle
        self._status: SweepStatus | None = None
        self._shown_at = 0.0  # time.monotonic()
        self._messages = list(notes)

    def __call__(self, status: SweepStatus) -> None:
        """Show a status, unless one of the same phase was shown less than half a second ago."""
        messages = list(status.messages)
        if status.reason == "interrupted":
            messages.append(STOPPING)
        new = [message for message in messages if message not in self._messages]
        self._messages += new
        before = self._status
        self._status = status
        changed = before is None or (before.stage, before.reason) != (status.stage, status.reason)
        if new or changed or time.monotonic() - self._shown_at >= UPDATE_EVERY:
            self._show(status, first=before is None)

    def close(self) -> None:
        """Show the last status for good, without the trials that were running."""
        if self._status is not None:
            states = Counter(self._status.states)
            states["RUNNING"] = 0
            stage = self._status.reason or "ended"
            last = dataclasses.replace(
                self._status, rows=(), use=(), left=None, stage=stage, states=states
            )
            self._show(last, first=False)

    def _show(self, status: SweepStatus, first: bool) -> None:
        from rich.table import Table

        from sweeps.core.text.shell_text import printable

        from .live_layout import layout

        self._shown_at = time.monotonic()
        view = Table.grid()  # A notebook shows it as HTML.
        for message in self._messages:
            view.add_row(printable(message))
        view.add_row(layout(status))
        (self._handle.display if first else self._handle.update)(view)
