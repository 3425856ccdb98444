"""The clock of this process. A simulation replaces it by a virtual one."""

import contextlib
import time as _time
from collections.abc import Iterator


class Clock:
    """The clock of the machine."""

    def time(self) -> float:
        """Return the seconds since the epoch."""
        return _time.time()

    def monotonic(self) -> float:
        """Return seconds that never go back. Only differences have a meaning."""
        return _time.monotonic()


_clock = Clock()


def time() -> float:
    """Return the seconds since the epoch."""
    return _clock.time()


def monotonic() -> float:
    """Return seconds that never go back. Only differences have a meaning."""
    return _clock.monotonic()


@contextlib.contextmanager
def use_clock(clock: Clock) -> Iterator[None]:
    """Let this process use another clock while the `with` block runs."""
    global _clock
    before = _clock
    _clock = clock
    try:
        yield
    finally:
        _clock = before
