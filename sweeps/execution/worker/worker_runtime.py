"""Code of a worker's process: join gangs, run trials, and reset the process between trials.

The pool assigns the trials. The actor's methods run one after another on the main thread, so that
training loops can set signal handlers. A second thread asks the pool for calls and carries the
calls out while a loop runs. Each of these requests is also a heartbeat of the worker.
"""

import contextlib
import logging
import os
import sys
import threading
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
import ray.data
from ray.actor import ActorHandle
from ray.train.backend import Backend, BackendConfig

from sweeps.core.host import exit_causes
from sweeps.core.plugins import references
from sweeps.core.resources import Shape
from sweeps.core.text.secrets import hide_in_output, remember_uri, remember_variables
from sweeps.execution.isolation import child_processes, process_reset, torch_state
from sweeps.execution.messages import Assignment, AttemptId, Ended, Job, Ranks, WorkerInfo
from sweeps.execution.ray_apis import ray_data_adapter, ray_train_adapter
from sweeps.study.events import RankPlace

from . import backends, loop_mlflow, trial_logs
from .dataset_cache import DatasetCache
from .gang_ranks import RECONNECTED_FOR_EACH_TRIAL
from .stream_shares import TrainStreams
from .training_loop import run_loop
from .trial_session import TrialSession
from .trial_setup import (
    current_of,
    folder_on_node,
    import_loop,
    save_files,
    write_stacks_after,
)

log = logging.getLogger(__name__)

# Interval at which a running loop's new reports and checkpoints are sent to the pool, in seconds.
REPORTS_EVERY = 0.5


class WorkerRuntime:
    """State of a worker's process, and the methods that the pool calls in it.

    Args:
        pool: Handle of the pool.
        worker: Id of this worker.
        job: Settings that all trials of the sweep share.
    """

    def __init__(self, pool: Any, worker: str, job: Job):
        self.pool = pool
        self.worker = worker
        self.job = job
        self.session: TrialSession | None = None
        self._log: Path | None = None  # Log of the running trial.
        self._membership: backends.Membership | None = None
        # The backend with which `form` has connected the gang. Set on rank 0 only.
        self._group: tuple[Backend, backends.WorkerGroup, BackendConfig] | None = None
        self._caches: dict[str, DatasetCache] = {}
        self._streams = TrainStreams()
        # Labels of the trainers whose loops are imported.
        self._imported: set[str] = set()
        # Memory in use after the first trial of the latest of these trainers, in bytes.
        self._first_memory = 0

    def start(self) -> WorkerInfo:
        """Prepare the process for training loops.

        If a loop is one of the trainers that come with sweeps, import it now.
        """
        os.environ.update(self.job.secrets)
        remember_variables(self.job.secret_names)
        remember_uri(self.job.tracking or "")
        hide_in_output(sys.stdout, sys.stderr)
        for root in reversed(self.job.roots):
            if root not in sys.path:
                sys.path.insert(0, root)
        # Ray Data would log each read shard to the trial's log.
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        ray.data.DataContext.get_current().enable_progress_bars = False
        if self.job.stream is None:
            ray_data_adapter.read_data_in_place()
        else:
            self.job.stream.apply()
        ray_train_adapter.refuse_shutdown()
        exit_causes.log_os_exit()
        loop_mlflow.prepare(self.job.tracking)
        threading.Thread(target=self._listen, name="sweeps-control", daemon=True).start()
        for trainer in self.job.trainers.values():
            with contextlib.suppress(Exception):  # The trial will report the error.
                if trainer.loop.startswith("sweeps.trainers."):
                    references.resolve(trainer.loop)
                elif trainer.backend != "none":
                    backends.config_of(trainer.backend)
        context = ray.get_runtime_context()
        gpus = tuple(str(gpu) for gpu in ray.get_gpu_ids())
        place = RankPlace(ray.util.get_node_ip_address(), gpus)
        return WorkerInfo(context.get_node_id(), place, os.getpid())

    # ---- gangs

    def join(self, ranks: Ranks, visible_gpus: str | None, backend: str) -> None:
        """Leave the current gang, if there is one, and join another gang.

        Args:
            ranks: Place of this process in the new gang.
            visible_gpus: New value of `CUDA_VISIBLE_DEVICES`; None to keep the present value.
            backend: Backend of the gang.
        """
        self.leave()
        self._membership = backends.Membership(ranks, visible_gpus, backend)
        ray_train_adapter.set_ranks(ranks)

    def leave(self) -> None:
        """Leave the current gang, if there is one.

        Undo the backend's changes in this process, and free cached GPU memory.
        """
        membership = self._membership
        self._membership = None
        if membership is not None:
            membership.leave()
        ray_train_adapter.set_ranks(None)
        torch_state.empty_cuda()

    def form(
        self,
        workers: tuple[ActorHandle[Any], ...],
        ranks: tuple[Ranks, ...],
        resources: dict[str, float],
        visible_gpus: list[str],
        backend_name: str,
    ) -> None:
        """Connect the workers of a gang with Ray Train's backend.

        The pool calls this on rank 0, in a thread other than the main thread.

        Args:
            workers: Handles of all workers, in the order of ranks.
            ranks: Place of each worker in the gang.
            resources: Name and amount of each resource of one worker.
            visible_gpus: For each worker, the ids of the GPUs of all workers on its node; ""
                without GPUs.
            backend_name: Name of the backend; see `Shape.backend`.
        """
        config = backends.config_of(backend_name, resources)
        backend = config.backend_cls()
        group = backends.WorkerGroup(workers, resources)
        shares_gpus = backend.share_cuda_visible_devices and resources.get("GPU", 0) > 0
        if shares_gpus:  # After CUDA is initialized, a process cannot change its visible devices.
            shares_gpus = not any(group.execute(torch_state.uses_cuda))
        visible = visible_gpus if shares_gpus else [None] * len(workers)
        group.call("join", ranks, visible, [backend_name] * len(workers))
        self._group = (backend, group, config)
        backend.on_start(group, config)
        backend.on_training_start(group, config)
        group.call("enter")

    def enter(self) -> None:
        """Enter the context in which the backend lets training functions run."""
        membership = self.membership
        membership.enter(backends.config_of(membership.backend))
        if membership.backend == "jax":  # Ray's backend gives the first GPUs of the node to each.
            membership.show_own_gpus()

    def disband(self) -> None:
        """Disconnect the workers of the gang that `form` connected. The pool calls this on rank 0.

        Do nothing if there is no such gang.
        """
        if self._group is None:
            return
        backend, group, config = self._group
        self._group = None
        group.call("exit_context")
        backend.on_shutdown(group, config)
        group.call("leave")

    def exit_context(self) -> None:
        """Exit the context that `enter` has entered."""
        self.membership.exit_context()

    def _form_alone(self, shape: Shape) -> None:
        """Make this worker a gang of one, and set up the backend in this process.

        For torch, create the process group here, because this is faster than Ray Train's backend.
        For any other backend, call Ray Train's backend, unless a single worker needs no backend.
        """
        backend = shape.backend
        resources = dict(shape.per_worker)
        membership = self._membership
        if membership is not None and (
            backend in RECONNECTED_FOR_EACH_TRIAL or membership.backend != backend
        ):
            self.leave()
        if self._membership is None:
            self.join(Ranks(), None, backend)
            if backend not in backends.UNUSED_ALONE:
                config = backends.config_of(backend, resources)
                group = backends.OwnProcess(resources)
                config.backend_cls().on_start(group, config)
                config.backend_cls().on_training_start(group, config)
                self.enter()
        if backend == "torch":
            self.membership.groups = torch_state.create_group_of_one(gpu=bool(ray.get_gpu_ids()))

    @property
    def membership(self) -> backends.Membership:
        """Membership of this process in its gang. The process must belong to a gang."""
        assert self._membership is not None, "the pool forms a gang before it assigns a trial"
        return self._membership

    # ---- trials

    def run(self, assignment: Assignment) -> Ended:
        """Run one attempt at a trial on this rank, reset the process, and return the result."""
        self.job = assignment.job or self.job
        if self.job.store is not None:
            assignment = replace(assignment, folder=folder_on_node(assignment.folder))
        if self._membership is not None:
            # At the end of the last trial, other ranks may still have used its process groups.
            torch_state.destroy_groups(self._membership.groups)
        if assignment.ranks.world_size == 1:
            self._form_alone(assignment.trial.shape)
        membership = self.membership
        self._keep_caches(assignment)
        label = assignment.trial.trainer
        is_first = label not in self._imported
        if is_first:
            process_reset.freeze_objects()
        cache = self._caches[assignment.data_key]
        session = TrialSession(self.pool, self.job, assignment, cache)
        self.session = session
        ranks = assignment.ranks
        title = (
            f"trial {assignment.trial.id}, attempt {assignment.attempt}, rank {ranks.rank} of "
            f"{ranks.world_size} on {self.worker}"
        )
        self._log = trial_logs.log_of(assignment.folder, ranks.rank)
        try:
            self._streams.open(session)
            with (
                trial_logs.redirect_output(self._log, title) as log_line,
                contextlib.closing(session),
            ):
                ended, broken = self._run_isolated(session, assignment, is_first)
                outcome = f"{ended.state.value} after {ended.reports} reports"
                log_line(f"{outcome}\n{ended.error}" if ended.error else outcome)
        finally:
            save_files(self.job.store, self._log, assignment)
            self.session = None
            self._log = None
        if is_first:
            self._imported.add(label)
            process_reset.freeze_objects()
            self._first_memory = process_reset.memory()
        growth_error = process_reset.excess_growth(self._first_memory, process_reset.memory())
        return replace(
            ended,
            update=session.unacknowledged(),
            broken=broken or growth_error,
            disconnected=membership.lost_its_group(),
        )

    def _keep_caches(self, assignment: Assignment) -> None:
        """Delete cached data that the pool does not list, and add new data to the cache."""
        for key in self._caches.keys() - set(assignment.cached):
            del self._caches[key]
        if assignment.data is not None:
            self._caches[assignment.data_key] = DatasetCache(assignment.data)
        assert assignment.data_key in self._caches, (
            "the pool treats data as cached although it never sent this data"
        )

    def _run_isolated(
        self, session: TrialSession, assignment: Assignment, is_first: bool
    ) -> tuple[Ended, str | None]:
        """Run the loop, and undo its changes of the process.

        Returns:
            The result of the attempt, and the reason why the process cannot run another trial;
            None if it can.
        """
        limit = self.job.trial_timeout
        seconds = None if limit is None else max(0.1, limit - assignment.seconds)
        if is_first:
            import_loop(self.job.trainer_of(assignment.trial), seconds)
            if assignment.ranks.rank == 0:
                ray.get(self.pool.restart_clock.remote(assignment.id))
        current = current_of(self.job, assignment, self._caches[assignment.data_key])
        mark = f"{assignment.folder}/{assignment.ranks.rank}"
        if assignment.attempt > 1:
            child_processes.end(mark)  # Processes of an earlier attempt whose worker was lost.
        with process_reset.isolate_trial(mark) as reset, write_stacks_after(seconds):
            ended = replace(run_loop(session, current), reports=session.reports)
        return ended, reset.broken

    def stop(self, trial: str) -> None:
        """End the trial's loop at its next report. Do nothing if the trial no longer runs here."""
        if (session := self.session) is not None and session.assignment.trial.id == trial:
            session.stops = True

    def close_stream(self, attempt: AttemptId) -> None:
        """End the split coordinator that this worker has started for an attempt.

        See `TrainStreams.close`.
        """
        self._streams.close(attempt)

    # ---- the second thread

    def _listen(self) -> None:
        """Carry out the pool's calls, send the running loop's new reports, and notify the pool.

        The pool is notified if the loop has not reported for long.
        """
        previous: TrialSession | None = None
        call = self.pool.listen.remote(self.worker)
        while True:
            ready, _ = ray.wait([call], timeout=REPORTS_EVERY)
            try:
                if ready:
                    received = ray.get(call)
                    call = self.pool.listen.remote(self.worker)
                    if received is not None:
                        threading.Thread(target=self._answer, args=received, daemon=True).start()
                session = self.session
                # Wait one interval before the first reports, which the end of a short trial sends.
                if session is not None and session is previous and not ready:
                    session.send_if_new()
                previous = session
                if session is not None:
                    session.check_silence()
            except ray.exceptions.RayError:  # The pool has died, so Ray will end this process soon.
                time.sleep(REPORTS_EVERY)
            if (log := self._log) is not None:
                trial_logs.shorten(log)

    def _answer(self, number: int, method: str, arguments: tuple[Any, ...]) -> None:
        """Carry out a call of the pool, and tell the pool that it has ended."""
        error = None
        try:
            getattr(self, method)(*arguments)
        except BaseException:
            error = traceback.format_exc()
        self.pool.record_answer.remote(self.worker, number, error)
