"""Start and shut down what trials need to run: Ray, the pool, and the data actor.

The commands `run`, `resume`, `rerun` and `export --refit` use this module.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypedDict

from sweeps.core.errors import InputError, Problem
from sweeps.core.files.sweep_folder import SCRATCH
from sweeps.core.host.machine_share import EVERYTHING, Share
from sweeps.core.plugins import references
from sweeps.core.resources import Shape
from sweeps.core.text.secrets import any_known
from sweeps.data.checks.metric_checks import check_metrics
from sweeps.data.checks.preflight import locate_problems
from sweeps.data.sources import ingest
from sweeps.execution.cluster import ray_cluster
from sweeps.execution.isolation import child_processes
from sweeps.execution.worker.trial_logs import hide_secrets_in
from sweeps.plan.feasibility import PLENTY, find_infeasible_shapes
from sweeps.search.plugins import scheduler_of
from sweeps.search.schedulers.scheduler import all_row_steps
from sweeps.space import Space, known_fits
from sweeps.space.model.space_model import command_files
from sweeps.space.model.templates import dimensions

from .ports import PoolHandle
from .session_secrets import refuse_missing_secrets, secret_names, storage_secrets

if TYPE_CHECKING:
    from ray import ObjectRef
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    from sweeps.data.prepared_store import DatasetInfo

log = logging.getLogger(__name__)


class JobChanges(TypedDict, total=False):
    """Values that replace fields of the pool's `Job`.

    Attributes:
        rungs: Steps at which the pool asks whether a trial continues.
        tracking: MLflow tracking URI for the loops of trials; None without MLflow.
        keeps_predictions: True if trials keep their predictions for valid.
    """

    keeps_predictions: bool
    rungs: frozenset[int]
    tracking: str | None


@dataclass
class SweepSession:
    """Starts Ray, the pool and the data actor for one sweep, and shuts them down.

    Use a session in a `with` statement.

    Attributes:
        space: The search space. Its `shapes` are the numbers of workers, with their resources, that
            trials may have.
        folder: The sweep's folder, or the temporary folder of a rerun or a refit. The fitted
            preprocessing chains are stored in it.
        roots: Folders from which the user's modules are imported.
        address: Address of a Ray cluster. None starts Ray on this machine, unless this process is
            already connected to Ray.
        job: Values that replace fields of the pool's `Job`.
        max_failures: Value of `limits.max_failures`: how often a trial may be retried after a
            failed attempt.
        share: The CPUs and GPUs that the session may use; see `reserve`.
        fingerprint: Fingerprint of the data when the sweep started; None if the sweep is new.
        scheduler: The scheduler of the space.
        cluster: The Ray cluster that the session runs on.
        pool: Handle of the pool.
        dataset: Information about the data; set by `load_data`.

    Raises:
        InputError: On entering the `with` block: a trial needs more resources than the cluster has,
            or the `backend` of a trainer names an object that is no backend.
    """

    space: Space
    folder: Path
    roots: tuple[Path, ...]
    address: str | None
    job: JobChanges = field(default_factory=JobChanges)
    max_failures: int = 0
    share: Share = EVERYTHING
    fingerprint: str | None = None

    def __post_init__(self) -> None:
        self.space = ingest.resolve(self.space, self.fingerprint)
        self.scheduler = scheduler_of(self.space.scheduler)
        self.cluster: ray_cluster.RayConnection
        self.pool: PoolHandle
        self.dataset: DatasetInfo
        self._resources = contextlib.ExitStack()
        self._workers_closed = False
        self._actors: list[Any] = []  # the pool and the data actor

    def __enter__(self) -> Self:
        """Start Ray, the pool and the data actor."""
        refuse_missing_secrets(self.space)
        self._secrets = storage_secrets(self.space, self.folder)
        self._check_backend()
        with contextlib.ExitStack() as starting:
            self.cluster = starting.enter_context(
                ray_cluster.ray_connection(
                    self.space, self.folder, self.roots, self.address, self.share
                )
            )
            self._check_shapes()
            starting.callback(self._end_processes)
            here = ray_cluster.at_driver()
            self.pool = self._start_pool(here)
            self._actors.append(self.pool)
            self._data_actor = self._start_data_actor(here)
            self._actors.append(self._data_actor)
            self._resources = starting.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Shut everything down.

        After an error, processes are killed, and the session does not wait for them to end.
        """
        try:
            if kind is None:
                self.close_workers()
        finally:
            self._resources.__exit__(kind, error, trace)

    def _check_backend(self) -> None:
        """Import each backend that is a reference to the user's own backend.

        Raise InputError if a backend is invalid.
        """
        for trainer in self.space.trainers.values():
            if ":" not in trainer.backend:
                continue
            from sweeps.execution.worker.backends import find_backend_problem

            sys.path[:0] = [root for root in map(str, self.roots) if root not in sys.path]
            if (text := find_backend_problem(trainer.backend)) is not None:
                raise locate_problems(self.space, [Problem(f"{trainer.path}.backend", text)])

    def _check_shapes(self) -> None:
        """Raise InputError if a trial's workers do not fit, and no autoscaler can add nodes."""
        from sweeps.execution.gangs.autoscaling import may_grow

        connection = self.cluster
        problems = find_infeasible_shapes(self.space, connection.total, list(connection.nodes))
        if problems and not connection.ours and may_grow():
            names = {name for shape in self.space.shapes for name, _ in shape.per_worker}
            limit = dict.fromkeys(names, PLENTY) | (connection.limit or {})
            problems = find_infeasible_shapes(self.space, limit)
        if problems:
            if connection.stream_cpus and not connection.ours:
                left = (
                    f"; {connection.stream_cpus} of the cluster's CPUs are left to Ray Data "
                    "(data.ingest: stream)"
                )
                problems = [Problem(problem.place, problem.text + left) for problem in problems]
            raise InputError(problems)

    def _start_pool(self, here: NodeAffinitySchedulingStrategy) -> PoolHandle:
        from sweeps.execution.pool import Pool

        from .job_settings import job_of

        job = replace(job_of(self.space, self.folder, self.cluster, self._secrets), **self.job)
        ours = self.cluster.ours
        resources = self.cluster.total if ours else None
        parked = self.cluster.parked if ours else None
        reserves = job.stream is not None and not ours
        pool: PoolHandle = Pool.options(scheduling_strategy=here).remote(
            job, resources, self.max_failures, parked, self.cluster.limit, reserves
        )
        return pool

    def _start_data_actor(self, here: NodeAffinitySchedulingStrategy) -> Any:
        from sweeps.data import data_actor

        from .job_settings import stream_settings

        # The modules of scikit-learn that the chains known before the first trial need are imported
        # early.
        modules = {
            step.name.partition(":")[0] for _, chain in known_fits(self.space) for step in chain
        }
        own_secrets = {name: os.environ[name] for name in self.space.secrets if name in os.environ}
        # A rank of an elastic trial takes its part from the only shard of a gang of one.
        workers = {shape.workers if shape.most is None else 1 for shape in self.space.shapes}
        sampled = [
            name
            for name in ("data", "preprocessor")
            if list(dimensions(self.space.sections.get(name)))
        ]
        config = data_actor.DataActorConfig(
            roots=self.cluster.roots,
            folder=self.folder,
            workers=tuple(sorted(workers)),
            cpus=self.cluster.cpus,
            trainers={label: trainer.definition for label, trainer in self.space.trainers.items()},
            modules=tuple(sorted(name for name in modules if name.startswith("sklearn."))),
            once=not sampled,
            stream=stream_settings(self.space, self.cluster),
            row_steps=all_row_steps(self.scheduler),
            secrets=self._secrets | own_secrets,
            secret_names=secret_names(self.space, self._secrets),
        )
        return data_actor.start(here, config)

    def warm_workers(self, shapes: Sequence[Shape]) -> None:
        """Start the workers of the first trials while the data is read.

        On a cluster that this session did not start, do nothing, because reading the data needs the
        CPUs.

        Args:
            shapes: Number of workers and their resources, for each of the first trials.
        """
        if self.cluster.ours:
            self.pool.warm.remote(shapes)

    def load_data(self) -> DatasetInfo:
        """Load the data, and tell the pool which column is the label.

        Return information about the data.

        Raises:
            InputError: The data cannot be read or has changed, or it does not fit the objectives.
            SweepsError: The process of the data actor was lost.
        """
        from sweeps.data import data_actor

        if self.space.data.is_named:
            self.dataset = data_actor.load(self._data_actor, self.space, self.fingerprint)
        else:
            self.dataset = self._without_data()
        if problems := check_metrics(self.space, self.dataset.task, self.dataset.notes):
            raise locate_problems(self.space, problems)
        self.configure_pool()
        return self.dataset

    def _without_data(self) -> DatasetInfo:
        """Return the dataset information of a space without a `data` section.

        The loop of such a space reads its own data. In place of the data, the loop's code is
        fingerprinted. If the code has changed since the sweep started, the information contains a
        note. The change is no error, because the new code may read the same data.
        """
        import ray

        from sweeps.bundle.requirements import fingerprint

        before = self.fingerprint
        names: list[str] = []
        for trainer in self.space.trainers.values():
            names += [trainer.loop, *filter(None, [trainer.load]), *trainer.references]
        scripts = command_files(self.space, self.roots)
        now = fingerprint([references.parse(name)[0] for name in names], self.roots, scripts)
        notes: tuple[str, ...] = ()
        if before is not None and now != before:
            loops = " and ".join(f"`{each.loop}`" for each in self.space.trainers.values())
            change = f"its fingerprint was {before[:12]} and is now {now[:12]}"
            note = (
                f"the code of {loops} has changed since the sweep began ({change}); "
                "trials before and after the change may not be comparable"
            )
            log.warning(note)
            notes = (note,)
        info: DatasetInfo = ray.get(self._data_actor.without_data.remote(now, notes))
        return info

    def configure_pool(self) -> None:
        """Pass to the pool the data actor and the description of the label column.

        Also pass what a new data actor needs to read the data again. Call this method again if Ray
        has restarted the pool.
        """
        from sweeps.data.load_request import LoadRequest
        from sweeps.execution.messages import Labels

        labels = Labels(self.dataset.label, self.dataset.task, self.dataset.classes)
        reload = (
            LoadRequest.of_space(self.space, self.dataset.fingerprint)
            if self.space.data.is_named
            else None
        )
        self.pool.configure.remote(self._data_actor, labels, reload)

    def prefit(self, shapes: Sequence[Shape]) -> ObjectRef[None]:
        """Fit those preprocessing chains that are known before the first trial is sampled.

        Args:
            shapes: Number of workers and their resources, for each of the first trials. On a
                cluster that this session did not start, these workers start as soon as no fit needs
                the CPUs. Otherwise, `warm_workers` has started them.

        Returns:
            Reference to a Ray task that ends when these chains are fitted.
        """
        return self.pool.prefit.remote(known_fits(self.space), () if self.cluster.ours else shapes)

    def count_fits(self) -> int:
        """Return how many distinct preprocessing chains were fitted.

        Chains that were fitted before the sweep was resumed count too.
        """
        from sweeps.data.prepared_store import PreparedStore

        return PreparedStore(self.folder).count_chains()

    def final_threads(self, shape: Shape) -> int:
        """Return the least number of threads of each worker when the winner is trained again.

        On a machine on which this session started Ray, this training is alone, so a single worker
        may use all CPUs. Otherwise the result is 1: the workers have the threads of their shape.
        """
        alone = self.cluster.ours and shape.workers == 1
        return int(self.cluster.total.get("CPU", 1)) if alone else 1

    def await_stopped(self) -> None:
        """Wait until the loops of all trials have ended. A trial that stops may write files."""
        import ray

        ray.get(self.pool.await_stopped.remote())

    def close_workers(self) -> None:
        """Wait until the loops of all trials have ended. Then close all workers.

        Their memory is then free for the export.

        If this session started Ray, this call does not wait until the workers are closed, because
        Ray is shut down as a whole later.
        """
        import ray

        if self._workers_closed:
            return
        self._workers_closed = True
        self.await_stopped()
        closed = self.pool.shutdown.remote()
        if not self.cluster.ours:
            ray.get(closed)

    def _end_processes(self) -> None:
        """Kill the session's actors, and its workers on this machine.

        Delete the files with which Ray Tune and Ray Train could resume.
        """
        import ray

        for actor in self._actors:
            ray.kill(actor)
        child_processes.end(str(self.folder))
        if any_known():
            hide_secrets_in(self.folder)
        for name in SCRATCH:
            shutil.rmtree(self.folder / name, ignore_errors=True)
