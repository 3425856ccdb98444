"""Ctrl-C: the first asks the sweep to stop gently, the second ends the process."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any


class Interrupt:
    """`asked` turns true at the first SIGINT or SIGTERM while `listening`.

    Args:
        last: what the second one says before it ends the process.
    """

    def __init__(self, last: str = "") -> None:
        self.asked, self.last = False, last

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {s: signal.signal(s, self._handle) for s in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _handle(self, number: int, frame: Any) -> None:
        if self.asked:
            # Ray's processes die with this one, their parent; nothing of the record is half written that a resume cannot mend.
            os.write(2, self.last.encode())
            os._exit(130)
        self.asked = True
