"""The pool: an actor that owns all workers and runs each trial on a gang.

The pool passes messages between the driver and the ranks. Ray restarts the pool if its process is
lost. The workers die with the pool, because Ray ends all actors that a dead process has started.
The driver then sends the recorded state of each running trial (`TrialState`), and the trials
continue from their checkpoints.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import ray
from ray.actor import ActorHandle

from sweeps.core import clock
from sweeps.core.host import exit_causes
from sweeps.core.resources import Shape
from sweeps.core.text.secrets import remember_variables
from sweeps.core.trial import State
from sweeps.study.states import TrialState

from .background import Background
from .gangs.cluster_nodes import ClusterNodes
from .gangs.data_requests import DataRequests
from .gangs.memory_guard import MONITOR, MemoryGuard
from .gangs.pool_worker import Call
from .gangs.worker_pool import WorkerPool
from .messages import Ended, Job, Labels, TrialUpdate
from .pool_usage import Stage, TrialUsage, Usage
from .rank_calls import RankCalls
from .trials.running_trial import RunningTrial
from .trials.trial_driver import TrialDriver
from .trials.trial_services import TrialServices

if TYPE_CHECKING:
    from sweeps.data.load_request import LoadRequest
    from sweeps.data.splits.refit_rows import RefitRows
    from sweeps.space import Step

# If a trial has new reports, the driver gets an answer after this time at the latest, in seconds.
PROGRESS_EVERY = 1.0
# `step` waits this long for the driver's `start` of the same trial, in seconds. After a restart
# of the pool, Ray repeats calls before the driver has started the trials again.
START_WITHIN = 60.0
# At the end of a sweep, longest wait for ranks that were told to stop, in seconds. The trainer
# `command` gives a script ten seconds.
STOP_WITHIN = 15.0
# At the end of a sweep, longest wait for workers that close, in seconds.
CLOSE_WITHIN = 10.0


class _Pool(RankCalls):
    """Actor that owns all workers and runs the trials.

    All methods run on one event loop, and no method blocks this loop.

    Args:
        job: Settings that all trials of the sweep share.
        resources: Resources that the sweep may use on the single machine on which it has started
            Ray. None on a running cluster: the sweep then uses the resources of the cluster's
            nodes.
        max_failures: Largest number of failed attempts with which a trial is still retried
            (`limits.max_failures`).
        parked: Number of CPUs that idle workers may hold in addition to the machine's CPUs; see
            `cluster_state.Cluster`.
        limit: Amounts of some resources that the sweep may hold on all nodes together; None for no
            limit.
        reserves: True if workers leave CPUs to Ray Data; see `ClusterNodes`.
    """

    def __init__(
        self,
        job: Job,
        resources: dict[str, float] | None,
        max_failures: int,
        parked: int | None = None,
        limit: dict[str, float] | None = None,
        reserves: bool = False,
    ):
        os.environ.update(job.secrets)
        remember_variables(job.secret_names)
        self.spawn = Background()
        nodes = ClusterNodes(resources, limit or {}, reserves)
        self.workers = WorkerPool(job, nodes, parked, self.spawn)
        self.data_requests = DataRequests(self.workers, self.spawn)
        self.stopping: State | None = None
        self.guard = MemoryGuard()
        threads = ThreadPoolExecutor(max_workers=32, thread_name_prefix="files")
        asyncio.get_running_loop().set_default_executor(threads)
        super().__init__(job, TrialServices(self.workers, self.spawn, self._kills_for_memory))
        self.driver = TrialDriver(max_failures, self.data_requests, self.services)
        self.spawn(self.workers.watch())

    def _kills_for_memory(self) -> int:
        """Return how many processes the kernel and the guard have killed for lack of memory."""
        return exit_causes.kills_for_memory() + self.guard.kills

    async def warm(self, shapes: Sequence[Shape]) -> None:
        """Start as many workers as the pool needs to run one trial of each shape at the same time.

        The driver calls this method while the data is read. The workers start in the order of the
        shapes. If the free resources are not enough for a shape, a part of its workers starts, and
        no worker starts for later shapes.
        """
        self.workers.warm(shapes)

    async def configure(
        self, data_actor: ActorHandle[Any], labels: Labels, reload: LoadRequest | None = None
    ) -> None:
        """Set the data actor and the labels.

        The driver calls this method when the data has been read.

        Args:
            data_actor: Handle of the actor that prepares data.
            labels: Description of the label column.
            reload: Arguments with which a new process of the data actor reads the same data again.
                None if the space names no data.
        """
        self.services.labels = labels
        self.data_requests.configure(data_actor, reload)
        if os.environ.get(MONITOR) == "0":
            self.spawn(self.guard.watch())

    async def unneeded(self) -> tuple[str, ...]:
        """Return the checkpoints in the sweep's store that are no longer needed.

        The driver's study does not name these checkpoints.
        """
        return tuple(self.services.unneeded)

    async def delete_unneeded(self, paths: Sequence[str]) -> None:
        """Delete checkpoints that `unneeded` has returned.

        The driver calls this when the study in the store does not name them either.
        """
        self.services.delete_noted(paths)

    async def life(self) -> None:
        """Wait forever, so that a caller who waits for this method learns when the pool has died.

        The caller then gets an exception of Ray.

        Raises:
            InputError: The process that held the data has died, and the data has changed since the
                sweep began.
        """
        error = await asyncio.shield(self.data_requests.refused)
        raise error

    # ---- methods for the driver

    async def prefit(
        self, fits: Sequence[tuple[dict[str, Any], tuple[Step, ...]]], warm: Sequence[Shape] = ()
    ) -> None:
        """Fit preprocessing chains before the first trial.

        Later, the workers of trials would hold the CPU that a fit needs.

        Args:
            fits: Pairs of a trial's values of the `data` section and its preprocessing steps.
            warm: Shapes whose workers start during the fits. If a fit runs Ray tasks, these tasks
                need the CPUs, so no worker starts.

        Raises:
            InputError: A chain cannot be fitted. If several chains cannot be fitted, the error is
                about the first of them.
        """
        await self.data_requests.fit_before_trials(fits, warm)

    async def set_all_started(self, all_started: bool) -> None:
        """Set whether the driver has started all trials of the sweep.

        If so, elastic trials grow when resources are free.
        """
        self.services.elastic.all_started = all_started

    async def start(self, state: TrialState, folder: str, row_steps: tuple[int, ...] = ()) -> None:
        """Start or continue a trial.

        Args:
            state: The state of the trial. If it has an attempt, the trial continues.
            folder: Folder for the trial's checkpoints and logs.
            row_steps: If the scheduler counts rows, the steps at which the loop runs, each time on
                more train rows. Otherwise ().
        """
        keeps_last = self.job.keep_last or bool(self.job.folds) or bool(row_steps)
        # A trial that was paused may continue while its ranks still stop.
        paused = self.trials.get(state.id)
        running = RunningTrial(
            state, folder, row_steps, keep_latest=self.job.keep_latest, keeps_last=keeps_last
        )
        self.trials[state.id] = running
        if self.stopping is not None:
            running.finish(Ended(0, self.stopping))
        else:
            earlier_task = None if paused is None else paused.task
            running.task = self.spawn(self._drive(running, earlier_task))

    async def _drive(self, running: RunningTrial, earlier_task: asyncio.Task[None] | None) -> None:
        """Run a trial, after the earlier task of this trial has ended."""
        if earlier_task is not None:
            await asyncio.wait([earlier_task])
        await self.driver.drive(running)
        if running.stopped and self.trials.get(running.trial.id) is running:
            del self.trials[running.trial.id]

    async def answer(self, trial_id: str, step: int, continues: bool) -> None:
        """Pass the driver's decision at a rung to the ranks of a trial.

        Do nothing if the trial does not wait at this step.

        If a trial continues at a perturbation step of PBT while other trials wait for workers, its
        ranks stop and the trial waits for workers again.

        Args:
            trial_id: Id of the trial.
            step: Step of the rung.
            continues: True if the trial continues.
        """
        running = self.trials.get(trial_id)
        if running is not None and running.accept_decision(step):
            may_yield = self.job.takes_turns and step in self.job.milestones
            running.yields = continues and may_yield and bool(self.workers.waiting())
            running.decisions[step].set_result(continues and not running.yields)

    async def renew(self, step: int, recorded: TrialState) -> None:
        """Give new parameters to a trial that waits at a perturbation step, and continue it.

        The trial continues in a new attempt.

        Args:
            step: The perturbation step. The call is ignored if the trial does not wait at this
                step.
            recorded: State of the trial, with its new parameters and the checkpoint to continue
                from.
        """
        running = self.trials.get(recorded.id)
        if running is not None and running.accept_decision(step):
            running.yields = True
            running.renew(recorded)
            running.decisions[step].set_result(False)

    async def forget(self, trial_id: str) -> None:
        """Delete the pool's state of a trial whose end the driver has recorded.

        Ranks that still run the trial stop at their next rung.
        """
        running = self.trials.get(trial_id)
        if running is None:
            return
        running.parts.mark_recorded()
        self.services.delete_unneeded(running)
        running.stop()
        if running.ended is not None:
            del self.trials[trial_id]

    async def prepare_refit(self, settings: Mapping[str, Any], rows: RefitRows) -> None:
        """Prepare for a trial that is trained again.

        Wait until all stopped trials have ended, forget all trials, and change the settings of
        trials.

        Args:
            settings: New values of fields of `Job`, by name.
            rows: The rows to train on.
        """
        await self.await_stopped()
        self.trials.clear()  # A call of `step` may arrive before that of `start`.
        self.stopping = None
        self.job = dataclasses.replace(self.job, **settings)
        self.workers.processes.job = self.job
        self.data_requests.use_refit_rows(rows)

    async def stop(self, trial_id: str) -> None:
        """End a trial at once; see `RunningTrial.end`.

        The driver still gets the reports that the trial has made.
        """
        if (running := self.trials.get(trial_id)) is not None:
            running.end(State.PRUNED)

    async def interrupt(self, state: State) -> None:
        """End all trials now. No trial starts after this call.

        Args:
            state: State to record for the trials that have not ended: RUNNING if they can be
                resumed later, PRUNED if they are stopped.
        """
        self.stopping = state
        for running in list(self.trials.values()):
            running.end(state)

    async def usage(self) -> Usage:
        """Return the resources in use and the stage of each active trial."""
        nodes = self.workers.nodes
        busy, idle = self.workers.held_resources()
        usage = Usage(nodes.total, busy, idle, fits=self.data_requests.fits, nodes=nodes.names)
        for name, running in self.trials.items():
            if running.ended is not None:
                continue
            missing = None
            if running.stage is Stage.WAITING:
                missing = self.workers.missing_nodes_text(running.trial.shape)
            usage.trials[name] = TrialUsage(
                running.stage,
                running.rung,
                running.worker_seconds_spent(),
                silent="\n".join(map(str, running.silent.values())),
                missing=missing or "",
            )
        return usage

    async def await_stopped(self) -> None:
        """Wait until all ranks of all trials have ended, for at most `STOP_WITHIN` seconds.

        The driver calls this method when it has recorded the end of every trial. Ray keeps no order
        among the calls of an actor, so some calls of `forget` may come later than this one.
        """
        for running in self.trials.values():
            running.stop()
        tasks = [running.task for running in self.trials.values() if running.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=STOP_WITHIN)

    async def shutdown(self) -> None:
        """End all trials and close all workers.

        Kill workers that take longer than `CLOSE_WITHIN` seconds.
        """
        await self.interrupt(self.stopping or State.RUNNING)
        await self.workers.close_all(CLOSE_WITHIN)

    # ---- the call that the driver waits for

    async def step(self, trial_id: str) -> dict[str, TrialUpdate]:
        """Wait until a trial ends, waits at a rung, stores a checkpoint, or reports.

        The call also confirms that the driver has recorded what the last call returned.

        Args:
            trial_id: Id of a trial that the driver has started, or that it starts within
                `START_WITHIN` seconds.

        Returns:
            The changes since the last call, with the key "update". Ray Tune treats this dict as a
            result of the trial.

        Raises:
            KeyError: The driver did not start the trial within this time.
        """
        deadline = clock.monotonic() + START_WITHIN
        while trial_id not in self.trials and clock.monotonic() < deadline:
            await asyncio.sleep(0.01)
        running = self.trials[trial_id]
        running.parts.mark_recorded()
        self.services.delete_unneeded(running)
        answer_at = clock.monotonic() + PROGRESS_EVERY
        while not running.is_urgent:
            timeout = None
            if running.has_unsent:
                timeout = answer_at - clock.monotonic()
                if timeout <= 0:
                    break
            running.changed.clear()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(running.changed.wait(), timeout)
        return {"update": running.next_update()}

    # ---- methods for workers

    async def listen(self, worker: str) -> Call | None:
        """Wait for the next call that a worker must carry out; see `WorkerProcesses.listen`."""
        return await self.workers.processes.listen(worker)

    async def record_answer(self, worker: str, number: int, error: str | None) -> None:
        """Record that a worker has carried out a call; see `WorkerProcesses.record_answer`."""
        self.workers.processes.record_answer(worker, number, error)


_remote: Any = ray.remote  # Ray's types lack `max_concurrency`.
Pool = _remote(num_cpus=0, max_restarts=-1, max_concurrency=10_000)(_Pool)
