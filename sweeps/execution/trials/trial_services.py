"""Services that all trials of the pool share: workers, the growth of gangs, deleted checkpoints."""

import asyncio
from collections.abc import Callable, Iterable

from sweeps.core.files.checkpoint_files import (
    checkpoint_names,
    checkpoint_root_in,
    delete_checkpoint,
)
from sweeps.execution.background import Background
from sweeps.execution.gangs.worker_pool import WorkerPool
from sweeps.execution.messages import Job, Labels

from .elastic import ElasticGangs
from .running_trial import RunningTrial

# After the end of a rank, the message to the driver is delayed by this time, in seconds. The trial
# often ends during this delay, and one message is then enough.
END_DELAY = 0.05


class TrialServices:
    """Services that all trials share.

    Args:
        workers: The worker pool.
        spawn: Runs a coroutine in the background.
        kills_for_memory: Function that returns how many processes were killed for lack of memory on
            this machine up to now.

    Attributes:
        labels: Description of the label column. All its attributes are None until the data is read.
        elastic: Changes the number of workers of elastic trials.
        unneeded: Checkpoints in the sweep's store that are no longer needed, the oldest first.
    """

    def __init__(self, workers: WorkerPool, spawn: Background, kills_for_memory: Callable[[], int]):
        self.workers = workers
        self.spawn = spawn
        self.kills_for_memory = kills_for_memory
        self.labels = Labels()
        self.elastic = ElasticGangs(workers)
        self.unneeded: dict[str, None] = {}
        # Path of the checkpoint that each background thread deletes now.
        self._deletions: dict[asyncio.Future[bool], str] = {}

    @property
    def job(self) -> Job:
        """Settings that all trials share."""
        return self.workers.job

    def follow_up(self, running: RunningTrial, ended: bool = False) -> None:
        """Let the driver hear of a message of a rank, and delete checkpoints that it replaces.

        Args:
            running: The trial.
            ended: True if the loop has ended on the rank.
        """
        self.delete_unneeded(running)
        if ended:
            asyncio.get_running_loop().call_later(END_DELAY, running.changed.set)
        else:
            running.changed.set()

    def delete_unneeded(self, running: RunningTrial) -> None:
        """Delete those checkpoints of a trial that are no longer needed, in the background.

        If the sweep has a store, only add the checkpoints to `unneeded`. The driver calls
        `delete_noted` when it has saved the study in the store.
        """
        root = checkpoint_root_in(self.job.store, running.folder)
        for name in running.parts.drop_unneeded(running.state):
            path = f"{root}/{name}"
            if self.job.store is None:
                self._delete(path)
            else:
                self.unneeded[path] = None

    def delete_noted(self, paths: Iterable[str]) -> None:
        """Delete those of these checkpoints that are still in `unneeded`."""
        for path in paths:
            if path in self.unneeded:
                del self.unneeded[path]
                self._delete(path)

    def _delete(self, path: str) -> None:
        """Delete a checkpoint in a background thread."""
        deletion = self.spawn(asyncio.to_thread(delete_checkpoint, path))
        self._deletions[deletion] = path
        deletion.add_done_callback(self._deletions.pop)

    async def delete_incomplete(self, running: RunningTrial) -> None:
        """Before another attempt, delete the checkpoints that the trial does not need.

        The attempt may write checkpoints with the same names.

        Wait for deletions that have begun already, too. Otherwise, a slow one would delete what the
        attempt writes.
        """
        root = checkpoint_root_in(self.job.store, running.folder)
        names = await asyncio.to_thread(checkpoint_names, root)
        for name in running.parts.names_to_delete(running.state, names):
            path = f"{root}/{name}"
            self.unneeded.pop(path, None)
            self._delete(path)
        deletions = [
            deletion for deletion, path in self._deletions.items() if path.startswith(f"{root}/")
        ]
        # Unlike `gather`, this does not cancel the deletions if the trial is cancelled.
        if deletions:
            await asyncio.wait(deletions)
