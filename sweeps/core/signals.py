"""Handle signals: the first asks the sweep to stop, and a second Ctrl-C or SIGTERM ends the process at once."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from types import FrameType

import psutil

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Repeated signals within this time count as one. `timeout` sends SIGTERM twice, and a closing terminal sends several SIGHUP.
REPEAT_SECONDS = 1.0


class Interrupt:
    """Signal handler that asks the sweep to stop. A SIGHUP that is ignored, as under `nohup`, stays ignored.

    Args:
        last: Message to print before a second signal ends the process.

    Attributes:
        asked: True after a SIGINT, SIGTERM or SIGHUP has arrived while `listening`.
    """

    def __init__(self, last: str = "") -> None:
        self.asked, self.last = False, last
        self._asked_at = 0.0  # time.monotonic()

    def again(self) -> None:
        """Install the handlers again, after `ray.init` has replaced them by its own."""
        if threading.current_thread() is threading.main_thread():
            for number in handled_signals():
                signal.signal(number, self._handle)

    def listening(self) -> AbstractContextManager[None]:
        """Install the handlers while the context is active. Does nothing outside of the main thread."""
        return handling(handled_signals(), self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        """Record the first signal. End the process and its children at the second signal."""
        if self.asked and (number == signal.SIGHUP or (number == signal.SIGTERM and time.monotonic() - self._asked_at < REPEAT_SECONDS)):
            return
        if self.asked:
            # The process may end here, because a resume repairs a half-written study. Most of Ray's processes end with it, the
            # others a little later.
            os.write(2, self.last.encode())
            with contextlib.suppress(psutil.Error):
                for process in psutil.Process().children(recursive=True):
                    with contextlib.suppress(psutil.Error):
                        process.kill()
            os._exit(130)
        self.asked, self._asked_at = True, time.monotonic()


def handled_signals() -> list[signal.Signals]:
    """Return the signals that stop a sweep. SIGHUP is one of them unless it is ignored."""
    return [number for number in SIGNALS if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN]


@contextlib.contextmanager
def handling(numbers: Iterable[signal.Signals], handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Install a handler for signals while the context is active. Does nothing outside of the main thread, which alone gets signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
