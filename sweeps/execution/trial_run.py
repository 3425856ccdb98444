"""A trial on its way through the pool."""

from __future__ import annotations

import asyncio
import time

from sweeps.core.trial import State, Trial
from sweeps.execution.messages import Silence, Stage
from sweeps.execution.trial_progress import TrialProgress

# A rank that is silent or too late has so long to say where it stands, in seconds.
STACKS_WITHIN = 2.0


class Run:
    """A trial on its way, over all its attempts."""

    def __init__(self, trial: Trial, folder: str, book: TrialProgress):
        self.trial, self.folder, self.book = trial, folder, book
        self.stage = Stage.PREPARING
        self.runner = 0  # counts the runners that have taken it up
        self.follower: str | None = None  # the name of the last of them
        self.verdicts: dict[int, asyncio.Future] = {}
        self.resumed: asyncio.Future = asyncio.get_running_loop().create_future()
        self.stopped = False  # the driver has booked its end (at a rung) before its ranks came to theirs
        self.seconds = 0.0  # on gangs, in attempts that have ended
        self.began: float | None = None  # when its ranks began this attempt, by the monotonic clock
        self.lost = 0  # attempts that were lost, or failed of an exception that is worth another
        self.silent: dict[int, Silence] = {}  # ranks that have not reported for long
        self.heard: dict[int, float] = {}  # when there was last news of a rank in this attempt, by the monotonic clock
        self.again = False  # its ranks are being stopped at a milestone, for another attempt to go on from there
        self.task: asyncio.Task | None = None
        self.changed = asyncio.Event()

    def spent(self) -> float:
        """Seconds on gangs, up to now."""
        return self.seconds + (time.monotonic() - self.began if self.began is not None else 0.0)

    def overdue(self, limit: float, workers: int, now: float) -> list[Silence]:
        """Return the ranks of this attempt that have not reported for longer than they may, or not answered beyond that.

        Args:
            limit: `limits.report_timeout`, in seconds.
            workers: of the gang.
            now: by the monotonic clock.
        """
        if self.began is None or any(not verdict.done() for verdict in self.verdicts.values()):
            return []
        late = {rank: silence for rank, silence in self.silent.items() if silence.seconds >= limit}
        for rank in set(range(workers)) - set(late):
            quiet = now - max(self.heard.get(rank, 0.0), self.began)
            if not self.book.has_ended(rank) and quiet > limit + STACKS_WITHIN:
                late[rank] = Silence(rank, quiet)
        return [late[rank] for rank in sorted(late)]

    def verdict(self, step: int) -> asyncio.Future:
        """What the driver decides of a rung, whether to go on; one for all ranks."""
        if step not in self.verdicts:
            self.verdicts[step] = asyncio.get_running_loop().create_future()
            if self.stopped:
                self.verdicts[step].set_result(False)
        return self.verdicts[step]

    def awaits(self, step: int) -> bool:
        """Whether the driver's answer at this rung is still wanted."""
        return self.book.answered(step) and not self.verdicts[step].done()

    def decide(self, step: int, go_on: bool) -> None:
        self.verdicts[step].set_result(go_on)

    def look_at_rungs(self, together: bool) -> None:
        """A rank has come to a rung, or to its end: have the driver asked when rank 0 waits; nobody waits for a rank that has ended.

        Args:
            together: the driver is asked when every rank has come, as the trial may go on from there with other parameters.
        """
        book = self.book
        if book.has_ended(0) and not self.resumed.done():
            self.resumed.set_result(False)
        for step, verdict in self.verdicts.items():
            if verdict.done() or book.rung == step:
                continue
            if book.has_ended(0):  # it will never come: the ranks have not reported equally often
                verdict.set_result(False)
            elif book.together_at(step) if together else book.has_come(0, step):
                book.waits_at(step)
                self.changed.set()

    def retry(self) -> None:
        """Prepare for another attempt after an exception: a rank that has ended decides no rung of that attempt."""
        if not self.stopped:
            self.verdicts = {step: verdict for step, verdict in self.verdicts.items() if not verdict.done() or verdict.result()}

    def stop(self) -> None:
        """Its end is on record: ranks that are still at it stop at their next rung."""
        self.stopped = True
        for verdict in self.verdicts.values():
            if not verdict.done():
                verdict.set_result(False)

    def finish(
        self, state: State, error: str | None = None, refused: tuple[str, str] | None = None, final: dict[str, float] | None = None
    ) -> None:
        self.book.finish(state, error, refused, final)
        self.changed.set()
