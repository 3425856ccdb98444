"""Show the number of processed rows on one line of the terminal, which updates overwrite."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TextIO


@contextlib.contextmanager
def row_counter(
    stream: TextIO | None, clock: Callable[[], float] = time.monotonic
) -> Iterator[Callable[[int], None]]:
    """Context manager whose value is a function that shows the progress.

    The function takes the number of rows that have been processed so far. It shows this number and
    the rows per second. The line is erased at the end of the `with` block. If `stream` is not a
    terminal, nothing is shown.
    """
    shown = False
    start = clock()

    def show(rows: int) -> None:
        nonlocal shown
        if stream is not None and stream.isatty():
            shown = True
            rate = rows / max(clock() - start, 1e-9)
            stream.write(f"\r{rows:,} rows, {rate:,.0f}/s\x1b[K")
            stream.flush()

    try:
        yield show
    finally:
        if stream is not None and shown:
            stream.write("\r\x1b[K")
            stream.flush()
