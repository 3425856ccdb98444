"""Signals: the first asks the sweep to stop gently; a second Ctrl-C or SIGTERM ends the process."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import psutil

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# `timeout` sends SIGTERM to the process and then to its group; a terminal that is closed sends SIGHUP more than once.
SAME_WITHIN = 1.0


class Interrupt:
    """`asked` turns true at the first SIGINT, SIGTERM or SIGHUP while `listening`. A SIGHUP that is ignored, as under `nohup`, stays so.

    Args:
        last: what the second one says before it ends the process.
    """

    def __init__(self, last: str = "") -> None:
        self.asked, self.last = False, last
        self._asked_at = 0.0  # by the monotonic clock

    def again(self) -> None:
        """Listen on, after `ray.init` has put handlers of its own in the place of these."""
        if threading.current_thread() is threading.main_thread():
            for number in handled_signals():
                signal.signal(number, self._handle)

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {s: signal.signal(s, self._handle) for s in handled_signals()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _handle(self, number: int, frame: Any) -> None:
        if self.asked and (number == signal.SIGHUP or (number == signal.SIGTERM and time.monotonic() - self._asked_at < SAME_WITHIN)):
            return
        if self.asked:
            # Nothing of the record is half written that a resume cannot mend. Most of Ray's processes die with this one, some later.
            os.write(2, self.last.encode())
            with contextlib.suppress(psutil.Error):
                for process in psutil.Process().children(recursive=True):
                    with contextlib.suppress(psutil.Error):
                        process.kill()
            os._exit(130)
        self.asked, self._asked_at = True, time.monotonic()


def handled_signals() -> list[signal.Signals]:
    """Return the signals that stop a sweep: SIGHUP only where it is not ignored."""
    return [number for number in SIGNALS if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN]
