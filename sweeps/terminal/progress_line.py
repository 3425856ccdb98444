"""Rows counted on a line that is written over, on a terminal alone."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TextIO


@contextlib.contextmanager
def counting(stream: TextIO | None, clock: Callable[[], float] = time.monotonic) -> Iterator[Callable[[int], None]]:
    """A function that shows how many rows are done and how fast; the line is gone at the end. Silent without a terminal."""
    shown, start = False, clock()

    def tell(rows: int) -> None:
        nonlocal shown
        if stream is not None and stream.isatty():
            shown = True
            rate = rows / max(clock() - start, 1e-9)
            stream.write(f"\r{rows:,} rows, {rate:,.0f}/s\x1b[K")
            stream.flush()

    try:
        yield tell
    finally:
        if stream is not None and shown:
            stream.write("\r\x1b[K")
            stream.flush()
