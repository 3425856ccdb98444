"""The parts of checkpoints that the ranks of a trial have written.

The module is pure: it does not use Ray and never waits. Everything else that is known of a trial is
in its `TrialState`.

A checkpoint is complete if every rank has contributed its part. Messages from ranks may arrive
twice or out of order.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from sweeps.core.files.checkpoint_files import newest_checkpoints
from sweeps.core.trial import Checkpoint
from sweeps.execution.messages import RankUpdate
from sweeps.study.states import TrialState

# Step that is recorded for a rank that has ended. It is above every real step, so no checkpoint
# waits for the rank.
ENDED = 10**12


@dataclass
class CheckpointParts:
    """The checkpoints of one trial, and the steps that its ranks have reached in this attempt.

    Attributes:
        ranks: Number of ranks in the current attempt.
        keep_latest: Number of latest checkpoints that are kept in addition to the best checkpoint,
            at least 1.
    """

    ranks: int
    keep_latest: int = 1
    # Names of the complete checkpoints that exist. The latest checkpoint is last.
    _stored: dict[str, None] = field(default_factory=dict)
    # Names of the checkpoints that the driver's record may name, and the names that it has after
    # it stores what was last sent.
    _named: set[str] = field(default_factory=set)
    _named_next: set[str] = field(default_factory=set)
    _steps: dict[int, int] = field(default_factory=dict)
    # Latest step of each rank that has raised an exception.
    _failed: dict[int, int] = field(default_factory=dict)
    _parts: dict[int, dict[int, Checkpoint]] = field(default_factory=dict)
    _restored: bool = False  # The folder may have more checkpoints than the record names.

    def restore(self, recorded: TrialState) -> None:
        """Take over the checkpoints of a trial that continues."""
        self._stored = dict.fromkeys(_names_in(recorded))
        self._named, self._named_next = set(self._stored), set(self._stored)
        self._restored = True

    def begin(self, ranks: int) -> None:
        """Start a new attempt. Incomplete checkpoints of earlier attempts are discarded."""
        self.ranks = ranks
        self._steps = {}
        self._failed = {}
        self._parts = {}

    def add(
        self, update: RankUpdate, after: int, ended: bool = False, failed: bool = False
    ) -> list[Checkpoint]:
        """Record a message of a rank. Return the checkpoints that are complete now.

        Args:
            update: The message.
            after: Step of the latest complete checkpoint; 0 without one. Parts of checkpoints up
                to this step are ignored.
            ended: True if the loop has ended on this rank.
            failed: True if the loop ended with an exception. Checkpoints at later steps then stay
                incomplete.
        """
        for part in update.checkpoints:
            if part.step > after:
                self._parts.setdefault(part.step, {})[update.rank] = part
        step = ENDED if ended else update.step
        self._steps[update.rank] = max(self._steps.get(update.rank, 0), step)
        if failed:
            self._failed[update.rank] = update.step
        done = self._steps | self._failed
        whole = [
            step
            for step in sorted(self._parts)
            if all(done.get(rank, 0) >= step for rank in range(self.ranks))
        ]
        complete = []
        for step in whole:
            parts = self._parts.pop(step)
            complete.append(parts[min(parts)])
        for checkpoint in complete:
            # A loop that started from scratch writes the same step again.
            self._stored.pop(checkpoint.name, None)
            self._stored[checkpoint.name] = None
        return complete

    def to_delete(self, state: TrialState, existing: Collection[str]) -> list[str]:
        """Return the names of the checkpoints to delete before another attempt.

        These checkpoints are incomplete or no longer needed. After `restore`, the first call also
        finds the latest complete checkpoints among `existing`, and keeps them. This is necessary
        because the driver's record names only the latest one and the best one.

        Args:
            state: The trial.
            existing: Names of all checkpoints in the trial's folder.
        """
        if self._restored and state.checkpoint is not None:
            newest = newest_checkpoints(existing, state.checkpoint.name, self.keep_latest)
            older = [name for name in self._stored if name not in newest]
            self._stored = dict.fromkeys([*older, *reversed(newest)])
            self._restored = False
        kept = self.kept(state)
        return [name for name in existing if name not in kept]

    def kept(self, state: TrialState) -> set[str]:
        """Return the names of the checkpoints to keep.

        They are the latest ones, the best one, and any that the driver's record may still name.
        """
        latest = list(self._stored)[-self.keep_latest :]
        return {*self._named, *_names_in(state), *latest}

    def drop(self, state: TrialState) -> list[str]:
        """Return the names of the checkpoints that exist and are no longer needed.

        The caller must delete them; the next call omits them.
        """
        kept = self.kept(state)
        gone = [name for name in self._stored if name not in kept]
        for name in gone:
            del self._stored[name]
        return gone

    def mark_sent(self, state: TrialState) -> None:
        """Record that the driver gets the state of the trial now."""
        self._named_next = set(_names_in(state))
        self._named |= self._named_next

    def mark_recorded(self) -> None:
        """Record that the driver has stored the state that it last got.

        A checkpoint that the driver had recorded before, and that another one replaced, may now be
        deleted.
        """
        self._named &= self._named_next

    @property
    def latest_step(self) -> int:
        """The latest step of rank 0 in this attempt; 0 before its first report."""
        return self._steps.get(0, 0)

    def has_reached(self, rank: int, step: int) -> bool:
        """Return whether a rank has reported this step in this attempt, or has ended."""
        return self._steps.get(rank, 0) >= step

    def all_have_reached(self, step: int) -> bool:
        """Return whether every rank has reported this step in this attempt, or has ended."""
        return all(self.has_reached(rank, step) for rank in range(self.ranks))

    def has_ended(self, rank: int) -> bool:
        """Return whether the loop has ended on this rank in this attempt."""
        return self._steps.get(rank, 0) == ENDED


def _names_in(state: TrialState) -> Iterable[str]:
    """Return the names of the best and the latest checkpoint of a trial, the latest one last."""
    return (saved.name for saved in (state.best, state.checkpoint) if saved is not None)
