"""Run trials on workers: wait for prepared data, reserve a gang, and try again after failures."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import traceback
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ray.exceptions import RayError, RayTaskError

from sweeps.core import clock, exit_causes
from sweeps.core.checkpoint_files import checkpoint_names, delete_checkpoint, root_in
from sweeps.core.errors import SweepsError
from sweeps.core.sweep_folder import FILES
from sweeps.core.trial import State
from sweeps.execution import gangs, retry
from sweeps.execution.background import Background
from sweeps.execution.data_affinity import keep, room_of
from sweeps.execution.data_requests import DataRequests, is_data_loss
from sweeps.execution.elastic import ElasticGangs
from sweeps.execution.messages import (
    Assignment,
    Data,
    Ended,
    Job,
    Labels,
    Stage,
    attempt_name,
)
from sweeps.execution.pool_worker import CannotStart, Gang, Worker, WorkerLost, describe
from sweeps.execution.running_trial import STACKS_WITHIN, RunningTrial
from sweeps.execution.trial_logs import append_line, hide_secrets, log_of
from sweeps.execution.worker_pool import WorkerPool

if TYPE_CHECKING:
    from sweeps.data.prepared_data import PreparedData

log = logging.getLogger(__name__)

# After a rank has died or raised an exception, the other ranks that do not end within this time, in
# seconds, are killed.
PEERS_END_WITHIN = 10.0
# If a rank has returned, and the other ranks send nothing for this time, in seconds, the rank
# leaves the gang.
RETURNED_LEAVE_AFTER = 30.0
# After the end of a rank, the answer to the sweep's driver is delayed by this time, in seconds. The
# trial often ends during this delay.
ENDS_WITHIN = 0.05
# Interval between two checks of `limits.report_timeout`, in seconds.
LOOK_EVERY = 0.5


class TrialDriver:
    """Runs trials on the workers of the pool.

    Args:
        job: Settings that all trials share.
        max_failures: Largest number of failed attempts with which a trial is still retried
            (`limits.max_failures`).
        workers: The worker pool.
        data_requests: Futures of the prepared data of trials.
        spawn: Runs a coroutine in the background.
        files: Threads that list and delete checkpoints.
        kills_for_memory: Function that returns how many processes were killed for lack of memory on
            this machine up to now.

    Attributes:
        labels: Description of the label column. All its attributes are None until the data is read.
        elastic: Changes the number of workers of elastic trials.
        unneeded: Checkpoints in the sweep's store that are no longer needed, the oldest first.
    """

    def __init__(
        self,
        job: Job,
        max_failures: int,
        workers: WorkerPool,
        data_requests: DataRequests,
        spawn: Background,
        files: ThreadPoolExecutor,
        kills_for_memory: Callable[[], int],
    ):
        self.job = job
        self.max_failures = max_failures
        self.workers = workers
        self.data_requests = data_requests
        self.spawn = spawn
        self.files = files
        self._kills_for_memory = kills_for_memory
        self.labels = Labels()
        self.unneeded: dict[str, None] = {}
        self._deletions: dict[
            asyncio.Future[bool], str
        ] = {}  # Path of the checkpoint that each background thread deletes now.
        self.elastic = ElasticGangs(workers)

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
        except asyncio.CancelledError:
            raise
        except RayTaskError as e:
            running.finish(retry.failed(str(e.cause) if e.cause is not None else str(e)))
        except SweepsError as e:
            running.finish(retry.failed(str(e)))
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
        deletion = asyncio.get_running_loop().run_in_executor(self.files, delete_checkpoint, path)
        self._deletions[deletion] = path
        deletion.add_done_callback(self._deletions.pop)

    async def _delete_incomplete(self, running: RunningTrial) -> None:
        """Before another attempt, delete the checkpoints that the trial does not need.

        The reason: the attempt may write the same names.

        Deletions that have begun already must end, too. Otherwise, a slow one would delete what the
        attempt writes.
        """
        root = root_in(self.job.store, running.folder)
        found = await asyncio.get_running_loop().run_in_executor(self.files, checkpoint_names, root)
        for name in running.parts.to_delete(running.state, found):
            path = f"{root}/{name}"
            self.unneeded.pop(path, None)
            self._delete(path)
        if deletions := [
            deletion for deletion, path in self._deletions.items() if path.startswith(f"{root}/")
        ]:
            await asyncio.wait(
                deletions
            )  # Unlike `gather`, this does not cancel the deletions if the trial is cancelled.

    # ---- attempts

    def _note_retry(self, running: RunningTrial, reason: str) -> None:
        """Write why an attempt has ended into two logs, if another attempt follows.

        They are the log of the sweep and the log of rank 0.
        """
        if running.ended is not None or running.stopped:
            return
        text = f"attempt {running.state.attempt} ended: {reason}; the trial is tried again"
        log.warning("trial %s: %s", running.trial.id, text)
        self.files.submit(append_line, log_of(running.folder, 0), text)

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
            outcome = await self._run_on(gang, running, prepared)
        except BaseException:
            for worker in gang.workers:
                self.workers.lose(worker, WorkerLost("killed"))
            running.end_attempt()
            self.workers.release(gang)
            raise
        running.end_attempt()
        if not self.elastic.keep_workers(gang, running, outcome):
            self.workers.release(gang)
        if isinstance(outcome, Ended) and is_data_loss(outcome.error):
            return self._lose_data(gang, prepared)
        return outcome

    def _lose_data(self, gang: Gang, prepared: PreparedData) -> WorkerLost:
        """Make the next attempt request its data again.

        The reason: the process that had prepared the data has died.

        Return the loss of the data as the result of the attempt.
        """
        self.data_requests.forget(prepared)
        for worker in gang.workers:
            worker.cached = tuple(
                entry for entry in worker.cached if not entry[0].startswith(f"{prepared.key}|")
            )
        return WorkerLost("the process that had prepared the data has died", blameless=True)

    async def _run_on(
        self, gang: Gang, running: RunningTrial, prepared: PreparedData
    ) -> Ended | WorkerLost:
        size = len(gang.workers)
        attempt = running.begin_attempt([worker.place for worker in gang.workers])
        kills = self._kills_for_memory()
        running.asks = self.elastic.may_change(running, size)
        if attempt > 1:
            await self._delete_incomplete(running)
        assignments = self._assignments(gang, running, attempt, prepared)
        running.began = clock.monotonic()
        ranks = [
            self.spawn(self._run_rank(*pair, running))
            for pair in zip(gang.workers, assignments, strict=True)
        ]
        late = await self._await_ranks(gang, running, ranks)
        shares_stream = prepared.stream and size > 1
        if late is None:
            if shares_stream and any(isinstance(_result(rank), WorkerLost) for rank in ranks):
                self._close_stream(
                    gang, running, attempt
                )  # Otherwise a peer would wait for rows until the lost rank reads its own.
            await self._end_peers(gang, running, ranks)
        for worker, rank in zip(gang.workers, ranks, strict=True):
            if not rank.done():  # The rank hangs, or waits for a peer that has raised an exception.
                self.workers.lose(worker, WorkerLost("killed"))
        if shares_stream:
            self._close_stream(gang, running, attempt)
        outcome = self._outcome(gang, running, [_result(rank) for rank in ranks], late, kills)
        await self._hide_secrets(running, ranks)
        return outcome

    async def _hide_secrets(
        self, running: RunningTrial, ranks: Sequence[asyncio.Task[Ended | WorkerLost]]
    ) -> None:
        """Hide secrets in the logs of ranks whose workers were lost.

        A rank that has ended has done this for its own log.
        """
        for number, rank in enumerate(ranks):
            if not isinstance(_result(rank), Ended):
                log_file = log_of(running.folder, number)
                await asyncio.get_running_loop().run_in_executor(self.files, hide_secrets, log_file)

    def _close_stream(self, gang: Gang, running: RunningTrial, attempt: int) -> None:
        """End the split coordinator of an attempt. Do nothing if it has ended already."""
        gang.workers[0].send("close_stream", attempt_name(running.trial.id, attempt))

    async def _end_peers(
        self, gang: Gang, running: RunningTrial, ranks: Sequence[asyncio.Task[Ended | WorkerLost]]
    ) -> None:
        """After a rank has died or raised an exception, wait until all ranks have ended.

        The wait takes up to `PEERS_END_WITHIN` seconds. Each rank that has ended is made to leave
        the gang. If a peer waits for this rank in a collective operation, such as an all-reduce,
        the operation then raises an exception in the peer.
        """
        give_up = clock.monotonic() + PEERS_END_WITHIN
        left: set[int] = set()
        running.close_answers()
        while (
            pending := [rank for rank in ranks if not rank.done()]
        ) and clock.monotonic() < give_up:
            for number, rank in enumerate(ranks):
                if isinstance(_result(rank), Ended) and number not in left:
                    left.add(number)
                    self.spawn(self.workers.ask_to_leave(gang.workers[number]))
            await asyncio.wait(
                pending, timeout=give_up - clock.monotonic(), return_when=asyncio.FIRST_COMPLETED
            )

    def _assignments(
        self, gang: Gang, running: RunningTrial, attempt: int, prepared: PreparedData
    ) -> list[Assignment]:
        """Return the assignment of each rank.

        Cached data is used only if all ranks cache it, because all ranks must build an object such
        as XGBoost's matrix at the same time.
        """
        size = len(gang.workers)
        keys = [f"{prepared.key}|{size}|{rank}" for rank in range(size)]
        cached = all(
            key in dict(worker.cached) for worker, key in zip(gang.workers, keys, strict=True)
        )
        whole = running.state.is_elastic and size > 1
        data = None if cached else data_of(prepared, 1 if whole else size, whole)
        room = room_of(self.workers.total, running.trial.shape.of_size(size))
        assignments = []
        for worker, key, ranks in zip(gang.workers, keys, gang.ranks, strict=True):
            worker.cached = keep(worker.cached, key, prepared.size, room)
            kept = tuple(name for name, _ in worker.cached)
            checkpoint, spent = running.state.checkpoint, running.seconds
            assignments.append(
                Assignment(
                    trial=running.trial,
                    attempt=attempt,
                    ranks=ranks,
                    folder=running.folder,
                    data_key=key,
                    cached=kept,
                    labels=self.labels,
                    data=data,
                    checkpoint=checkpoint,
                    seconds=spent,
                    asks=running.asks,
                    row_steps=running.row_steps,
                    job=self.job,
                )
            )
        return assignments

    async def _run_rank(
        self, worker: Worker, assignment: Assignment, running: RunningTrial
    ) -> Ended | WorkerLost:
        """Run an attempt on one rank.

        Return the result of the loop, or a `WorkerLost` if the worker's process has died.
        """
        try:
            ended: Ended = await self.workers.until_lost(
                worker, worker.actor.run.remote(assignment)
            )
        except WorkerLost as e:
            return e
        except RayTaskError as e:  # An error in sweeps itself, or data that could not be read.
            why = describe(e)
            error = str(e.cause) if e.cause is not None and not is_data_loss(why) else why
            ended = Ended(
                assignment.ranks.rank, State.FAIL, error, broken=None if is_data_loss(why) else why
            )
        except RayError as e:
            lost = await self.workers.reason_of(worker, e)
            self.workers.lose(worker, lost)
            return lost
        if ended.broken:
            log.info(
                "%s is closed, because it cannot run another trial: %s", worker.id, ended.broken
            )
        if ended.update is not None and running.record(assignment.attempt, ended.update, ended):
            self.follow_up(running, ended=True)
            running.update_rungs(together=bool(self.job.milestones))
            self.elastic.answer_ranks(running)
        return ended

    def _outcome(
        self,
        gang: Gang,
        running: RunningTrial,
        results: Sequence[Ended | WorkerLost | None],
        late: str | None,
        kills: int,
    ) -> Ended | WorkerLost:
        """Compute the result of an attempt from the results of its ranks.

        If a worker was lost, the result is this loss, even if other ranks raised exceptions. The
        loss may be the cause of these exceptions: a collective operation, such as an all-reduce,
        raises an exception when a peer dies.

        Args:
            gang: The gang.
            running: The trial.
            results: Result of each rank; None for a rank that was killed.
            late: Message about an exceeded time limit; None if no limit was exceeded.
            kills: Number of processes that had been killed for lack of memory when the attempt
                started.
        """
        ended = [result for result in results if isinstance(result, Ended)]
        # Peers may raise because of the first error, so the first error is reported. Lost data and
        # errors worth a retry have precedence.
        failed = [e for e in ended if e.state is State.FAIL]
        failed.sort(
            key=lambda e: (
                not is_data_loss(e.error),
                not e.retry,
                running.last_update.get(e.rank, 0.0),
            )
        )
        self._mark_broken(gang, results)
        if late is not None:
            return Ended(0, State.FAIL, late)
        losses = {rank: e for rank, e in enumerate(results) if isinstance(e, WorkerLost)}
        if losses:
            return self._main_loss(losses, running, kills)
        if failed and len(results) > 1:
            return replace(failed[0], error=f"rank {failed[0].rank}: {failed[0].error}")
        ended.sort(key=lambda e: e.rank)
        if not failed and len({e.reports for e in ended}) > 1:
            rule = "all ranks must report the same number of times"
            counts = ", ".join(f"rank {e.rank}: {e.reports}" for e in ended)
            return Ended(0, State.FAIL, f"{rule}, but the numbers of reports are {counts}")
        return failed[0] if failed else ended[0]

    def _mark_broken(self, gang: Gang, results: Sequence[Ended | WorkerLost | None]) -> None:
        """Close workers that cannot run another trial, and mark a gang that must be disbanded."""
        for worker, result in zip(gang.workers, results, strict=True):
            if isinstance(result, Ended) and result.broken:
                self.workers.close(worker)
            if not isinstance(result, Ended) or result.state is State.FAIL or result.disconnected:
                gang.broken = True

    def _main_loss(
        self, losses: dict[int, WorkerLost], running: RunningTrial, kills: int
    ) -> WorkerLost:
        """Return the loss that ended an attempt. One that counts towards the limit comes first."""
        rank, loss = min(losses.items(), key=lambda pair: pair[1].blameless)
        if loss.blameless:
            return loss
        logged = exit_causes.last_attempt_log(log_of(running.folder, rank))
        cause = exit_causes.exit_cause(None, logged, self._kills_for_memory() > kills)
        return WorkerLost(f"rank {rank}: {cause}" if cause else str(loss))

    async def _await_ranks(
        self, gang: Gang, running: RunningTrial, ranks: Sequence[asyncio.Task[Ended | WorkerLost]]
    ) -> str | None:
        """Wait until all ranks have ended or one rank has failed.

        Returns:
            A message about the time limit if `limits.trial_timeout` or `limits.report_timeout` is
            exceeded first; else None.
        """
        pending = set(ranks)
        while pending:
            done, pending = await asyncio.wait(
                pending, timeout=LOOK_EVERY, return_when=asyncio.FIRST_COMPLETED
            )
            results = [rank.result() for rank in done]
            if any(isinstance(result, WorkerLost) or result.error for result in results):
                return None
            if pending and (late := await self._exceeded_limit(running)) is not None:
                return late
            self._part_from_returned(gang, running, ranks)
        return None

    async def _exceeded_limit(self, running: RunningTrial) -> str | None:
        """Return a message about a time limit that a trial has exceeded; None if there is none."""
        limit = self.job.trial_timeout
        silence = self.job.report_timeout
        if limit is not None and running.spent() > limit + STACKS_WITHIN:
            logs = "the log of each rank has the stack of every thread"
            return f"the trial took longer than `limits.trial_timeout` ({limit:g} s); {logs}"
        if silence is not None and running.overdue(silence):
            # Other ranks may wait for the late rank, and exceed the limit too.
            await asyncio.sleep(STACKS_WITHIN)
            if late := running.overdue(silence):
                rule = f"a rank must report within `limits.report_timeout` ({silence:g} s)"
                return "\n".join([*map(str, late), rule])
        return None

    def _part_from_returned(
        self, gang: Gang, running: RunningTrial, ranks: Sequence[asyncio.Task[Ended | WorkerLost]]
    ) -> None:
        """Make ranks that have returned leave the gang if the others have been silent for long.

        If a peer waits for such a rank in a collective operation, the operation then raises an
        exception in the peer. With some backends, a peer that still works would also fail.
        """
        returned = [w for w, rank in zip(gang.workers, ranks, strict=True) if rank.done()]
        now = clock.monotonic()
        quiet = now - max(running.last_update.values(), default=now)
        if not returned or gang.broken or quiet < RETURNED_LEAVE_AFTER:
            return
        if self.job.backend in gangs.LEFT_SAFELY:
            gang.broken = True
            for worker in returned:
                self.spawn(self.workers.ask_to_leave(worker))


def data_of(prepared: PreparedData, workers: int, whole: bool) -> Data:
    """Return the part of prepared data that a gang reads.

    Args:
        prepared: The prepared data.
        workers: Number of parts into which `train` is cut.
        whole: See `Data.whole`.
    """
    return Data(
        shards=prepared.shards[workers],
        check=prepared.check,
        whole=whole and not prepared.stream,
        folds=tuple(data_of(fold, workers, whole) for fold in prepared.folds),
        weight=prepared.weight,
        stream=prepared.stream,
        parts={step: data_of(part, workers, whole) for step, part in prepared.parts.items()},
        rows=prepared.rows,
    )


def _result(rank: asyncio.Task[Ended | WorkerLost]) -> Ended | WorkerLost | None:
    return rank.result() if rank.done() else None
