"""The parts of checkpoints that the ranks of a trial have written.

The module is pure: it does not use Ray and never waits.

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
    # Names of the complete checkpoints that exist, the latest last. The dict is an ordered set.
    _stored: dict[str, None] = field(default_factory=dict)
    # Names of the checkpoints that the driver's record may have now
    _recorded: set[str] = field(default_factory=set)
    # Names that the record has when the driver has stored what was last sent
    _recorded_next: set[str] = field(default_factory=set)
    # Latest step of each rank, or `ENDED`
    _steps: dict[int, int] = field(default_factory=dict)
    # Latest step of each rank that has raised an exception
    _failed: dict[int, int] = field(default_factory=dict)
    # Parts of the incomplete checkpoints, by step and rank
    _parts: dict[int, dict[int, Checkpoint]] = field(default_factory=dict)
    # True if the trial's folder may have more checkpoints than the record names
    _restored: bool = False

    def restore(self, recorded: TrialState) -> None:
        """Take over the checkpoints of a trial that continues."""
        self._stored = dict.fromkeys(_names_in(recorded))
        self._recorded = set(self._stored)
        self._recorded_next = set(self._stored)
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
        # A rank that has failed writes no parts after its latest step.
        last_steps = self._steps | self._failed
        complete_up_to = min(last_steps.get(rank, 0) for rank in range(self.ranks))
        complete = []
        for step in sorted(self._parts):
            if step <= complete_up_to:
                parts = self._parts.pop(step)
                complete.append(parts[min(parts)])
        for checkpoint in complete:
            # A loop that started from scratch writes the same step again.
            self._stored.pop(checkpoint.name, None)
            self._stored[checkpoint.name] = None
        return complete

    def names_to_delete(self, state: TrialState, existing: Collection[str]) -> list[str]:
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
        needed = self.names_to_keep(state)
        return [name for name in existing if name not in needed]

    def names_to_keep(self, state: TrialState) -> set[str]:
        """Return the names of the checkpoints to keep.

        They are the latest ones, the best one, and any that the driver's record may still name.
        """
        latest = list(self._stored)[-self.keep_latest :]
        return {*self._recorded, *_names_in(state), *latest}

    def drop_unneeded(self, state: TrialState) -> list[str]:
        """Forget the checkpoints that are no longer needed, and return their names.

        The caller must delete them.
        """
        needed = self.names_to_keep(state)
        unneeded = [name for name in self._stored if name not in needed]
        for name in unneeded:
            del self._stored[name]
        return unneeded

    def mark_sent(self, state: TrialState) -> None:
        """Record that the driver gets the state of the trial now."""
        self._recorded_next = set(_names_in(state))
        self._recorded |= self._recorded_next

    def mark_recorded(self) -> None:
        """Record that the driver has stored the state that it last got.

        A checkpoint that the driver had recorded before, and that another one replaced, may now be
        deleted.
        """
        self._recorded &= self._recorded_next

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
