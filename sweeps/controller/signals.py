"""Handle signals. The first signal asks the sweep to stop.

A second Ctrl-C or SIGTERM ends the process at once.

In a notebook, a second interrupt raises `KeyboardInterrupt` instead, because the process has the
user's variables.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

import psutil

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# A SIGTERM within this time after the first signal is ignored, because `timeout` sends SIGTERM
# twice.
REPEAT_SECONDS = 1.0


class Interrupt:
    """Signal handler that remembers that the user wants the sweep to stop.

    The sweep looks at `asked`.

    The handler is installed for SIGINT, SIGTERM and SIGHUP. If the process already ignores SIGHUP,
    for example because it was started with `nohup`, SIGHUP stays ignored.

    Args:
        last: Message to print when a second signal ends the process.
        keeps_process: True if a second Ctrl-C raises `KeyboardInterrupt` and does not end the
            process. Later signals are then ignored, so that the sweep can release its resources.

    Attributes:
        asked: True as soon as the handler has received a signal.
    """

    def __init__(self, last: str = "", keeps_process: bool = False) -> None:
        self.asked = False
        self.last = last
        self._keeps_process = keeps_process
        self._raised = False  # True after the handler has raised `KeyboardInterrupt`
        self._asked_at = 0.0  # time of the first signal, by the monotonic clock

    def install(self) -> dict[signal.Signals, Any]:
        """Install the handlers, and return the handlers that were replaced.

        Call this method again after `ray.init`, which installs Ray's own handlers instead. Outside
        of the main thread, do nothing, because Python does not allow signal handlers there.
        """
        if threading.current_thread() is not threading.main_thread():
            return {}
        return {number: signal.signal(number, self._handle) for number in handled_signals()}

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Install the handlers while the `with` block runs. Then install the earlier ones again."""
        before = self.install()
        try:
            yield
        finally:
            for number, earlier in before.items():
                signal.signal(number, earlier)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        """Record the first signal. End the process and its children at the second signal.

        A second SIGHUP is ignored, because a closing terminal sends SIGHUP several times. A SIGTERM
        less than `REPEAT_SECONDS` after the first signal is ignored too, because the command
        `timeout` sends SIGTERM twice.
        """
        is_recent = time.monotonic() - self._asked_at < REPEAT_SECONDS
        is_repeated = number == signal.SIGHUP or (number == signal.SIGTERM and is_recent)
        if self.asked and is_repeated:
            return
        if self.asked and self._keeps_process and number != signal.SIGTERM:
            if not self._raised:
                self._raised = True
                raise KeyboardInterrupt(self.last.strip())
            return
        if self.asked:
            # It is safe to end the process here, because a resume repairs a half-written study.
            # Most of Ray's processes are children of this process and are killed here. The other
            # Ray processes end a little later.
            os.write(2, self.last.encode())
            with contextlib.suppress(psutil.Error):
                for process in psutil.Process().children(recursive=True):
                    with contextlib.suppress(psutil.Error):
                        process.kill()
            os._exit(130)
        self.asked = True
        self._asked_at = time.monotonic()


def handled_signals() -> list[signal.Signals]:
    """Return the signals that stop a sweep.

    SIGHUP is one of these signals, unless the process ignores it.
    """
    return [
        number
        for number in SIGNALS
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN
    ]
