"""A pool that trains nothing, on a virtual clock. It needs no Ray.

The driver, its decisions, the search, the allocation of workers and the rules for retries are the
real ones. Processes, training and time are simulated. A test can therefore run a sweep of thousands
of trials on a cluster of a hundred nodes, with nodes that join, leave and are slow.
"""

from __future__ import annotations

import functools
import heapq
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sweeps.controller.controller import STATUS_INTERVAL, SweepController
from sweeps.core import clock
from sweeps.core.trial import LOST, Checkpoint, Report, State
from sweeps.execution.gangs import allocation, placement
from sweeps.execution.gangs.cluster_state import Cluster, Phase, WorkerState
from sweeps.execution.gangs.placement import Request
from sweeps.execution.gangs.pool_worker import WorkerLost
from sweeps.execution.messages import Ended, RankUpdate
from sweeps.execution.trials import retry
from sweeps.execution.trials.running_trial import RunningTrial
from sweeps.study.events import RankPlace
from sweeps.study.states import TrialState


class VirtualClock(clock.Clock):
    """A clock that a simulation sets.

    Attributes:
        now: Seconds since the start of the simulation.
    """

    EPOCH = 1_700_000_000.0

    def __init__(self) -> None:
        self.now = 0.0

    def time(self) -> float:
        """Return the virtual seconds since the epoch."""
        return self.EPOCH + self.now

    def monotonic(self) -> float:
        """Return the virtual seconds since the start of the simulation."""
        return self.now


@dataclass(frozen=True)
class SimulatedNode:
    """A node of the simulated cluster.

    Attributes:
        resources: Name and amount of each resource.
        joins: When the node joins the cluster, in virtual seconds.
        leaves: When the node dies; None if it stays.
        slowness: Factor by which training on the node takes longer.
    """

    resources: Mapping[str, float]
    joins: float = 0.0
    leaves: float | None = None
    slowness: float = 1.0


@dataclass(frozen=True)
class SimulatedLoop:
    """The training of a trial in a simulated sweep.

    Attributes:
        steps: Number of steps of a trial that nobody stops.
        metrics: Function that returns the metrics of a trial at a step.
        rungs: Steps at which trials wait for a decision.
        seconds: Virtual seconds of a step.
        start_seconds: Virtual seconds in which a new worker starts.
        save_every: Number of steps between two checkpoints. No files are written, so a trial that
            was paused starts again, and PBT copies no checkpoints.
        keeps_last: True if the latest checkpoint is the best one.
    """

    steps: int
    metrics: Callable[[TrialState, int], dict[str, float]]
    rungs: Collection[int] | range = ()
    seconds: float = 1.0
    start_seconds: float = 3.0
    save_every: int = 1
    keeps_last: bool = False


class SimulatedPool:
    """A pool without processes. It also takes the place of a `PoolMonitor`.

    Args:
        nodes: Nodes of the cluster, by id.
        loop: The training of a trial.
        max_failures: Largest number of failed attempts with which a trial is tried again.

    Attributes:
        clock: The virtual clock.
        attempts: Number of attempts that have started.
        handle: Stand-in for the handle of the pool's actor. Pass it to the driver.
        usage, data_error: None; see `PoolMonitor`.
    """

    def __init__(
        self, nodes: Mapping[str, SimulatedNode], loop: SimulatedLoop, max_failures: int = 2
    ) -> None:
        self.clock = VirtualClock()
        self.attempts = 0
        self.handle: Any = _Handle(self)
        self.usage = self.data_error = None
        self._loop = loop
        self._max_failures = max_failures
        self._slowness = {name: node.slowness for name, node in nodes.items()}
        self._nodes: dict[str, Mapping[str, float]] = {}
        self._workers: dict[str, WorkerState] = {}
        self._trials: dict[str, RunningTrial] = {}
        self._ranks: dict[str, tuple[str, ...]] = {}  # ids of the workers of each trial
        self._queue: list[Request] = []
        self._waiting: dict[int, RunningTrial] = {}  # by the id of the request
        self._changed: dict[str, RunningTrial] = {}
        self._count = itertools.count(1)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        for name, node in nodes.items():
            self._at(node.joins, functools.partial(self._join, name, node))
            if node.leaves is not None:
                self._at(node.leaves, functools.partial(self._leave, name))

    def run(self, controller: SweepController, slots: int) -> None:
        """Run a sweep to its end, within `clock.use_clock(self.clock)`.

        Args:
            controller: The controller of the sweep.
            slots: Largest number of trials that run at the same time.
        """
        controller.finish_leftover_trials()
        polled, starts = 0.0, True
        while True:
            while starts and len(self._trials) < slots:
                try:
                    if controller.start_trial() is None:
                        break
                except StopIteration:
                    starts = False
            if not self._events:
                break
            self.clock.now, _, happen = heapq.heappop(self._events)
            happen()
            changed, self._changed = self._changed, {}
            for running in changed.values():
                if running.is_urgent:
                    controller.on_update(running.next_update())
                    running.parts.mark_recorded()
                    running.parts.drop_unneeded(running.state)
            if self.clock.now - polled > STATUS_INTERVAL:
                polled = self.clock.now
                controller.poll()
        controller.close()

    # Calls of the driver

    def start(self, state: TrialState, folder: str, row_steps: tuple[int, ...] = ()) -> None:
        """Start or continue a trial; see `PoolHandle`."""
        running = RunningTrial(state, folder, row_steps, keeps_last=self._loop.keeps_last)
        self._trials[state.id] = running
        self._request(running)

    def answer(self, trial: str, step: int, continues: bool) -> None:
        """Let a trial continue that waits at a rung; see `PoolHandle`."""
        running = self._trials.get(trial)
        if running is not None and running.leave_rung(step) and continues:
            self._train(running)

    def renew(self, step: int, recorded: TrialState) -> None:
        """Continue a trial with other parameters, in another attempt; see `PoolHandle`."""
        running = self._trials.get(recorded.id)
        if running is not None and running.leave_rung(step):
            running.renew(recorded)
            self._free(running)
            self._request(running)

    def forget(self, trial: str) -> None:
        """Forget a trial whose end the driver has recorded; see `PoolHandle`."""
        running = self._trials.pop(trial, None)
        if running is not None:
            running.stopped = True
            self._free(running)

    def stop(self, trial: str) -> None:
        """End a trial at once; see `PoolHandle`."""
        if (running := self._trials.get(trial)) is not None:
            self._finish(running, Ended(0, State.PRUNED))

    def interrupt(self, state: State) -> None:
        """End all trials at once; see `PoolHandle`."""
        for running in list(self._trials.values()):
            self._finish(running, Ended(0, state))

    # In place of a `PoolMonitor`

    def prefit_error(self) -> None:
        """Return None: there are no preprocessing chains."""

    def pool_was_restarted(self) -> bool:
        """Return False: the pool never dies."""
        return False

    def update_usage(self) -> None:
        """Do nothing."""

    def set_all_started(self, all_started: bool) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""

    # Nodes and workers

    def _at(self, when: float, happen: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._count), happen))

    def _join(self, name: str, node: SimulatedNode) -> None:
        self._nodes[name] = node.resources
        self._serve()

    def _leave(self, name: str) -> None:
        """Lose a node, with all its workers. Their trials are tried again."""
        del self._nodes[name]
        gone = {worker.id for worker in self._workers.values() if worker.node == name}
        self._workers = {n: worker for n, worker in self._workers.items() if n not in gone}
        for running in list(self._trials.values()):
            if not gone.isdisjoint(self._ranks.get(running.trial.id, ())):
                self._free(running)
                self._after(running, WorkerLost(f"node {name} was lost", blameless=True))
        self._serve()

    def _after(self, running: RunningTrial, outcome: Ended | WorkerLost) -> None:
        """Try a trial again after an attempt, or end it."""
        following = retry.decide_after_attempt(
            outcome, running.state.failures, self._max_failures, (LOST,)
        )
        if isinstance(following, retry.Retry):
            running.retry(following.reason, following.counts, after_exception=False)
            self._request(running)
        else:
            self._finish(running, following)

    def _request(self, running: RunningTrial) -> None:
        shape = running.trial.shape
        number = next(self._count)
        request = Request(number, shape.total, shape, is_retry=running.state.failures.any)
        waits = any(other.kind == request.kind for other in self._queue)
        self._queue.insert(allocation.queue_position(self._queue, request), request)
        self._waiting[number] = running
        if not waits:  # Otherwise, there is no room for this shape.
            self._serve()

    def _serve(self) -> None:
        while self._queue:
            cluster = Cluster(self._nodes, list(self._workers.values()))
            match allocation.decide(cluster, self._queue):
                case placement.Place(request, ids, start):
                    self._queue = allocation.queue_after(self._queue, request)
                    running = self._waiting.pop(request.id)
                    new = [self._new_worker(running, node) for node in start]
                    self._begin(running, (*ids, *new), bool(new))
                case allocation.CloseWorker(worker):
                    del self._workers[worker]
                case _:
                    return

    def _new_worker(self, running: RunningTrial, node: str) -> str:
        name = f"w{next(self._count)}"
        per_worker = running.trial.shape.per_worker
        self._workers[name] = WorkerState(name, node, per_worker, Phase.BUSY)
        return name

    def _begin(self, running: RunningTrial, ids: Sequence[str], waits: bool) -> None:
        """Start an attempt on these workers. It begins later if some of them must start first."""
        for name in ids:
            worker = self._workers[name]
            self._workers[name] = replace(worker, phase=Phase.BUSY, used=next(self._count))
        self.attempts += 1
        self._ranks[running.trial.id] = tuple(ids)
        running.begin_attempt([RankPlace(self._workers[name].node) for name in ids])
        running.began = self.clock.now
        self._train(running, self._loop.start_seconds if waits else 0.0)

    def _free(self, running: RunningTrial) -> None:
        """Take the workers from a trial, or its request from the queue."""
        number = next((n for n, waiting in self._waiting.items() if waiting is running), None)
        if number is not None:
            del self._waiting[number]
            self._queue = [request for request in self._queue if request.id != number]
        if (ids := self._ranks.pop(running.trial.id, None)) is None:
            return
        running.end_attempt()
        for name in ids:
            if name in self._workers:  # Its node may be gone.
                self._workers[name] = replace(self._workers[name], phase=Phase.IDLE)
        self._serve()

    # Training

    def _train(self, running: RunningTrial, delay: float = 0.0) -> None:
        """Let a trial make its next step."""
        ids = self._ranks[running.trial.id]
        slowest = max(self._slowness[self._workers[name].node] for name in ids)
        attempt = running.state.attempt
        last = self._last_step(running)
        when = self.clock.now + delay + self._loop.seconds * slowest
        self._at(when, functools.partial(self._step, running, attempt, last + 1))

    def _last_step(self, running: RunningTrial) -> int:
        """Return the step after which the attempt goes on."""
        reached = running.parts.latest_step
        saved = running.state.checkpoint
        return reached or (saved.step if saved else 0)

    def _step(self, running: RunningTrial, attempt: int, step: int) -> None:
        if running.ended or running.stopped or attempt != running.state.attempt:
            return
        ended = Ended(0, State.COMPLETE) if step >= self._loop.steps else None
        saved: tuple[Checkpoint, ...] = ()
        if step % self._loop.save_every == 0:
            saved = (Checkpoint(f"checkpoint_{step:06d}", step, step),)
        report = Report(step, self._loop.metrics(running.state, step), self.clock.time())
        for rank in range(running.parts.ranks):
            reports = (report,) if rank == 0 else ()
            running.record(attempt, RankUpdate(rank, step, reports, saved), ended)
        self._changed[running.trial.id] = running
        if ended is not None:
            self._finish(running, ended)
        elif step in self._loop.rungs:
            running.rung = step
        else:
            self._train(running)

    def _finish(self, running: RunningTrial, ended: Ended) -> None:
        running.finish(ended)
        self._changed[running.trial.id] = running


class _Handle:
    """Stand-in for the handle of the pool's actor: `handle.METHOD.remote(...)`."""

    def __init__(self, pool: SimulatedPool) -> None:
        self._pool = pool

    def __getattr__(self, name: str) -> Any:
        return _SimulatedMethod(getattr(self._pool, name))


class _SimulatedMethod:
    def __init__(self, call: Callable[..., Any]) -> None:
        self.remote = call


def nodes_of(
    count: int, resources: Mapping[str, float], others: Iterable[SimulatedNode] = ()
) -> dict[str, SimulatedNode]:
    """Return equal nodes, and others after them."""
    nodes = [*[SimulatedNode(resources)] * count, *others]
    return {f"n{number:03d}": node for number, node in enumerate(nodes)}
