"""Show a running sweep in the output of a notebook's cell. Each status replaces the status before."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sweeps.controller.notebook_html import status_html
from sweeps.controller.status import (
    STOPPING_GENTLY,
    BestTrial,
    SweepStatus,
    status_line,
    value_text,
)
from sweeps.core.notebooks import in_notebook
from sweeps.core.result import SweepResult
from sweeps.core.trial import flat

StatusCallback = Callable[[SweepStatus], None]
# Seconds between two updates of the view.
UPDATE_EVERY = 0.5
STOPPING = f"{STOPPING_GENTLY}; interrupt again to stop at once"


@contextlib.contextmanager
def live_view(
    on_progress: StatusCallback | None, notes: Sequence[str] = ()
) -> Iterator[StatusCallback | None]:
    """Yield a function to call with each status of a sweep: `on_progress`, or a live view in a notebook, or None.

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
    """Callable that shows each status that it receives.

    Args:
        handle: IPython's handle of one output, with the methods `display` and `update`.
        notes: Lines above the sweep.

    Attributes:
        result: The result of the sweep; None if the sweep has none yet. Set it before `close`.
    """

    def __init__(self, handle: Any, notes: Sequence[str] = ()):
        self._handle = handle
        self.result: SweepResult | None = None
        self._status: SweepStatus | None = None
        self._shown_at = 0.0  # time.monotonic()
        self._stage: tuple[str | None, str | None] = (None, None)
        self._messages = list(notes)

    def __call__(self, status: SweepStatus) -> None:
        """Show a status, unless the view has shown another one of the same phase less than half a second ago."""
        messages = [*status.messages, *([STOPPING] if status.reason == "interrupted" else [])]
        new = [message for message in messages if message not in self._messages]
        first, self._status = self._status is None, status
        phase = (status.stage, status.reason)
        if (
            first
            or new
            or phase != self._stage
            or time.monotonic() - self._shown_at >= UPDATE_EVERY
        ):
            self._messages += new
            self._stage = phase
            self._show(status, first)

    def close(self) -> None:
        """Show the last status for good, without the trials that were running, and with the best trial of the result."""
        if self._status is not None:
            states = Counter(
                {
                    state: number
                    for state, number in self._status.states.items()
                    if state != "RUNNING"
                }
            )
            best = (
                best_of(self.result, self._status.best)
                if self.result is not None
                else self._status.best
            )
            stage = self._status.reason or "ended"
            self._show(
                dataclasses.replace(
                    self._status, rows=(), use=(), left=None, stage=stage, states=states, best=best
                ),
                first=False,
            )

    def _show(self, status: SweepStatus, first: bool) -> None:
        self._shown_at = time.monotonic()
        content = {
            "text/html": status_html(status, self._messages),
            "text/plain": status_line(status),
        }
        (self._handle.display if first else self._handle.update)(content, raw=True)


def best_of(result: SweepResult, latest: BestTrial | None) -> BestTrial | None:
    """Return the best trial of a result.

    While a sweep runs, the best trial may be one that was stopped early, which never wins.

    Args:
        result: The result.
        latest: The best trial in the last status.
    """
    if (
        result.best is None
        or result.best["value"] is None
        or (latest is not None and latest.trial == result.best["trial"])
    ):
        return latest if result.best is not None else None
    configuration = (("preprocessor", result.best["preprocessor"]), *flat(result.best["params"]))
    return BestTrial(
        result.best["trial"],
        result.best["value"],
        0,
        tuple((name, value_text(value)) for name, value in configuration),
    )
