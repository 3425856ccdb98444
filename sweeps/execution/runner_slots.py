"""Track which runners of Ray Tune are up, and delay the end of trials until all runners have started."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

# Longest time, in seconds, that the end of a trial is delayed until a runner has started.
UP_WITHIN = 10.0


class RunnerSlots:
    """The runners that Tune has started and not ended, and the number of runners that Tune may run at the same time (slots).

    When a runner becomes free, Tune assigns this runner to the trial that has waited longest, and kills the runner that was starting for
    that trial. If trials are shorter than the start of a runner (a second or two on one core), only one runner would ever run. Until the
    end of the sweep, Tune would start and kill other runners. To prevent this, trials do not end before each slot has a runner.

    Attributes:
        up: Names of the runners that have started and not ended.
        slots: Number of slots; None before the first runner has started.
        changed: Set when a runner starts or ends.
    """

    def __init__(self) -> None:
        self.up: set[str] = set()
        self.slots: int | None = None
        self.changed = asyncio.Event()

    def add(self, runner: str, slots: int, before: str | None) -> None:
        """Record that a runner starts to follow a trial.

        Args:
            runner: Name of the runner.
            slots: Number of runners that Tune runs at the same time.
            before: Name of the lost runner that followed the trial before this runner; None for the trial's first runner.
        """
        if self.slots is None:
            self.slots = slots
        if before is not None:
            self.up.discard(before)
        self.up.add(runner)
        self.changed.set()

    def remove(self, runner: str) -> None:
        """Record that Tune has ended a runner."""
        self.up.discard(runner)
        self.changed.set()

    async def complete(self, coming: Callable[[], bool]) -> None:
        """Wait until every slot has a runner, or no further runner will start.

        Args:
            coming: Function that returns whether a runner is still starting.
        """
        until = time.monotonic() + UP_WITHIN
        while self.slots is not None and len(self.up) < self.slots and coming():
            if (left := until - time.monotonic()) <= 0:
                self.slots = len(self.up)  # Later calls do not wait for this runner again.
                return
            self.changed.clear()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.changed.wait(), left)
