"""Change the number of workers of elastic trials.

Decide when a gang grows, and which workers a trial keeps for its next attempt.
"""

import asyncio

from sweeps.execution.gangs import allocation
from sweeps.execution.gangs.cluster_state import Phase
from sweeps.execution.gangs.pool_worker import Gang, WorkerLost
from sweeps.execution.gangs.worker_pool import WorkerPool
from sweeps.execution.messages import Ended

from .running_trial import RunningTrial


class ElasticGangs:
    """Changes the sizes of the gangs of elastic trials. For other trials, the methods do nothing.

    Args:
        workers: The worker pool.

    Attributes:
        all_started: True if the sweep's driver has started all trials of the sweep. Only then may
            gangs grow.
        without_workers: Ids of started trials that wait for data or for workers. While there are
            any, no gang grows.
    """

    def __init__(self, workers: WorkerPool):
        self.workers = workers
        self.all_started = False
        self.without_workers: set[str] = set()

    def may_change_size(self, running: RunningTrial, size: int) -> bool:
        """Return whether the gang of the trial may change its size during this attempt.

        Args:
            running: The trial.
            size: Number of workers of the gang at the start of the attempt.
        """
        shape = running.trial.shape
        if not running.may_grow or size >= shape.sizes[-1]:
            return False
        # A cluster may get new nodes.
        nodes_may_join = not self.workers.nodes.are_fixed
        return nodes_may_join or size < allocation.largest_gang(shape, self.workers.cluster())

    def keep_workers(self, gang: Gang, running: RunningTrial, outcome: Ended | WorkerLost) -> bool:
        """Keep the workers of an elastic trial, if its next attempt can start at once.

        The next attempt can start at once in two cases. First, the gang stopped in order to grow,
        and the additional workers are already reserved. Second, workers were lost, and the
        remaining workers are enough for the trial.

        Returns:
            True if workers were kept. False if the trial ends, or must wait for workers like any
            other trial.
        """
        joining = running.next_workers
        running.next_workers = []
        remaining = [
            worker for worker in gang.workers if worker.lost is None and worker.phase is Phase.BUSY
        ]
        was_lost = isinstance(outcome, WorkerLost)
        # Some workers were closed. For example, TensorFlow's workers cannot join another gang.
        if joining and not was_lost and len(remaining) < len(gang.workers):
            running.may_grow = False
        grows = bool(joining) and running.may_grow and running.yields
        is_enough = len(remaining) + len(joining) >= running.trial.shape.workers
        if running.state.is_elastic and (was_lost or grows) and is_enough:
            running.next_workers = [*remaining, *joining]
            return True
        self.workers.give_back(joining)
        return False

    async def may_continue(self, running: RunningTrial, step: int) -> bool:
        """Wait until all ranks of an elastic trial have reported a step, if its gang may change.

        Returns:
            True if the ranks continue. False if the gang changes its size.
        """
        if not running.may_change_size:
            return True
        answer = running.answers[step]
        self.answer_ranks(running)
        return await asyncio.shield(answer)

    def answer_ranks(self, running: RunningTrial) -> None:
        """Decide whether the gang grows, at each step that all ranks have reported.

        If a rank has ended, the gang keeps its size.
        """
        parts = running.parts
        for step, answer in sorted(running.answers.items()):
            if answer.done() or not parts.all_have_reached(step):
                continue
            ended = any(parts.has_ended(rank) for rank in range(parts.ranks))
            answer.set_result(ended or not self._grow(running, step))
            for earlier in [other for other in running.answers if other < step]:
                del running.answers[earlier]

    def _grow(self, running: RunningTrial, step: int) -> bool:
        """Reserve additional workers for a gang at this step. Return False if it cannot grow."""
        checkpoint = running.state.checkpoint
        if checkpoint is None:
            return False
        trials_pending = not self.all_started or bool(self.without_workers)
        joining = self.workers.grow(
            running.trial.shape, running.workers, trials_pending, reserve=checkpoint.step == step
        )
        running.next_workers = joining
        running.yields = bool(joining)
        return running.yields
