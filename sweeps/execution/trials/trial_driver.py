"""Run trials on workers: wait for prepared data, reserve a gang, and try again after failures."""

import asyncio
import contextlib
import logging
import traceback
from pathlib import Path

from ray.exceptions import RayTaskError

from sweeps.core.errors import SweepsError
from sweeps.core.files.sweep_folder import FILES
from sweeps.core.trial import State, Trial
from sweeps.data.prepared_data import PreparedData
from sweeps.execution.gangs.data_affinity import data_key_of
from sweeps.execution.gangs.data_requests import DataRequests, is_data_loss
from sweeps.execution.gangs.pool_worker import CannotStart, Gang, WorkerLost
from sweeps.execution.messages import Ended
from sweeps.execution.pool_usage import Stage
from sweeps.execution.worker.trial_logs import append_line, log_of

from . import retry
from .attempt import Attempt
from .running_trial import RunningTrial
from .trial_services import TrialServices

log = logging.getLogger(__name__)


class TrialDriver:
    """Runs trials on the workers of the pool.

    Args:
        max_failures: Largest number of failed attempts with which a trial is still retried
            (`limits.max_failures`).
        data_requests: Futures of the prepared data of trials.
        services: The services that all trials share.
    """

    def __init__(self, max_failures: int, data_requests: DataRequests, services: TrialServices):
        self.max_failures = max_failures
        self.data_requests = data_requests
        self.services = services
        self.workers = services.workers
        self.elastic = services.elastic

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
                # The fit needs a CPU, and the workers of an elastic trial may hold all of them.
                if not fit.done():
                    self.workers.give_back(running.next_workers)
                    running.next_workers = []
                prepared = await asyncio.shield(fit)
                if (reason := prepared.unread.get(running.trial.trainer)) is not None:
                    running.finish(retry.failure(reason))
                    break
                outcome = await self._attempt(running, prepared)
                has_yielded = running.yields
                running.yields = False
                is_stopped = isinstance(outcome, Ended) and outcome.state is State.PRUNED
                if has_yielded and is_stopped:
                    continue  # with another attempt
                decision = retry.decide_after_attempt(
                    outcome, running.state.failures, self.max_failures, self.services.job.retry_on
                )
                if isinstance(decision, retry.Retry):
                    self._log_retry(running, decision.reason)
                    has_raised = isinstance(outcome, Ended)
                    running.retry(decision.reason, decision.counts, after_exception=has_raised)
                else:
                    running.finish(decision)
            # The trial was stopped, but its workers died first.
            running.finish(Ended(0, State.PRUNED))
        except (RayTaskError, SweepsError) as e:
            running.finish(retry.failure(str(getattr(e, "cause", None) or e)))
        except Exception:
            running.finish(retry.failure(traceback.format_exc()))
        finally:
            self.workers.give_back(running.next_workers)
            self.elastic.without_workers.discard(running.trial.id)
            with contextlib.suppress(OSError):  # The folder has files in it, or does not exist.
                Path(running.folder, FILES).rmdir()

    def _log_retry(self, running: RunningTrial, reason: str) -> None:
        """Write why an attempt has ended into the log of the sweep and into that of rank 0.

        Do nothing if no other attempt follows.
        """
        if running.ended is not None or running.stopped:
            return
        text = f"attempt {running.state.attempt} ended: {reason}; the trial is tried again"
        log.warning("trial %s: %s", running.trial.id, text)
        self.services.spawn(asyncio.to_thread(append_line, log_of(running.folder, 0), text))

    async def _attempt(self, running: RunningTrial, prepared: PreparedData) -> Ended | WorkerLost:
        """Reserve workers, run one attempt on them, and release them.

        Return the result of the attempt.
        """
        running.stage = Stage.WAITING
        is_retry = running.state.failures.any
        try:
            workers = running.next_workers
            running.next_workers = []
            if not workers:
                workers = await self.workers.reserve(running.trial.shape, prepared.key, is_retry)
            running.stage = Stage.STARTING
            gang = await self.workers.form(workers, running.trial.shape)
        except WorkerLost as e:
            return WorkerLost(str(e), blameless=True)  # The attempt has not started.
        except CannotStart as e:
            return Ended(0, State.FAIL, f"the trial's workers could not start: {e}")
        running.workers = gang.workers
        running.stage = Stage.TRAINING
        self.elastic.without_workers.discard(running.trial.id)
        try:
            outcome = await Attempt(self.services, gang, running, prepared).run()
        except BaseException:
            for worker in gang.workers:
                self.workers.processes.lose(worker, WorkerLost("killed"))
            running.end_attempt()
            raise
        running.end_attempt()
        if not self.elastic.keep_workers(gang, running, outcome):
            trainer = self.services.job.trainer_of(running.trial)
            self.workers.give_back(gang.workers, closes=trainer.reuse == "never")
        if isinstance(outcome, Ended) and is_data_loss(outcome.error):
            return self._lose_data(gang, running.trial, prepared.key)
        return outcome

    def _lose_data(self, gang: Gang, trial: Trial, key: str) -> WorkerLost:
        """Make the next attempt request its data again. The process that prepared it has died.

        Return the loss of the data as the result of the attempt.
        """
        self.data_requests.forget(trial.data, trial.preprocessor)
        for worker in gang.workers:
            worker.cached = tuple(
                (cache_key, size)
                for cache_key, size in worker.cached
                if data_key_of(cache_key) != key
            )
        return WorkerLost("the process that had prepared the data has died", blameless=True)
