"""Prepare the data of trials in the data actor, which reads data and fits preprocessing chains.

Each chain is fitted only once for the same data. A fit waits for a CPU in the same queue as trials.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ray.actor import ActorHandle
from ray.exceptions import RayActorError, RayTaskError

from sweeps.core.errors import InputError, SweepsError
from sweeps.core.host import exit_causes
from sweeps.core.resources import Shape
from sweeps.execution.background import Background

from .worker_pool import WorkerPool

if TYPE_CHECKING:
    from sweeps.data.load_request import LoadRequest
    from sweeps.data.prepared_data import PreparedData
    from sweeps.data.splits.refit_rows import RefitRows
    from sweeps.space import Step

    Chain = tuple[Step, ...]

log = logging.getLogger(__name__)

# Texts in the traceback of a loop that reads data whose owner process was lost: names of Ray's
# exceptions, and the line of an `ActorDiedError` that names the actor.
DATA_LOSS_TEXTS = (
    "OwnerDiedError",
    "ObjectLostError",
    "ObjectFetchTimedOutError",
    "ReferenceCountingAssertionError",
    "class_name: SplitCoordinator",
)
# The trials that need a chain fail if the data actor's process dies this often in a row while it
# prepares the chain.
MOST_DEATHS = 3


def is_data_loss(error: str | None) -> bool:
    """Return whether an attempt failed because the process that had prepared its data has died.

    Args:
        error: Error text of a rank that failed in the attempt; None if there is no text.
    """
    return any(name in (error or "") for name in DATA_LOSS_TEXTS)


class DataRequests:
    """Futures of the data that the data actor has prepared or will prepare.

    All methods run on the pool's event loop.

    If the data actor's process dies, Ray starts a new process. No code watches the process.
    Instead, if a trial cannot read its data, the trial driver calls `forget`, and the next request
    prepares the data again. Workers that have cached their data do not need the process.

    Args:
        workers: Worker pool from which a fit gets a CPU.
        spawn: Runs a coroutine in the background.

    Attributes:
        refused: Future that gets an InputError if a new process of the data actor cannot read the
            same data again.
    """

    def __init__(self, workers: WorkerPool, spawn: Background):
        self.workers = workers
        self.spawn = spawn
        self.data_actor: ActorHandle[Any]  # Set by `configure`, for which all methods wait.
        self.refused: asyncio.Future[InputError] = asyncio.get_running_loop().create_future()
        self._reload: LoadRequest | None = None
        self._refit: RefitRows | None = None
        # Set by `configure`. Calls to the pool may arrive out of order, so other methods wait for
        # it.
        self._configured = asyncio.Event()
        # By data variant and chain
        self._prepared: dict[tuple[str, str], asyncio.Future[PreparedData]] = {}
        # The keys of `_prepared` whose chain has steps and was fitted.
        self._chains: set[tuple[str, str]] = set()
        # The data actor runs one fit at a time; a waiting fit must not hold a CPU.
        self._fitting = asyncio.Lock()

    def configure(self, data_actor: ActorHandle[Any], reload: LoadRequest | None) -> None:
        """Set the data actor, and the arguments with which a new process reads the data again.

        All other methods wait for this call.
        """
        self.data_actor = data_actor
        self._reload = reload
        self._configured.set()

    def use_refit_rows(self, rows: RefitRows) -> None:
        """Let all further requests prepare the rows on which a trial is trained again."""
        self._refit = rows
        self._prepared = {}

    async def fit_before_trials(
        self, fits: Sequence[tuple[dict[str, Any], Chain]], warm: Sequence[Shape]
    ) -> None:
        """Fit preprocessing chains before the first trial.

        For the arguments, see `_Pool.prefit`.
        """
        await self._configured.wait()
        if warm and (self._streams or not await self._runs_tasks()):
            self.workers.warm(warm)
        for future in [self.request(data, chain) for data, chain in fits]:
            await asyncio.shield(future)

    def request(self, data: dict[str, Any], chain: Chain) -> asyncio.Future[PreparedData]:
        """Return a future of a trial's prepared data: the data after its preprocessing steps.

        If several trials have equal arguments, they get the same future, and the data is prepared
        only once.

        Args:
            data: The trial's values of the `data` section.
            chain: The trial's preprocessing steps.
        """
        key = repr(data), repr(chain)
        if key not in self._prepared:
            self._prepared[key] = self.spawn(self._prepare(key, data, chain))
        return self._prepared[key]

    def forget(self, data: dict[str, Any], chain: Chain) -> None:
        """Forget prepared data that a trial could not read. For the arguments, see `request`.

        The next trial that needs this data requests it again.
        """
        key = repr(data), repr(chain)
        if key in self._prepared and self._prepared[key].done():
            del self._prepared[key]

    @property
    def fits(self) -> int:
        """Number of pairs of data values and steps for which a fit succeeded.

        Data without preprocessing steps does not count.
        """
        return len(self._chains)

    async def _prepare(
        self, key: tuple[str, str], data: dict[str, Any], chain: Chain
    ) -> PreparedData:
        await self._configured.wait()
        async with self._fitting:
            try:
                prepared = await self._call_data_actor(data, chain)
            except RayTaskError as e:
                from sweeps.data.load_request import ReloadError

                if not isinstance(e.cause, ReloadError):
                    raise
                self.refused.set_result(InputError(e.cause.problems))
                await asyncio.Event().wait()  # Wait until the driver ends the sweep.
        if chain:
            self._chains.add(key)
        return prepared

    async def _call_data_actor(self, data: dict[str, Any], chain: Chain) -> PreparedData:
        """Let the data actor prepare data.

        If its process dies meanwhile, let the new process of the actor do it.
        """
        deaths = 0
        while True:
            runs_tasks = await self._runs_tasks()
            pid = await self.data_actor.pid.options(max_task_retries=-1).remote()
            async with self._cpu(runs_tasks):
                # This has changed if Ray has restarted the process while the request waited.
                if runs_tasks != await self._runs_tasks():
                    continue
                kills = exit_causes.kills_for_memory()
                try:
                    prepare = self.data_actor.prepare.remote
                    prepared: PreparedData = await prepare(chain, data, self._reload, self._refit)
                    return prepared
                except RayActorError as e:
                    from sweeps.data.data_actor import describe_loss

                    why = describe_loss(e, pid, kills)
                    deaths += 1
                    log.warning("%s; a new process prepares the data", why)
                    if deaths == MOST_DEATHS:
                        raise SweepsError(
                            f"{why}; this happened {deaths} times in a row while it prepared the "
                            "data of this trial"
                        ) from e

    @property
    def _streams(self) -> bool:
        """True if the data is streamed. Ray Data's tasks then have CPUs of their own."""
        return self.workers.job.stream is not None

    def _cpu(self, runs_tasks: bool) -> contextlib.AbstractAsyncContextManager[None]:
        """Return a context in which a fit may run.

        It holds a CPU, unless Ray Data's tasks have CPUs of their own.
        """
        if self._streams:
            return contextlib.nullcontext()
        cpus = min(1.0, self.workers.nodes.total.get("CPU", 1.0))
        return self.workers.resources({"CPU": cpus}, runs_tasks)

    async def _runs_tasks(self) -> bool:
        """Return whether the data actor runs Ray tasks to prepare data.

        If the data actor's process has died, wait until Ray has restarted it.
        """
        return bool(await self.data_actor.runs_tasks.options(max_task_retries=-1).remote())
