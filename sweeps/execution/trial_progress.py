"""The book of one trial: what its ranks told, what its runner has heard, which checkpoints count. No Ray, no waiting.

News may come twice and may overtake each other: Ray does not keep the order of calls to an asyncio actor, and a rank tells everything
again until it knows that it arrived. So news always reach back to the last that was acknowledged, and the book takes each thing once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from sweeps.core.checkpoint_files import newest_checkpoints
from sweeps.core.trial import Checkpoint, Report, State
from sweeps.execution.messages import News, Past, Progress

# The step of a rank that has ended: whatever it had to persist, it has.
ENDED = 10**12


@dataclass
class TrialProgress:
    """What is known of a trial over all its attempts.

    Attributes:
        workers: ranks of its gang.
        metric: the one that leads; None if none does, and then the newest checkpoint is the best.
        minimize: whether smaller is better.
        keep_latest: checkpoints that are kept beside the best one, at least 1.
        checkpoint: the newest that every rank has done its part of; a retry goes on from it.
        best: the one that holds the best model.
        rung: the step at which rank 0 waits for a verdict that the driver has not given.
        state, error, refused, final: how it ended; None or {} while it runs.
    """

    workers: int
    metric: str | None
    minimize: bool
    keep_latest: int = 1
    attempt: int = 0
    checkpoint: Checkpoint | None = None
    best: Checkpoint | None = None
    rung: int | None = None
    state: State | None = None
    error: str | None = None
    refused: tuple[str, str] | None = None
    final: dict[str, float] = field(default_factory=dict)
    _stored: dict[str, None] = field(default_factory=dict)  # paths of whole checkpoints on disk, the newest last
    _named: set[str] = field(default_factory=set)  # those that the record may name
    _told: set[str] = field(default_factory=set)  # those that it names once it has what was heard last
    _seen: int = 0
    _values: dict[int, float] = field(default_factory=dict)
    _steps: dict[int, int] = field(default_factory=dict)
    _failed: dict[int, int] = field(default_factory=dict)  # how far the ranks came that have raised
    _parts: dict[int, dict[int, Checkpoint]] = field(default_factory=dict)
    _unheard: list[Report] = field(default_factory=list)
    _fresh: bool = False
    _heard_rung: int | None = None
    _last: Progress = field(default_factory=Progress)
    _recalled: bool = False  # the record names fewer checkpoints than an earlier driver may have left

    def recall(self, past: Past) -> None:
        """Take up a trial that is on record: its reports are known, and it goes on from its checkpoint."""
        self.attempt, self.checkpoint, self.best = past.attempts, past.checkpoint, past.best
        self._stored = {c.path: None for c in (self.best, self.checkpoint) if c}
        self._named, self._told = set(self._stored), set(self._stored)
        self._recalled = True
        self._values = dict(past.curve)
        self._seen = max(self._values, default=0)

    def begin(self) -> int:
        """A new attempt; its number. What an earlier one had half done does not count."""
        self.attempt += 1
        self._steps, self._failed, self._parts = {}, {}, {}
        return self.attempt

    def take_stock(self, there: Iterable[str]) -> list[str]:
        """Return the checkpoints to delete before another attempt: those not needed, and those that the last attempt left unfinished.

        A trial that goes on from its record takes up the latest whole checkpoints that an earlier driver left.

        Args:
            there: paths of all checkpoints in the trial's folder.
        """
        paths = {Path(path).name: path for path in there}
        if self._recalled and self.checkpoint is not None:
            latest = [paths[name] for name in reversed(newest_checkpoints(paths, Path(self.checkpoint.path).name, self.keep_latest))]
            self._stored = dict.fromkeys([*(path for path in self._stored if path not in latest), *latest])
            self._recalled = False
        return [path for path in paths.values() if path not in self.kept]

    def take(self, attempt: int, news: News, ended: bool = False, failed: bool = False) -> bool:
        """Record a rank's news; False if they are of an attempt or a trial that is over.

        Args:
            attempt: that the news are of.
            news: what the rank tells.
            ended: the loop has ended on this rank.
            failed: the loop ended by an exception: this rank has no part in later checkpoints, and another attempt may go on from one.
        """
        if self.state is not None or attempt != self.attempt:
            return False
        for report in news.reports:
            if report.step > self._seen:
                self._seen = report.step
                self._values[report.step] = float("nan") if self.metric is None else report.metrics[self.metric]
                self._unheard.append(report)
        for part in news.checkpoints:
            if self.checkpoint is None or part.step > self.checkpoint.step:
                self._parts.setdefault(part.step, {})[news.rank] = part
        self._steps[news.rank] = max(self._steps.get(news.rank, 0), ENDED if ended else news.step)
        if failed:
            self._failed[news.rank] = news.step
        done = self._steps | self._failed
        whole = [step for step in self._parts if all(done.get(rank, 0) >= step for rank in range(self.workers))]
        for step in sorted(whole):
            parts = self._parts.pop(step)
            self._keep(parts[min(parts)])
        return True

    def behind(self) -> dict[int, int]:
        """The ranks that the newest checkpoint waits for, with its step."""
        step = max(self._parts, default=0)
        return {rank: step for rank in range(self.workers) if self._steps.get(rank, 0) < step}

    def _keep(self, new: Checkpoint) -> None:
        """Make `new` the trial's checkpoint."""
        if self.best is None or self._badness(new) <= self._badness(self.best):
            self.best = new
        self.checkpoint, self._fresh = new, True
        self._stored.pop(new.path, None)  # a loop that began anew writes a step once more
        self._stored[new.path] = None

    @property
    def kept(self) -> set[str]:
        """The checkpoints that a retry, the export or a driver that takes up the sweep from its record may need, and the latest."""
        latest = list(self._stored)[-self.keep_latest :]
        return self._named | {c.path for c in (self.checkpoint, self.best) if c} | set(latest)

    def drop(self) -> list[str]:
        """The checkpoints that nobody needs any more, each named once."""
        gone = [path for path in self._stored if path not in self.kept]
        for path in gone:
            del self._stored[path]
        return gone

    def _badness(self, checkpoint: Checkpoint) -> float:
        """Smaller is better; a value that is not known, or NaN, is the worst."""
        value = self._values.get(checkpoint.best_step, float("nan"))
        if value != value:
            return float("inf")
        return value if self.minimize else -value

    def together_at(self, step: int) -> bool:
        """Whether every rank has come to a step, with its part of a checkpoint there."""
        return all(self.has_come(rank, step) for rank in range(self.workers))

    def has_come(self, rank: int, step: int) -> bool:
        """Whether a rank has come to a step in this attempt."""
        return self._steps.get(rank, 0) >= step

    def has_ended(self, rank: int) -> bool:
        """Whether a rank has come to the end of this attempt."""
        return self._steps.get(rank, 0) == ENDED

    def waits_at(self, step: int) -> None:
        """Rank 0 has come to a rung that is not decided yet."""
        self.rung = step

    def answered(self, step: int) -> bool:
        """The driver has decided the rung; False if nobody waits there."""
        if self.rung != step:
            return False
        self.rung = self._heard_rung = None
        return True

    def finish(
        self, state: State, error: str | None = None, refused: tuple[str, str] | None = None, final: dict[str, float] | None = None
    ) -> None:
        """The trial is over; the first end that is booked counts."""
        if self.state is None:
            self.state, self.error, self.refused, self.final = state, error, refused, final or {}

    # ---- the runner's side

    @property
    def urgent(self) -> bool:
        """Whether the runner should hear at once: the end, a rung, a checkpoint."""
        return self.state is not None or self.rung != self._heard_rung or self._fresh

    @property
    def unheard(self) -> bool:
        """Whether there are reports that the runner has not heard of."""
        return bool(self._unheard)

    def hear(self, seconds: float) -> Progress:
        """What the runner has not heard yet; heard with this call."""
        self._last = Progress(
            reports=tuple(self._unheard),
            checkpoint=self.checkpoint if self._fresh else None,
            best=self.best,
            rung=self.rung if self.rung != self._heard_rung else None,
            state=self.state,
            error=self.error,
            refused=self.refused,
            final=self.final,
            attempts=self.attempt,
            seconds=seconds,
        )
        self._unheard, self._fresh, self._heard_rung = [], False, self.rung
        self._told = {c.path for c in (self.checkpoint, self.best) if c}
        self._named |= self._told
        return self._last

    def on_record(self) -> None:
        """What was heard last is on record now, and what that replaced is not named there any more."""
        self._named &= self._told

    def repeat(self) -> None:
        """A new runner has taken over: what the last one heard last may not have reached the driver."""
        self._told = set(self._named)
        self._unheard = [*self._last.reports, *self._unheard]
        self._fresh = self._fresh or self._last.checkpoint is not None
        self._heard_rung = None
