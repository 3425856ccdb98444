"""Show a running sweep on standard error. A terminal shows a live view.

Other streams get a line every few seconds.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, TextIO

from sweeps.controller.status import STOPPING_GENTLY, SweepStatus, status_line

if TYPE_CHECKING:
    from rich.live import Live

# Seconds between two frames on a terminal, and between two lines on other streams.
FRAME_EVERY = 0.25
LINE_EVERY = 10.0
STOPPING = f"{STOPPING_GENTLY}; press Ctrl-C again to stop at once"


class Progress:
    """Callable that shows each status that it receives.

    Call `close` before anything else is printed.

    Args:
        silent: True to show nothing except a message after Ctrl-C.
        stream: Stream to write to; standard error by default.
    """

    def __init__(self, silent: bool, stream: TextIO | None = None):
        self.stream = stream or sys.stderr
        self.silent = silent
        self.terminal = (
            not silent
            and self.stream.isatty()
            and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")
        )
        self.view: _View | None = None
        self.stopping = False
        self.reported: set[str] = set()  # ids of the trials whose notice was shown already

    def __call__(self, snapshot: SweepStatus) -> None:
        """Show a snapshot of the sweep."""
        if snapshot.reason == "interrupted" and not self.stopping:
            self.stopping = True
            self._say(STOPPING)
        if self.silent:
            return
        for row in snapshot.rows:
            if row.notice and row.trial not in self.reported:
                self._say(f"trial {row.trial}: {row.notice}")
        self.reported = {row.trial for row in snapshot.rows if row.notice}
        for message in snapshot.messages:
            self._say(message)
        if self.view is None:
            self.view = _View(self.stream, _frames(self.stream) if self.terminal else None)
        self.view.show(snapshot)

    def close(self) -> None:
        """Erase the view, so that the result is printed in its place.

        If the view is on a terminal and stdout is not a terminal, also print the last status as one
        line.
        """
        view = self.view
        self.view = None
        if view is not None:
            view.close()
            if self.terminal and view.snapshot is not None and not sys.stdout.isatty():
                self._say(status_line(view.snapshot))

    def _say(self, text: str) -> None:
        """Print a text that later frames do not overwrite."""
        # If nobody reads the stream any more, the sweep continues.
        with contextlib.suppress(OSError, ValueError):
            if self.view is not None:
                self.view.say(text)
            else:
                print(text, file=self.stream, flush=True)


class _View:
    """Draws frames over each other, or prints a line every few seconds.

    A thread draws the sweep, so that the displayed time advances while the driver waits.

    Args:
        stream: Stream to write to.
        frames: Rich's live display on the stream; None to print lines.
    """

    def __init__(self, stream: TextIO, frames: Live | None) -> None:
        self.stream = stream
        self.frames = frames
        self.snapshot: SweepStatus | None = None
        self.shown_at = 0.0  # time.monotonic()
        self.done = threading.Event()
        self.thread = threading.Thread(target=self._run, name="live view", daemon=True)

    def show(self, snapshot: SweepStatus) -> None:
        """Show this status until the next call."""
        if self.frames is not None and not self.frames.is_started:
            self.frames.start()
            # A second Ctrl-C would leave the cursor hidden.
            self.frames.console.show_cursor(True)
        self.snapshot = snapshot
        self.shown_at = time.monotonic()
        if self.thread.ident is None:  # Not yet started. A thread ends if the terminal has closed.
            self.thread.start()

    def say(self, text: str) -> None:
        """Print a text that stays, above the frame if there is one."""
        if self.frames is not None:
            self.frames.console.print(text, soft_wrap=True)
        else:
            print(text, file=self.stream, flush=True)

    def close(self) -> None:
        """Stop the thread, and erase the frame."""
        self.done.set()
        if self.thread.is_alive():
            self.thread.join()
        if self.frames is not None:
            with contextlib.suppress(OSError, ValueError):
                self.frames.update("")
                self.frames.stop()

    def _run(self) -> None:
        every = LINE_EVERY if self.frames is None else FRAME_EVERY
        with contextlib.suppress(OSError, ValueError):  # The terminal has closed.
            while not self.done.wait(every):
                self._draw()

    def _draw(self) -> None:
        """Draw the latest status with the current time."""
        assert self.snapshot is not None
        seconds = self.snapshot.seconds + time.monotonic() - self.shown_at
        status = dataclasses.replace(self.snapshot, seconds=seconds)
        if self.frames is None:
            self.say(status_line(status))
            return
        from sweeps.notebook.live_layout import layout

        self.frames.update(layout(status), refresh=True)


def _frames(stream: TextIO) -> Live:
    """Return Rich's live display, which draws each frame over the previous frame."""
    from rich.console import Console
    from rich.live import Live

    # Texts that other code writes to standard error appear above the frame.
    return Live(
        console=Console(file=stream, highlight=False, markup=False),
        auto_refresh=False,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=stream is sys.stderr,
    )
