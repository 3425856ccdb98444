"""Tune's runners, as the pool sees them: which are up, and whether a trial's end should wait for one that is on its way."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

# A runner that takes longer to start is not waited for, in seconds.
UP_WITHIN = 10.0


class RunnerSlots:
    """The runners that are up.

    Tune gives a runner that becomes free to the trial that waits longest, and kills the one that it was starting for that trial. Of several
    slots with trials shorter than such a start (a second or two of a core) only one would ever have a runner, and Tune would start and kill
    others as long as the sweep lasts. So ends are held back until as many runners are up as there are slots.
    """

    def __init__(self) -> None:
        self.up: set[str] = set()
        self.slots: int | None = None
        self.changed = asyncio.Event()

    def came(self, runner: str, slots: int, before: str | None) -> None:
        """A runner takes up a trial, from one `before` if that was lost."""
        if self.slots is None:
            self.slots = slots
        if before is not None:
            self.up.discard(before)
        self.up.add(runner)
        self.changed.set()

    def went(self, runner: str) -> None:
        """Tune has no more use for a runner."""
        self.up.discard(runner)
        self.changed.set()

    async def complete(self, coming: Callable[[], bool]) -> None:
        """Wait until every slot has its runner, or none is coming any more."""
        until = time.monotonic() + UP_WITHIN
        while self.slots is not None and len(self.up) < self.slots and coming():
            if (left := until - time.monotonic()) <= 0:
                self.slots = len(self.up)  # nobody waits for it twice
                return
            self.changed.clear()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.changed.wait(), left)
