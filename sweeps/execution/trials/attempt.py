"""One attempt at a trial: run the loop on all ranks of a gang, and find out how it ended."""

import asyncio
import logging
from dataclasses import replace

from ray.exceptions import RayError, RayTaskError

from sweeps.core import clock
from sweeps.core.host import exit_causes
from sweeps.core.trial import State
from sweeps.data.prepared_data import PreparedData
from sweeps.execution.gangs.data_affinity import cache_capacity, data_to_keep
from sweeps.execution.gangs.data_requests import is_data_loss
from sweeps.execution.gangs.pool_worker import Gang, PoolWorker, WorkerLost, describe
from sweeps.execution.messages import Assignment, AttemptId, Data, Ended
from sweeps.execution.worker import gang_ranks
from sweeps.execution.worker.trial_logs import hide_secrets, log_of

from .running_trial import STACKS_WITHIN, RunningTrial
from .trial_services import TrialServices

log = logging.getLogger(__name__)

# After a rank has died or raised an exception, the other ranks that do not end within this time, in
# seconds, are killed.
PEERS_END_WITHIN = 10.0
# If a rank has returned, and the other ranks send nothing for this time, in seconds, the rank
# leaves the gang.
RETURNED_LEAVE_AFTER = 30.0
# Interval between two checks of `limits.report_timeout`, in seconds.
CHECK_INTERVAL = 0.5


class Attempt:
    """One attempt at a trial.

    Args:
        services: The services that all trials share.
        gang: The gang that runs the attempt.
        running: The trial.
        prepared: The prepared data.
    """

    def __init__(
        self, services: TrialServices, gang: Gang, running: RunningTrial, prepared: PreparedData
    ):
        self._services = services
        self._job = services.job
        self._gang = gang
        self._running = running
        self._prepared = prepared
        self._size = len(gang.workers)
        self._number = running.begin_attempt([worker.place for worker in gang.workers])
        # Number of processes that had been killed for lack of memory when the attempt started.
        self._kills = services.kills_for_memory()
        self._ranks: list[asyncio.Task[Ended | WorkerLost]] = []

    async def run(self) -> Ended | WorkerLost:
        """Run the attempt, and return its result."""
        running = self._running
        services = self._services
        running.may_change_size = services.elastic.may_change_size(running, self._size)
        if self._number > 1:
            await services.delete_incomplete(running)
        assignments = self._assignments()
        running.began = clock.monotonic()
        self._ranks = [
            services.spawn(self._run_rank(worker, assignment))
            for worker, assignment in zip(self._gang.workers, assignments, strict=True)
        ]
        time_limit_error = await self._await_ranks()
        if time_limit_error is None:
            if any(isinstance(result, WorkerLost) for result in self._results):
                # Otherwise a peer would wait for rows until the lost rank reads its own.
                self._close_stream()
            await self._end_peers()
        for worker, result in zip(self._gang.workers, self._results, strict=True):
            if result is None:  # The rank hangs, or waits for a peer that has raised an exception.
                services.workers.processes.lose(worker, WorkerLost("killed"))
        self._close_stream()
        outcome = self._outcome(time_limit_error)
        await self._hide_secrets()
        return outcome

    @property
    def _results(self) -> list[Ended | WorkerLost | None]:
        """Result of each rank, in the order of ranks; None for a rank that has not ended."""
        return [rank.result() if rank.done() else None for rank in self._ranks]

    async def _hide_secrets(self) -> None:
        """Hide secrets in the logs of ranks whose workers were lost.

        A rank that has ended has done this for its own log.
        """
        for rank, result in enumerate(self._results):
            if not isinstance(result, Ended):
                await asyncio.to_thread(hide_secrets, log_of(self._running.folder, rank))

    def _close_stream(self) -> None:
        """End the split coordinator of the attempt, if there is one that has not ended."""
        if self._prepared.stream and self._size > 1:
            attempt = AttemptId(self._running.trial.id, self._number)
            self._gang.workers[0].send("close_stream", attempt)

    async def _end_peers(self) -> None:
        """After a rank has died or raised an exception, wait until all ranks have ended.

        The wait takes up to `PEERS_END_WITHIN` seconds. Each rank that has ended is made to leave
        the gang. If a peer waits for this rank in a collective operation, such as an all-reduce,
        the operation then raises an exception in the peer.
        """
        deadline = clock.monotonic() + PEERS_END_WITHIN
        asked_to_leave: set[int] = set()
        self._running.answers.close()
        while pending := [rank for rank in self._ranks if not rank.done()]:
            seconds = deadline - clock.monotonic()
            if seconds <= 0:
                return
            for rank, result in enumerate(self._results):
                if isinstance(result, Ended) and rank not in asked_to_leave:
                    asked_to_leave.add(rank)
                    self._ask_to_leave(self._gang.workers[rank])
            await asyncio.wait(pending, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)

    def _ask_to_leave(self, worker: PoolWorker) -> None:
        self._services.spawn(self._services.workers.gangs.ask_to_leave(worker))

    def _assignments(self) -> list[Assignment]:
        """Return the assignment of each rank.

        Cached data is used only if all ranks cache it, because all ranks must build an object such
        as XGBoost's matrix at the same time.
        """
        running = self._running
        prepared = self._prepared
        workers = self._gang.workers
        # `data_affinity.data_key_of` reads the first part of these keys.
        keys = [f"{prepared.key}|{self._size}|{rank}" for rank in range(self._size)]
        is_cached = all(
            key in dict(worker.cached) for worker, key in zip(workers, keys, strict=True)
        )
        # The ranks of an elastic trial take their parts from a single dataset with all rows.
        cut_by_ranks = running.state.is_elastic and self._size > 1
        shards = 1 if cut_by_ranks else self._size
        data = None if is_cached else data_of(prepared, shards, cut_by_ranks)
        total = self._services.workers.nodes.total
        capacity = cache_capacity(total, running.trial.shape.of_size(self._size))
        assignments = []
        for worker, key, ranks in zip(workers, keys, self._gang.ranks, strict=True):
            worker.cached = data_to_keep(worker.cached, key, prepared.size, capacity)
            assignments.append(
                Assignment(
                    trial=running.trial,
                    attempt=self._number,
                    ranks=ranks,
                    folder=running.folder,
                    data_key=key,
                    cached=tuple(name for name, _ in worker.cached),
                    labels=self._services.labels,
                    data=data,
                    checkpoint=running.state.checkpoint,
                    seconds=running.seconds,
                    may_change_size=running.may_change_size,
                    row_steps=running.row_steps,
                    job=self._job,
                )
            )
        return assignments

    async def _run_rank(self, worker: PoolWorker, assignment: Assignment) -> Ended | WorkerLost:
        """Run an attempt on one rank.

        Return the result of the loop, or a `WorkerLost` if the worker's process has died.
        """
        processes = self._services.workers.processes
        try:
            ended: Ended = await processes.until_lost(
                worker, worker.actor.call.remote("run", assignment)
            )
        except WorkerLost as e:
            return e
        except RayTaskError as e:  # An error in sweeps itself, or data that could not be read.
            why = describe(e)
            if is_data_loss(why):
                return Ended(assignment.ranks.rank, State.FAIL, why)
            error = str(e.cause) if e.cause is not None else why
            return Ended(assignment.ranks.rank, State.FAIL, error, broken=why)
        except RayError as e:
            lost = await processes.reason_of(worker, e)
            processes.lose(worker, lost)
            return lost
        running = self._running
        services = self._services
        if ended.update is not None and running.record(self._number, ended.update, ended):
            services.follow_up(running, ended=True)
            running.update_rungs(together=bool(self._job.milestones))
            services.elastic.answer_ranks(running)
        return ended

    def _outcome(self, time_limit_error: str | None) -> Ended | WorkerLost:
        """Compute the result of the attempt from the results of its ranks.

        If a worker was lost, the result is this loss, even if other ranks raised exceptions. The
        loss may be the cause of these exceptions: a collective operation, such as an all-reduce,
        raises an exception when a peer dies.

        Args:
            time_limit_error: Message about an exceeded time limit; None if no limit was exceeded.
        """
        results = self._results
        self._mark_broken(results)
        if time_limit_error is not None:
            return Ended(0, State.FAIL, time_limit_error)
        losses = {rank: e for rank, e in enumerate(results) if isinstance(e, WorkerLost)}
        if losses:
            return self._main_loss(losses)
        ended = [result for result in results if isinstance(result, Ended)]
        failed = [e for e in ended if e.state is State.FAIL]
        if failed:
            main = self._main_failure(failed)
            return (
                main if self._size == 1 else replace(main, error=f"rank {main.rank}: {main.error}")
            )
        if len({e.reports for e in ended}) > 1:
            rule = "all ranks must report the same number of times"
            counts = ", ".join(f"rank {e.rank}: {e.reports}" for e in ended)
            return Ended(0, State.FAIL, f"{rule}, but the numbers of reports are {counts}")
        return ended[0]

    def _mark_broken(self, results: list[Ended | WorkerLost | None]) -> None:
        """Close workers that cannot run another trial, and mark a gang that must be disbanded."""
        for worker, result in zip(self._gang.workers, results, strict=True):
            if isinstance(result, Ended) and result.broken:
                why = "%s is closed, because it cannot run another trial: %s"
                log.info(why, worker.id, result.broken)
                self._services.workers.close(worker)
            if not isinstance(result, Ended) or result.state is State.FAIL or result.disconnected:
                self._gang.broken = True

    def _main_failure(self, failed: list[Ended]) -> Ended:
        """Return the failure that ended an attempt: lost data, else a failure to retry, else any.

        Among several ones, return the first, because peers may raise because of the first error.
        """
        times = self._running.last_update
        return min(
            failed, key=lambda e: (not is_data_loss(e.error), not e.retry, times.get(e.rank, 0.0))
        )

    def _main_loss(self, losses: dict[int, WorkerLost]) -> WorkerLost:
        """Return the loss that ended an attempt.

        A loss that counts towards `limits.max_failures` has precedence over a blameless one.
        """
        rank, loss = min(losses.items(), key=lambda pair: pair[1].blameless)
        if loss.blameless:
            return loss
        logged = exit_causes.last_attempt_log(log_of(self._running.folder, rank))
        lacked_memory = self._services.kills_for_memory() > self._kills
        cause = exit_causes.exit_cause(None, logged, lacked_memory)
        return WorkerLost(f"rank {rank}: {cause}" if cause else str(loss))

    async def _await_ranks(self) -> str | None:
        """Wait until all ranks have ended or one rank has failed.

        Returns:
            A message about the time limit if `limits.trial_timeout` or `limits.report_timeout` is
            exceeded first; else None.
        """
        pending = set(self._ranks)
        while pending:
            done, pending = await asyncio.wait(
                pending, timeout=CHECK_INTERVAL, return_when=asyncio.FIRST_COMPLETED
            )
            results = [rank.result() for rank in done]
            if any(isinstance(result, WorkerLost) or result.error for result in results):
                return None
            if pending and (error := await self._find_exceeded_limit()) is not None:
                return error
            self._release_returned_ranks()
        return None

    async def _find_exceeded_limit(self) -> str | None:
        """Return a message about a time limit that a trial has exceeded; None if there is none."""
        running = self._running
        trial_timeout = self._job.trial_timeout
        report_timeout = self._job.report_timeout
        # The ranks themselves write their stacks after `trial_timeout`.
        if trial_timeout is not None and running.seconds_spent() > trial_timeout + STACKS_WITHIN:
            return (
                f"the trial took longer than `limits.trial_timeout` ({trial_timeout:g} s); the log "
                "of each rank has the stack of every thread"
            )
        if report_timeout is not None and running.find_overdue(report_timeout):
            # Other ranks may wait for the late rank, and exceed the limit too.
            await asyncio.sleep(STACKS_WITHIN)
            if late := running.find_overdue(report_timeout):
                rule = f"a rank must report within `limits.report_timeout` ({report_timeout:g} s)"
                return "\n".join([*map(str, late), rule])
        return None

    def _release_returned_ranks(self) -> None:
        """Make ranks that have returned leave the gang if the others have been silent for long.

        If a peer waits for such a rank in a collective operation, the operation then raises an
        exception in the peer. With some backends, a peer that still works would also fail.
        """
        if self._gang.broken or self._gang.backend not in gang_ranks.LEFT_SAFELY:
            return
        now = clock.monotonic()
        if now - max(self._running.last_update.values(), default=now) < RETURNED_LEAVE_AFTER:
            return
        for worker, result in zip(self._gang.workers, self._results, strict=True):
            if result is not None:
                self._gang.broken = True
                self._ask_to_leave(worker)


def data_of(prepared: PreparedData, shards: int, cut_by_ranks: bool) -> Data:
    """Return the data that a gang reads.

    Args:
        prepared: The prepared data.
        shards: Number of shards into which `train` is cut.
        cut_by_ranks: See `Data.cut_by_ranks`.
    """
    return Data(
        shards=prepared.shards[shards],
        check=prepared.check,
        cut_by_ranks=cut_by_ranks and not prepared.stream,
        folds=tuple(data_of(fold, shards, cut_by_ranks) for fold in prepared.folds),
        weight=prepared.weight,
        stream=prepared.stream,
        parts={step: data_of(part, shards, cut_by_ranks) for step, part in prepared.parts.items()},
        rows=prepared.rows,
    )
