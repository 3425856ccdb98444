"""Ctrl-C: the first asks the sweep to stop gently, the second ends the process."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import psutil

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupt:
    """`asked` turns true at the first SIGINT or SIGTERM while `listening`.

    Args:
        last: what the second one says before it ends the process.
    """

    def __init__(self, last: str = "") -> None:
        self.asked, self.last = False, last

    def again(self) -> None:
        """Listen on, after `ray.init` has put handlers of its own in the place of these."""
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                signal.signal(number, self._handle)

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {s: signal.signal(s, self._handle) for s in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _handle(self, number: int, frame: Any) -> None:
        if self.asked:
            # Nothing of the record is half written that a resume cannot mend. Most of Ray's processes die with this one, some later.
            os.write(2, self.last.encode())
            with contextlib.suppress(psutil.Error):
                for process in psutil.Process().children(recursive=True):
                    with contextlib.suppress(psutil.Error):
                        process.kill()
            os._exit(130)
        self.asked = True
