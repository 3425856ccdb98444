"""Run trials on workers: wait for prepared data, reserve a gang, and try again after failures."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ray.exceptions import RayTaskError

from sweeps.core.errors import SweepsError
from sweeps.core.files.checkpoint_files import checkpoint_names, delete_checkpoint, root_in
from sweeps.core.files.sweep_folder import FILES
from sweeps.core.trial import State, Trial
from sweeps.execution.background import Background
from sweeps.execution.gangs.data_requests import DataRequests, is_data_loss
from sweeps.execution.gangs.pool_worker import CannotStart, Gang, WorkerLost
from sweeps.execution.gangs.worker_pool import WorkerPool
from sweeps.execution.messages import Ended, Job, Labels, Stage
from sweeps.execution.trials import retry
from sweeps.execution.trials.attempt import Attempt
from sweeps.execution.trials.elastic import ElasticGangs
from sweeps.execution.trials.running_trial import RunningTrial
from sweeps.execution.worker.trial_logs import append_line, log_of

if TYPE_CHECKING:
    from sweeps.data.prepared_data import PreparedData

log = logging.getLogger(__name__)

# After the end of a rank, the answer to the sweep's driver is delayed by this time, in seconds. The
# trial often ends during this delay.
ENDS_WITHIN = 0.05


class TrialDriver:
    """Runs trials on the workers of the pool.

    Args:
        max_failures: Largest number of failed attempts with which a trial is still retried
            (`limits.max_failures`).
        workers: The worker pool.
        data_requests: Futures of the prepared data of trials.
        spawn: Runs a coroutine in the background.
        kills_for_memory: Function that returns how many processes were killed for lack of memory on
            this machine up to now.

    Attributes:
        labels: Description of the label column. All its attributes are None until the data is read.
        elastic: Changes the number of workers of elastic trials.
        unneeded: Checkpoints in the sweep's store that are no longer needed, the oldest first.
    """

    def __init__(
        self,
        max_failures: int,
        workers: WorkerPool,
        data_requests: DataRequests,
        spawn: Background,
        kills_for_memory: Callable[[], int],
    ):
        self.max_failures = max_failures
        self.workers = workers
        self.data_requests = data_requests
        self.spawn = spawn
        self.kills_for_memory = kills_for_memory
        self.labels = Labels()
        self.unneeded: dict[str, None] = {}
        self._deletions: dict[
            asyncio.Future[bool], str
        ] = {}  # Path of the checkpoint that each background thread deletes now.
        self.elastic = ElasticGangs(workers)

    @property
    def job(self) -> Job:
        """Settings that all trials share."""
        return self.workers.job

    async def drive(self, running: RunningTrial) -> None:
        """Run a trial until it ends, with as many attempts as necessary.

        If an exception is raised, the trial ends in the state FAIL with the exception's text, and
        this method does not raise it.
        """
        try:
            while running.ended is None and not running.stopped:
                running.stage = Stage.PREPARING
                self.elastic.without_workers.add(running.trial.id)
                fit = self.data_requests.request(running.trial.data, running.trial.preprocessor)
                if (
                    not fit.done()
                ):  # The fit needs a CPU, and the workers of an elastic trial may hold all of them.
                    workers, running.kept = running.kept, []
                    self.workers.give_back(workers)
                prepared = await asyncio.shield(fit)
                outcome = await self._attempt(running, prepared)
                yields, running.yields = running.yields, False
                if isinstance(outcome, Ended) and yields and outcome.state is State.PRUNED:
                    continue
                following = retry.after_attempt(
                    outcome, running.state.failures, self.max_failures, self.job.retry_on
                )
                if isinstance(following, retry.Again):
                    self._note_retry(running, following.reason)
                    raised = isinstance(outcome, Ended)
                    running.retry(following.reason, following.counts, after_exception=raised)
                else:
                    running.finish(following)
            # The trial was stopped, but its workers died first.
            running.finish(Ended(0, State.PRUNED))
        except (RayTaskError, SweepsError) as e:
            running.finish(retry.failed(str(getattr(e, "cause", None) or e)))
        except Exception:
            running.finish(retry.failed(traceback.format_exc()))
        finally:
            self.workers.give_back(running.kept)
            self.elastic.without_workers.discard(running.trial.id)
            with contextlib.suppress(OSError):  # The folder has files in it, or does not exist.
                Path(running.folder, FILES).rmdir()

    def follow_up(self, running: RunningTrial, ended: bool = False) -> None:
        """Let the driver hear of a message of a rank, and delete checkpoints that it replaces.

        Args:
            running: The trial.
            ended: Whether the loop has ended on the rank.
        """
        self.delete_unneeded(running)
        if ended:
            # The trial often ends right after this rank. After a short delay, one message to the
            # driver is enough.
            asyncio.get_running_loop().call_later(ENDS_WITHIN, running.changed.set)
        else:
            running.changed.set()

    def delete_unneeded(self, running: RunningTrial) -> None:
        """Delete those checkpoints of a trial that are no longer needed.

        A background thread deletes the files.

        In a store, the checkpoints are only noted in `unneeded`. The driver has them deleted when
        it has saved the study in the store.
        """
        root = root_in(self.job.store, running.folder)
        for name in running.parts.drop(running.state):
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

        The reason: the attempt may write the same names.

        Deletions that have begun already must end, too. Otherwise, a slow one would delete what the
        attempt writes.
        """
        root = root_in(self.job.store, running.folder)
        found = await asyncio.to_thread(checkpoint_names, root)
        for name in running.parts.to_delete(running.state, found):
            path = f"{root}/{name}"
            self.unneeded.pop(path, None)
            self._delete(path)
        deletions = [
            deletion for deletion, path in self._deletions.items() if path.startswith(f"{root}/")
        ]
        # Unlike `gather`, this does not cancel the deletions if the trial is cancelled.
        if deletions:
            await asyncio.wait(deletions)

    # ---- attempts

    def _note_retry(self, running: RunningTrial, reason: str) -> None:
        """Write why an attempt has ended into two logs, if another attempt follows.

        They are the log of the sweep and the log of rank 0.
        """
        if running.ended is not None or running.stopped:
            return
        text = f"attempt {running.state.attempt} ended: {reason}; the trial is tried again"
        log.warning("trial %s: %s", running.trial.id, text)
        self.spawn(asyncio.to_thread(append_line, log_of(running.folder, 0), text))

    async def _attempt(self, running: RunningTrial, prepared: PreparedData) -> Ended | WorkerLost:
        """Reserve workers, run one attempt on them, and release them.

        Return the result of the attempt.
        """
        running.stage = Stage.WAITING
        started_before = running.state.failures.any
        try:
            workers, running.kept = running.kept, []
            workers = workers or await self.workers.reserve(
                running.trial.shape, prepared.key, started_before
            )
            running.stage = Stage.STARTING
            gang = await self.workers.form(workers, running.trial.shape)
        except WorkerLost as e:
            return WorkerLost(str(e), blameless=True)  # The attempt has not started.
        except CannotStart as e:
            return Ended(0, State.FAIL, f"the trial's workers could not start: {e}")
        running.workers, running.stage = gang.workers, Stage.TRAINING
        self.elastic.without_workers.discard(running.trial.id)
        try:
            outcome = await Attempt(self, gang, running, prepared).run()
        except BaseException:
            for worker in gang.workers:
                self.workers.processes.lose(worker, WorkerLost("killed"))
            running.end_attempt()
            raise
        running.end_attempt()
        if not self.elastic.keep_workers(gang, running, outcome):
            self.workers.give_back(gang.workers)
        if isinstance(outcome, Ended) and is_data_loss(outcome.error):
            return self._lose_data(gang, running.trial, prepared.key)
        return outcome

    def _lose_data(self, gang: Gang, trial: Trial, key: str) -> WorkerLost:
        """Make the next attempt request its data again.

        The reason: the process that had prepared the data has died.

        Return the loss of the data as the result of the attempt.
        """
        self.data_requests.forget(trial.data, trial.preprocessor)
        for worker in gang.workers:
            worker.cached = tuple(
                entry for entry in worker.cached if not entry[0].startswith(f"{key}|")
            )
        return WorkerLost("the process that had prepared the data has died", blameless=True)
