"""Show a running sweep on standard error.

A terminal shows a live view; other streams get a line every few seconds.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TextIO

from sweeps.controller.status import STOPPING_GENTLY, SweepStatus, status_line

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
        self.view: _Frames | _Lines | None = None
        self.stopping = False
        self.reported: set[str] = set()  # ids of the trials whose notice was shown already

    def __call__(self, snapshot: SweepStatus) -> None:
        """Show a snapshot of the sweep."""
        if snapshot.reason == "interrupted" and not self.stopping:
            self.stopping = True
            self._say(STOPPING)
        for row in snapshot.rows:
            if row.notice and row.trial not in self.reported and not self.silent:
                self._say(f"trial {row.trial}: {row.notice}")
        self.reported = {row.trial for row in snapshot.rows if row.notice}
        for message in () if self.silent else snapshot.messages:
            self._say(message)
        if not self.silent:
            self.view = self.view or (
                _Frames(self.stream) if self.terminal else _Lines(self._print)
            )
            self.view.show(snapshot)

    def close(self) -> None:
        """Erase the view, so that the result is printed in its place.

        If the view is on a terminal and stdout is not a terminal, also print the last status as one
        line.
        """
        view, self.view = self.view, None
        if view is not None:
            view.close()
            if isinstance(view, _Frames) and view.snapshot is not None and not sys.stdout.isatty():
                self._print(status_line(view.snapshot))

    def _say(self, text: str) -> None:
        """Print a text that later frames do not overwrite."""
        if self.view is not None:
            self.view.say(text)
        else:
            self._print(text)

    def _print(self, text: str) -> None:
        with contextlib.suppress(
            OSError, ValueError
        ):  # If nobody reads the stream any more, the sweep continues.
            print(text, file=self.stream, flush=True)


class _View:
    """Base class of the views.

    A thread draws the sweep, so that the displayed time advances while the driver waits.
    """

    def __init__(self) -> None:
        self.snapshot: SweepStatus | None = None
        self.at = 0.0
        self.done = threading.Event()
        self.thread = threading.Thread(target=self._run, name="live view", daemon=True)

    def show(self, snapshot: SweepStatus) -> None:
        """Show this status until the next call."""
        self.snapshot, self.at = snapshot, time.monotonic()
        if self.thread.ident is None:  # Not yet started. A thread ends if the terminal has closed.
            self.thread.start()

    def close(self) -> None:
        """Stop the thread."""
        self.done.set()
        if self.thread.is_alive():
            self.thread.join()

    def _now(self) -> SweepStatus:
        assert self.snapshot is not None
        return dataclasses.replace(
            self.snapshot, seconds=self.snapshot.seconds + time.monotonic() - self.at
        )

    def _run(self) -> None:
        raise NotImplementedError


class _Lines(_View):
    """Prints a line every few seconds."""

    def __init__(self, say: Callable[[str], None]):
        super().__init__()
        self.say = say

    def _run(self) -> None:
        while not self.done.wait(LINE_EVERY):
            self.say(status_line(self._now()))


class _Frames(_View):
    """Draws each frame over the previous frame.

    `rich.live.Live` is not used, for three reasons. It hides the cursor, and a second Ctrl-C would
    leave the cursor hidden. It erases a frame before it draws the next one, which flickers. It
    miscounts lines when the terminal is made narrower.
    """

    def __init__(self, stream: TextIO):
        from rich.console import Console

        from sweeps.terminal.live_layout import View

        super().__init__()
        self.console = Console(file=stream, highlight=False)
        self.stream, self.view = stream, View()
        self.widths: list[int] = []  # widths of the lines on the screen
        self.lock = threading.RLock()
        self.others = _Above(self) if stream is sys.stderr else None
        if self.others is not None:
            sys.stderr = self.others

    def say(self, text: str) -> None:
        """Print a line above the frame. Later frames do not overwrite the line."""
        with self.lock, contextlib.suppress(OSError, ValueError):
            self._write(self._over([]) + text + "\n")
            self.widths = []

    def close(self) -> None:
        """Erase the frame."""
        super().close()
        with contextlib.suppress(OSError, ValueError):
            self._write(self._over([]))
            self.widths = []
            if self.others is not None:
                self.others.flush()
        if self.others is not None and sys.stderr is self.others:
            sys.stderr = self.stream

    def _run(self) -> None:
        with contextlib.suppress(OSError, ValueError):  # The terminal has closed.
            while True:
                with self.lock:
                    self._draw()
                if self.done.wait(FRAME_EVERY):
                    return

    def _draw(self) -> None:
        width, height = self._size()
        # The last column stays free, because terminals treat it differently. One line stays free
        # for the cursor.
        lines = self.view.lines(self._now(), width - 1, height - 1)
        drawn = []
        for text in lines:
            with self.console.capture() as capture:
                self.console.print(text, soft_wrap=True, end="")
            drawn.append(capture.get())
        self._write(self._over(drawn))
        self.widths = [text.cell_len for text in lines]

    def _over(self, lines: list[str]) -> str:
        """Return the text that draws new lines over the lines on the screen, without erasing the old lines first."""
        width, height = self._size()
        up = sum(
            max(1, math.ceil(w / width)) for w in self.widths
        )  # A terminal that was made narrower wraps lines.
        up = min(up, height - 1)
        rest = max(0, up - len(lines))
        drawn = "".join(f"{text}\x1b[K\n" for text in lines + [""] * rest)
        return (
            "\r"
            + (f"\x1b[{up}A" if up else "")
            + drawn
            + "\x1b[K"
            + (f"\x1b[{rest}A" if rest else "")
        )

    def _size(self) -> tuple[int, int]:
        try:
            width, height = os.get_terminal_size(self.stream.fileno())
        except OSError:
            width = height = 0
        return width or 80, height or 24

    def _write(self, text: str) -> None:
        self.stream.write(text)
        self.stream.flush()


class _Above:
    """Stream that replaces standard error while frames are drawn.

    Written text appears above the frame, and is not overwritten.
    """

    def __init__(self, frames: _Frames):
        self.frames, self.part = frames, ""

    def write(self, text: str) -> int:
        if self.frames.done.is_set():  # The view is closed, but somebody still uses this object.
            return self.frames.stream.write(text)
        whole, newline, self.part = (self.part + text).rpartition("\n")
        if newline:
            self.frames.say(whole)
        return len(text)

    def flush(self) -> None:
        """Write an unfinished line if the view is closed.

        While the view is open, the next frame would overwrite the line.
        """
        if self.frames.done.is_set():
            self.frames.stream.write(self.part)
            self.frames.stream.flush()
            self.part = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.frames.stream, name)
