"""Change the number of workers of elastic trials: decide when a gang grows, and which workers a trial keeps for its next attempt."""

from __future__ import annotations

import asyncio

from sweeps.execution.allocation import Phase
from sweeps.execution.gates import STOP
from sweeps.execution.messages import Ended
from sweeps.execution.pool_worker import Gang, WorkerLost
from sweeps.execution.running_trial import RunningTrial
from sweeps.execution.worker_pool import WorkerPool

# The ranks of an elastic gang that cannot grow now ask again after about this many seconds.
ASK_EVERY = 0.25


class ElasticGangs:
    """Changes the sizes of the gangs of elastic trials. For other trials, the methods do nothing.

    Args:
        workers: The worker pool.

    Attributes:
        all_started: Whether the sweep's driver has started all trials of the sweep. Only then may
            gangs grow.
        without_workers: Ids of started trials that wait for data or for workers. While there are
            any, no gang grows.
    """

    def __init__(self, workers: WorkerPool):
        self.workers = workers
        self.all_started = False
        self.without_workers: set[str] = set()

    def may_change(self, running: RunningTrial, size: int) -> bool:
        """Return whether the gang of the trial may change its size during this attempt.

        Args:
            running: The trial.
            size: Number of workers of the gang at the start of the attempt.
        """
        if running.replay:
            return len(running.replay) > 1
        return running.may_grow and size < self.workers.largest(running.trial.shape)

    def keep_workers(self, gang: Gang, running: RunningTrial, outcome: Ended | WorkerLost) -> bool:
        """If an elastic trial can start its next attempt at once, keep its workers, and add the workers by which the gang grows.

        The next attempt can start at once in two cases. First, the gang stopped in order to grow,
        and the additional workers are already reserved. Second, workers were lost, and the
        remaining workers are enough for the trial.

        Returns:
            True if workers were kept. False if the trial ends, or must wait for workers like any
            other trial.
        """
        joining, running.kept = running.kept, []
        remaining = [
            worker for worker in gang.workers if worker.lost is None and worker.phase is Phase.BUSY
        ]
        lost = isinstance(outcome, WorkerLost)
        if (
            joining and not lost and len(remaining) < len(gang.workers)
        ):  # For example, TensorFlow's workers cannot join another gang.
            running.may_grow = False
        resizes = lost or (bool(joining) and running.may_grow and running.yields)
        if (
            running.is_elastic
            and not running.replay
            and resizes
            and len(remaining) + len(joining) >= running.trial.shape.workers
        ):
            running.kept = [*remaining, *joining]
            return True
        self.workers.give_back(joining)
        return False

    async def may_continue(self, running: RunningTrial, step: int) -> int:
        """If a step is a gate of an elastic trial, wait until all ranks have reported it, and decide whether the gang changes its size.

        A gate is a step at which all ranks wait; see `Gates`. If the step is no gate, return at
        once.

        Returns:
            The step of the next gate. `STOP` if the ranks must stop here, because the gang changes
            its size.
        """
        if not running.asks or step < running.gates.next_step:
            return running.gates.next_step
        answer = running.gates.answer(step)
        self.update_gates(running)
        return await asyncio.shield(answer)

    def update_gates(self, running: RunningTrial) -> None:
        """If all ranks of an elastic trial have reached a gate, decide whether the gang changes its size, and answer the ranks."""
        running.gates.update(lambda step: self._resize(running, step))

    def _resize(self, running: RunningTrial, step: int) -> int:
        """Decide whether a gang changes its size at a step that all ranks have reported.

        If it grows, reserve the additional workers.

        Returns:
            `STOP` if the gang changes its size. Otherwise the step of the next gate.
        """
        if running.replay:
            running.yields = step >= running.replay[1].reported
            return STOP if running.yields else running.replay[1].reported
        checkpoint = running.progress.checkpoint
        if checkpoint is None:
            return running.gates.later(step, ASK_EVERY)
        trials_pending = not self.all_started or bool(self.without_workers)
        joining = self.workers.grow(
            running.trial.shape, running.workers, trials_pending, reserve=checkpoint.step == step
        )
        if joining is None:
            return running.gates.later(step, ASK_EVERY)
        running.kept, running.yields = joining, bool(joining)
        return STOP if joining else step + 1
