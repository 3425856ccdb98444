"""Show the statuses of a sweep that another process runs: a live view on a terminal, else a line for each change."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable
from typing import TextIO

from sweeps.controller.status import SweepStatus, status_line
from sweeps.terminal.live import Progress


def watch(statuses: Iterable[SweepStatus], stream: TextIO) -> None:
    """Show statuses until there are no more.

    Args:
        statuses: The statuses, one after the other.
        stream: Stream to write to.
    """
    progress = Progress(silent=False, stream=stream)
    if not progress.terminal:
        shown = ""
        for status in statuses:
            if (content := status_line(dataclasses.replace(status, seconds=0))) != shown:
                shown = content
                print(status_line(status), file=stream, flush=True)
        return
    with contextlib.closing(progress):
        for status in statuses:
            progress(status)
