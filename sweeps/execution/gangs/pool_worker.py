"""The pool's objects for workers and gangs."""

import asyncio
import contextlib
import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import ray
from ray.actor import ActorHandle

from sweeps.core import clock
from sweeps.core.host import exit_causes
from sweeps.execution.messages import WorkerInfo
from sweeps.execution.worker import gang_ranks
from sweeps.study.events import RankPlace

from . import data_affinity
from .cluster_state import Phase, WorkerState

# A call of a method of `WorkerRuntime`: the number, the method and the arguments.
Call = tuple[int, str, tuple[object, ...]]


class WorkerLost(Exception):
    """Raised when a worker's process has died or was killed.

    Args:
        reason: Text of the exception.
        blameless: True if the trial cannot be the cause, for example because the node was lost.
    """

    def __init__(self, reason: str, blameless: bool = False):
        super().__init__(reason)
        self.blameless = blameless


class CannotStart(Exception):
    """Raised when the workers of a trial cannot start.

    A worker has raised an exception, the cluster is too small, or the backend could not connect the
    workers.
    """


class PoolWorker:
    """The pool's state of one worker.

    Attributes:
        id: Id of the worker.
        number: Number of the worker: 1 for the first worker that the pool started.
        resources: Name and amount of each resource that the worker holds.
        node: Id of the worker's node.
        phase: IDLE, BUSY or CLOSING; see `Phase`.
        idle_since: Time at which the worker last became idle, by the monotonic clock.
        used: Number that grows with each use: of two workers, the one with the larger number was
            used more recently.
        cached: (key, size in bytes) of the data that the worker caches, the most recently used data
            last.
        gang: Gang that the worker belongs to; None if it belongs to no gang.
        actor: Handle of the worker's actor.
        info: Description that the worker sent when it had started; None before the worker has
            started.
        place: Address of the worker's node, and its GPUs. Before the worker has started, it has no
            GPUs.
        lost: Exception that says why the process has ended; None while the process is alive.
        started: Future of `info`. If the process ends before the worker has started, the future
            raises the exception `lost`.
        gone: Future that is done when the process has ended.
        heartbeat: Time of the latest heartbeat by the monotonic clock; None before the first
            heartbeat.
        calls: Calls that the worker has not received yet: number, method and arguments.
        answers: For each call that has not ended yet, a future that is done when the call ends;
            keyed by the call's number.
    """

    def __init__(self, number: int, resources: tuple[tuple[str, float], ...], node: str):
        self.id = f"worker-{number:03d}"
        self.number = number
        self.resources = resources
        self.node = node
        self.used = 0
        self.phase = Phase.BUSY
        self.idle_since = clock.monotonic()
        self.cached: data_affinity.CachedData = ()
        self.gang: Gang | None = None
        self.actor: ActorHandle[Any]  # Set when the process starts.
        self.info: WorkerInfo | None = None
        self.place = RankPlace(node)
        self.lost: Exception | None = None
        self.started: asyncio.Future[WorkerInfo] = asyncio.get_running_loop().create_future()
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.heartbeat: float | None = None
        self.calls: asyncio.Queue[Call] = asyncio.Queue()
        self.answers: dict[int, asyncio.Future[None]] = {}
        self._count = itertools.count()

    @property
    def gpus(self) -> tuple[str, ...]:
        """Ids of the worker's GPUs; () before the worker has started."""
        return self.place.gpus

    def state(self) -> WorkerState:
        """Return the worker's state in the form that `allocation.decide` takes."""
        state = WorkerState(
            self.id,
            self.node,
            self.resources,
            self.phase,
            used=self.used,
            keys=frozenset(data_affinity.data_key_of(cache_key) for cache_key, _ in self.cached),
        )
        if self.gang is None:
            return state
        return replace(state, gang=self.gang.id, rank=self.gang.workers.index(self))

    async def call(self, method: str, *arguments: object) -> None:
        """Call a method of `WorkerRuntime` in a separate thread of the worker, and wait for it.

        Raises:
            RuntimeError: The method raised an exception. The text of the error is the traceback.
            WorkerLost: The worker died.
        """
        number = next(self._count)
        self.answers[number] = answer = asyncio.get_running_loop().create_future()
        self.calls.put_nowait((number, method, arguments))
        try:
            await answer
        finally:
            del self.answers[number]

    def send(self, method: str, *arguments: object) -> None:
        """Call a method as `call` does, but do not wait for its end.

        Exceptions of the method are ignored.
        """
        self.calls.put_nowait((next(self._count), method, arguments))

    def kill(self) -> None:
        """Kill the worker's process. Do nothing if it has ended."""
        with contextlib.suppress(Exception):
            ray.kill(self.actor)


class Gang:
    """Workers that run one trial together.

    Args:
        number: Number of the gang.
        workers: The workers, in any order.
        backend: Backend that connects the workers; see `Shape.backend`.

    Attributes:
        id: Id of the gang.
        workers: The workers, in the order of ranks.
        ranks: World rank, local rank and node rank of each worker, in the order of `workers`.
        connected: True if the backend has connected the workers.
        broken: True if the gang must be disbanded before its workers run another trial.
        disbanding: Task that disbands the gang; None before the gang is disbanded.
    """

    def __init__(self, number: int, workers: Sequence[PoolWorker], backend: str):
        self.id = f"gang-{number:03d}"
        self.backend = backend
        self.workers = gang_ranks.in_rank_order(workers)
        self.ranks = gang_ranks.ranks_on([w.node for w in self.workers])
        self.connected = False
        self.broken = False
        self.disbanding: asyncio.Task[None] | None = None


def describe(error: BaseException | None) -> str:
    """Return one line about an error.

    The line has the class of the error and the last line of its text, or says why a process of Ray
    died. If Ray has wrapped an exception of a worker, the line is about the wrapped exception.
    """
    if isinstance(error, (WorkerLost, CannotStart)):
        return str(error)
    cause = getattr(error, "cause", None) or error
    if (died := exit_causes.exit_cause(error)) is not None:
        return died
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    return f"{type(cause).__name__}: {lines[-1] if lines else ''}".rstrip(": ")
