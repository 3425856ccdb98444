"""Methods of the pool that ranks call: reports, decisions, and exchanges between ranks."""

import asyncio
import logging
from typing import Any

from sweeps.core import clock

from .messages import AttemptId, Job, RankUpdate, Silence
from .trials.running_trial import RunningTrial
from .trials.trial_services import TrialServices

log = logging.getLogger(__name__)


class RankCalls:
    """Answers the ranks of running trials.

    Args:
        job: Settings that all trials of the sweep share.
        services: The services that all trials share.

    Attributes:
        trials: The trials that the driver has started and whose end it has not recorded, by id.
    """

    def __init__(self, job: Job, services: TrialServices):
        self.job = job
        self.services = services
        self.trials: dict[str, RunningTrial] = {}

    def _trial_in(self, attempt: AttemptId) -> RunningTrial | None:
        """Return the trial of an attempt; None if the attempt has ended."""
        running = self.trials.get(attempt.trial)
        if running is None or running.state.attempt != attempt.number:
            return None
        return running

    async def restart_clock(self, attempt: AttemptId) -> None:
        """Restart the clock of an attempt after a new worker has imported the user's module.

        The duration of the attempt then does not include the import.
        """
        running = self._trial_in(attempt)
        if running is not None and running.began is not None:
            running.began = clock.monotonic()

    async def resumed(self, attempt: AttemptId, rank: int, read_checkpoint: bool) -> bool:
        """Tell a rank whether the loop continues from its checkpoint.

        Rank 0 decides this for all ranks, so the others wait for rank 0.

        Args:
            attempt: The attempt.
            rank: Rank that calls this method.
            read_checkpoint: True if the loop on this rank has read its checkpoint.

        Returns:
            The value of `read_checkpoint` on rank 0.
        """
        running = self._trial_in(attempt)
        if running is None:
            return read_checkpoint
        if rank == 0 and not running.resumed.done():
            running.resumed.set_result(read_checkpoint)
        return await asyncio.shield(running.resumed)

    async def exchange(self, attempt: AttemptId, rank: int, number: int, value: Any) -> list[Any]:
        """Wait until every rank of a trial has given a value; return all values, ordered by rank.

        Args:
            attempt: The attempt.
            rank: Rank that gives the value.
            number: Number of the exchange: 1 for the first exchange of the attempt, on all ranks.
            value: The value.

        Raises:
            RuntimeError: The attempt has ended.
        """
        running = self._trial_in(attempt)
        if running is None:
            raise RuntimeError("this attempt of the trial has ended")
        return await running.exchange(rank, number, value)

    async def record_update(self, attempt: AttemptId, update: RankUpdate) -> None:
        """Record a message of a rank.

        Messages of earlier attempts and of ended trials are ignored.
        """
        running = self._trial_in(attempt)
        if running is not None and running.record(attempt.number, update):
            self.services.follow_up(running)

    async def record_silence(self, attempt: AttemptId, silence: Silence) -> None:
        """Record and log the notice of a rank that has not reported for a long time.

        Notices of earlier attempts are ignored.
        """
        if (running := self._trial_in(attempt)) is not None:
            log.warning("trial %s: %s", attempt.trial, silence)
            running.silent[silence.rank] = silence

    async def may_continue(self, attempt: AttemptId, update: RankUpdate) -> bool:
        """Decide whether a loop continues after a report. All ranks get the same decision.

        At a rung, the driver decides. The driver is asked when rank 0 has reached the rung; under
        PBT, when all ranks have reached it. The loop also stops if its gang changes its size after
        this report. The trial then continues in another attempt.

        Args:
            attempt: The attempt.
            update: The rank's message. Its `step` is the step of the report.

        Returns:
            False if the loop must stop, for example because the trial has ended or another attempt
            has started.
        """
        running = self._trial_in(attempt)
        if running is None or not running.record(attempt.number, update):
            return False
        self.services.follow_up(running)
        if update.step in self.job.rungs and not await self._await_decision(running, update):
            return False
        if self._trial_in(attempt) is None:
            return False
        return await self.services.elastic.may_continue(running, update.step)

    async def _await_decision(self, running: RunningTrial, update: RankUpdate) -> bool:
        """Wait for the driver's decision at a rung: True if the trial continues."""
        decision = running.decisions[update.step]
        running.update_rungs(together=bool(self.job.milestones))
        waits_since = clock.monotonic()
        began = running.began
        continues = await asyncio.shield(decision)
        # An attempt does not include the time of the decision, unless a new attempt has begun.
        if update.rank == 0 and began is not None and running.began == began:
            running.began += clock.monotonic() - waits_since
        return continues
