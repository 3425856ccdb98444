"""Progress of one trial: the reports that rank 0 sent, and the complete checkpoints.

The progress also says which reports the driver has received. The module is pure: it does not use
Ray and never waits.

Messages from ranks may arrive twice or out of order. Ray does not preserve the order of calls to an
asyncio actor, and a rank resends each report and checkpoint until the pool acknowledges it.
`TrialProgress` records each report and each checkpoint once.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from sweeps.core.best_step import UNKNOWN, StepOrder
from sweeps.core.checkpoint_files import newest_checkpoints
from sweeps.core.trial import Checkpoint, GangSizePeriod, Report, State
from sweeps.execution.messages import Progress, RankUpdate
from sweeps.study.states import TrialState

# Step that is recorded for a rank that has ended. It is above every real step, so no checkpoint
# waits for the rank.
ENDED = 10**12


@dataclass
class TrialProgress:
    """Progress of a trial over all its attempts.

    Attributes:
        workers: Number of ranks in the current attempt.
        order: Order of the steps, by which the best checkpoint is chosen. Without a metric, the
            latest checkpoint is the best.
        keep_latest: Number of latest checkpoints that are kept in addition to the best checkpoint,
            at least 1.
        attempt: Number of the current attempt; 0 before the first attempt.
        checkpoint: Latest complete checkpoint, to which every rank has contributed its part. The
            next attempt continues from it.
        best: Checkpoint with the best model; None without checkpoints.
        rung: Step at which rank 0 waits for the driver's decision; None if rank 0 does not wait.
        state: State after the end of the trial; None while the trial runs.
        error: Error text of a failed trial, such as a traceback; else None.
        refused: Key of the wrong value and description of the problem, if a value in the space file
            made the trial fail; else None.
        final: Metrics of the finished model; empty while the trial runs.
        sizes: Each number of workers that an elastic trial has had, with the step at which it
            began; empty for other trials.
    """

    workers: int
    order: StepOrder
    keep_latest: int = 1
    attempt: int = 0
    checkpoint: Checkpoint | None = None
    best: Checkpoint | None = None
    rung: int | None = None
    state: State | None = None
    error: str | None = None
    refused: tuple[str, str] | None = None
    final: dict[str, float] = field(default_factory=dict)
    sizes: tuple[GangSizePeriod, ...] = ()
    _stored: dict[str, None] = field(
        default_factory=dict
    )  # Names of the complete checkpoints that exist. The latest checkpoint is last.
    _named: set[str] = field(
        default_factory=set
    )  # Names of the checkpoints that the driver's record may name.
    _named_next: set[str] = field(
        default_factory=set
    )  # Names that the record has after the driver stores the last progress.
    _latest_step: int = 0
    _keys: dict[int, tuple[int, float]] = field(default_factory=dict)
    _metrics: Mapping[str, float] = field(default_factory=dict)  # the latest value of each metric
    _steps: dict[int, int] = field(default_factory=dict)
    _failed: dict[int, int] = field(
        default_factory=dict
    )  # Latest step of each rank that has raised an exception.
    _parts: dict[int, dict[int, Checkpoint]] = field(default_factory=dict)
    _undelivered: list[Report] = field(default_factory=list)
    _fresh: bool = False
    _delivered_rung: int | None = None
    _restored: bool = False  # The folder may have more checkpoints than the record names.

    def restore(self, recorded: TrialState) -> None:
        """Restore what the study knows of a trial, which then continues from its checkpoint."""
        # The driver may have died before it heard of the first attempt.
        self.attempt = max(1, recorded.attempt)
        self.checkpoint, self.best = recorded.checkpoint, recorded.best
        self._stored = {c.name: None for c in (self.best, self.checkpoint) if c}
        self._named, self._named_next = set(self._stored), set(self._stored)
        self._restored = True
        for report in recorded.reports:
            self._add_key(report)
        self.sizes = recorded.sizes or self.sizes
        self._latest_step = max(self._keys, default=0)

    def begin(self, workers: int | None = None) -> int:
        """Start a new attempt and return its number.

        Incomplete checkpoints of earlier attempts are discarded.

        Args:
            workers: Number of ranks of an elastic trial in this attempt; None for other trials.
        """
        self.attempt += 1
        if workers is not None:
            self.workers = workers
            if not self.sizes or self.sizes[-1].workers != workers:
                step = self.checkpoint.step if self.checkpoint is not None else 0
                self.sizes += (GangSizePeriod(step, workers, self._latest_step, time.time()),)
        self._steps, self._failed, self._parts = {}, {}, {}
        return self.attempt

    def checkpoints_to_delete(self, existing: Collection[str]) -> list[str]:
        """Return the names of the checkpoints to delete before another attempt.

        These checkpoints are incomplete or no longer needed. After `restore`, the first call also
        finds the latest complete checkpoints among `existing`, and keeps them. This is necessary
        because the driver's record names only the latest one and the best one.

        Args:
            existing: Names of all checkpoints in the trial's folder.
        """
        if self._restored and self.checkpoint is not None:
            newest = newest_checkpoints(existing, self.checkpoint.name, self.keep_latest)
            older = [name for name in self._stored if name not in newest]
            self._stored = dict.fromkeys([*older, *reversed(newest)])
            self._restored = False
        return [name for name in existing if name not in self.kept]

    def record_update(
        self, attempt: int, update: RankUpdate, ended: bool = False, failed: bool = False
    ) -> bool:
        """Record a message of a rank.

        Args:
            attempt: Number of the attempt in which the rank sent the message.
            update: The message.
            ended: Whether the loop has ended on this rank.
            failed: Whether the loop ended with an exception. Checkpoints at later steps then stay
                incomplete.

        Returns:
            False if the message was ignored, because the trial has ended or another attempt has
            started.
        """
        if self.state is not None or attempt != self.attempt:
            return False
        for report in update.reports:
            if report.step > self._latest_step:
                self._latest_step = report.step
                self._add_key(report)
                self._undelivered.append(report)
        for part in update.checkpoints:
            if self.checkpoint is None or part.step > self.checkpoint.step:
                self._parts.setdefault(part.step, {})[update.rank] = part
        self._steps[update.rank] = max(
            self._steps.get(update.rank, 0), ENDED if ended else update.step
        )
        if failed:
            self._failed[update.rank] = update.step
        done = self._steps | self._failed
        whole = [
            step
            for step in self._parts
            if all(done.get(rank, 0) >= step for rank in range(self.workers))
        ]
        for step in sorted(whole):
            parts = self._parts.pop(step)
            self._keep(parts[min(parts)])
        return True

    def _add_key(self, report: Report) -> None:
        # A metric that is missing keeps its latest value, as in `Objectives.step_metrics`.
        self._metrics = {**self._metrics, **report.metrics}
        self._keys[report.step] = self.order.key(self._metrics)

    def _keep(self, new: Checkpoint) -> None:
        """Make `new` the trial's latest checkpoint.

        If no earlier checkpoint is better, also make `new` the best checkpoint.
        """
        if self.best is None or self._key(new) <= self._key(self.best):
            self.best = new
        self.checkpoint, self._fresh = new, True
        # A loop that started from scratch writes the same step again.
        self._stored.pop(new.name, None)
        self._stored[new.name] = None

    @property
    def kept(self) -> set[str]:
        """Names of the checkpoints to keep.

        They are the latest ones, the best one, and any that the driver's record may still name.
        """
        latest = list(self._stored)[-self.keep_latest :]
        return self._named | {c.name for c in (self.checkpoint, self.best) if c} | set(latest)

    def drop(self) -> list[str]:
        """Return the names of the checkpoints that exist and are no longer needed.

        The caller must delete them; the next call omits them.
        """
        gone = [name for name in self._stored if name not in self.kept]
        for name in gone:
            del self._stored[name]
        return gone

    def _key(self, checkpoint: Checkpoint) -> tuple[int, float]:
        """Return a key by which checkpoints are compared: the smaller, the better."""
        return self._keys.get(checkpoint.best_step, UNKNOWN)

    def all_have_reached(self, step: int) -> bool:
        """Return whether every rank has reported this step in this attempt, or has ended."""
        return all(self.has_reached(rank, step) for rank in range(self.workers))

    def has_reached(self, rank: int, step: int) -> bool:
        """Return whether a rank has reported this step in this attempt, or has ended."""
        return self._steps.get(rank, 0) >= step

    def has_ended(self, rank: int) -> bool:
        """Return whether the loop has ended on this rank in this attempt."""
        return self._steps.get(rank, 0) == ENDED

    def wait_at(self, step: int) -> None:
        """Record that rank 0 waits for the driver's decision at this step."""
        self.rung = step

    def answered(self, step: int) -> bool:
        """Record that the driver has decided at this rung, and return True.

        Do nothing and return False if rank 0 does not wait there.
        """
        if self.rung != step:
            return False
        self.rung = self._delivered_rung = None
        return True

    def finish(
        self,
        state: State,
        error: str | None = None,
        refused: tuple[str, str] | None = None,
        final: dict[str, float] | None = None,
    ) -> None:
        """Record the end of the trial. Later calls have no effect."""
        if self.state is None:
            self.state, self.error, self.refused, self.final = state, error, refused, final or {}

    # ---- messages to the driver

    @property
    def urgent(self) -> bool:
        """True if the driver must get the progress at once.

        The reason: the trial has ended, waits at a rung, or has a new checkpoint.
        """
        return self.state is not None or self.rung != self._delivered_rung or self._fresh

    @property
    def has_undelivered(self) -> bool:
        """True if there are reports that the driver has not received."""
        return bool(self._undelivered)

    def next_progress(self, seconds: float, worker_seconds: float = 0.0) -> Progress:
        """Return the reports since the last call and the state of the trial.

        Mark these reports as received by the driver.

        Args:
            seconds: Seconds that all attempts of the trial have spent on workers so far.
            worker_seconds: Sum of these seconds over all workers.
        """
        progress = Progress(
            reports=tuple(self._undelivered),
            checkpoint=self.checkpoint if self._fresh else None,
            best=self.best,
            rung=self.rung if self.rung != self._delivered_rung else None,
            state=self.state,
            error=self.error,
            refused=self.refused,
            final=self.final,
            attempts=self.attempt,
            seconds=seconds,
            worker_seconds=worker_seconds,
            sizes=self.sizes,
        )
        self._undelivered, self._fresh, self._delivered_rung = [], False, self.rung
        self._named_next = {c.name for c in (self.checkpoint, self.best) if c}
        self._named |= self._named_next
        return progress

    def mark_recorded(self) -> None:
        """Record that the driver has stored the progress of the last call of `next_progress`.

        A checkpoint that the driver had recorded before, and that this progress replaced, may now
        be deleted.
        """
        self._named &= self._named_next
