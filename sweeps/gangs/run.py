"""A trial on its way through the pool."""

from __future__ import annotations

import asyncio
import time

from sweeps.gangs.booking import Book
from sweeps.gangs.messages import Stage
from sweeps.trial import State, Trial


class Run:
    """A trial on its way, over all its attempts."""

    def __init__(self, trial: Trial, folder: str, book: Book):
        self.trial, self.folder, self.book = trial, folder, book
        self.stage = Stage.PREPARING
        self.runner = 0  # counts the runners that have taken it up
        self.verdicts: dict[int, asyncio.Future] = {}
        self.resumed: asyncio.Future = asyncio.get_running_loop().create_future()
        self.stopped = False  # the driver has booked its end (at a rung) before its ranks came to theirs
        self.seconds = 0.0  # on gangs, in attempts that have ended
        self.began: float | None = None  # when its ranks began this attempt, by the monotonic clock
        self.lost = 0  # gangs that died under it
        self.again = False  # its ranks are being stopped at a milestone, for another attempt to go on from there
        self.task: asyncio.Task | None = None
        self.changed = asyncio.Event()

    def spent(self) -> float:
        """Seconds on gangs, up to now."""
        return self.seconds + (time.monotonic() - self.began if self.began is not None else 0.0)

    def finish(self, state: State, error: str | None = None, refused: tuple[str, str] | None = None) -> None:
        self.book.finish(state, error, refused)
        self.changed.set()
