"""Delete checkpoints that a sweep does not need to keep.

`retention` decides which checkpoints these are.
"""

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from sweeps.core.files.checkpoint_files import (
    checkpoint_root_in,
    checkpoint_sizes,
    delete_checkpoint,
    sizes_of_files,
)
from sweeps.core.files.stores import open_store, store_of
from sweeps.core.files.sweep_folder import SweepFolder
from sweeps.core.trial import format_trial_id
from sweeps.space.sections.search_models import Checkpoints
from sweeps.study.repeats import Configurations
from sweeps.study.states import TrialState
from sweeps.study.study_store import StudyStore

from .retention import TrialCheckpoints, rank_trials, select_deletable

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CleanupResult:
    """Number and size of the checkpoints that were deleted, or that a dry run would have deleted.

    Attributes:
        checkpoints: Number of deleted checkpoints.
        trials: Number of trials that lost at least one checkpoint.
        bytes: Total size of the deleted checkpoints in bytes.
        left: Total size of the remaining checkpoints in bytes.
    """

    checkpoints: int = 0
    trials: int = 0
    bytes: int = 0
    left: int = 0


class CheckpointCleaner:
    """Delete the checkpoints that a retention policy does not keep, each time a trial ends.

    Checkpoints are deleted in a separate thread, because a slow disk takes seconds to delete a
    large checkpoint.

    Args:
        study_store: The study. The cleaner reads it only when it is created.
        policy: Rule that says which checkpoints are kept.

    Attributes:
        freed: Number and size of the checkpoints that were deleted so far.
        store: Address of the sweep's store; None if the checkpoints are on disk.
        before_delete: Function that is called before checkpoints are deleted. It saves the study in
            the store, so that the study in the store names no deleted checkpoint.
    """

    def __init__(self, study_store: StudyStore, policy: Checkpoints):
        self.trials_folder = SweepFolder(study_store.folder).trials
        self.policy = policy
        self.repeats = study_store.space.repeats
        self.goals = study_store.objectives.goals
        self.choice = study_store.choice
        self.store = store_of(study_store.folder)
        self.before_delete: Callable[[], None] = lambda: None
        self.freed = CleanupResult()
        self._ended = {n: state for n, state in study_store.states.items() if state.has_ended}
        # Sizes of the checkpoints in bytes, by trial and name. The folder of an ended trial is read
        # only once.
        self._sizes: dict[int, dict[str, int]] = {}
        # Sizes of the deleted checkpoints in bytes, by trial and name
        self._deleted: dict[tuple[int, str], int] = {}
        self._thread = ThreadPoolExecutor(1, "checkpoints")

    def trial_ended(self, trial: TrialState) -> None:
        """Start to delete the checkpoints that are unnecessary now that a trial has ended.

        Call this method after the study has recorded the end of the trial. The method does not wait
        for the deletion.
        """
        self._thread.submit(self._clean, trial)

    def close(self) -> None:
        """Read all trial folders again, and wait until unnecessary checkpoints are deleted."""
        self._thread.submit(self._clean, None)
        self._thread.shutdown()

    def _clean(self, trial: TrialState | None) -> None:
        """Delete checkpoints in the cleaner's thread, after a trial has ended; None at the end."""
        try:
            if trial is None:
                self._sizes.clear()
            else:
                self._ended[trial.number] = trial
                self._sizes.pop(trial.number, None)
            self.freed = self.clean()
        except Exception:
            log.exception("checkpoints could not be deleted")

    def clean(self, dry_run: bool = False) -> CleanupResult:
        """Delete the checkpoints that are unnecessary now.

        Args:
            dry_run: True to delete nothing, and only compute the result.

        Returns:
            Number and size of the checkpoints that were deleted so far. With `dry_run`, these are
            the checkpoints that would be deleted.
        """
        self._measure()
        ended = [(n, state.trial.repeat_of, state.result) for n, state in self._ended.items()]
        ranking = rank_trials(Configurations.of(ended, self.repeats, self.choice), self.goals)
        trials = [
            self._checkpoints_of(number, number in ranking.finished)
            for number, sizes in self._sizes.items()
            if sizes
        ]
        deletable = select_deletable(trials, ranking.ranked, ranking.protected, self.policy)
        if deletable and not dry_run:
            self.before_delete()
        for number, name in deletable:
            if not dry_run and not delete_checkpoint(f"{self._root_of(number)}/{name}"):
                log.warning("checkpoint %s of trial %04d could not be deleted", name, number)
                continue
            self._deleted[number, name] = self._sizes[number].pop(name)
        return CleanupResult(
            checkpoints=len(self._deleted),
            trials=len({number for number, _ in self._deleted}),
            bytes=sum(self._deleted.values()),
            left=sum(sum(sizes.values()) for sizes in self._sizes.values()),
        )

    def _root_of(self, number: int) -> str:
        return checkpoint_root_in(self.store, self.trials_folder / format_trial_id(number))

    def _measure(self) -> None:
        """Read checkpoint sizes that are unknown, or may have changed because the trial runs."""
        if self.store is not None and not self._sizes:
            # One listing of the whole store is faster than one for each trial.
            files: dict[int, dict[str, int]] = {}
            for path, size in open_store(f"{self.store}/trials").files().items():
                trial, _, name = path.partition("/")
                if trial.isdigit():
                    files.setdefault(int(trial), {})[name] = size
            self._sizes = {number: sizes_of_files(own) for number, own in files.items()}
            return
        folders = [folder.name for folder in self.trials_folder.glob("[0-9]*")]
        numbers = self._sizes.keys() | {int(name) for name in folders if name.isdigit()}
        if self.store is not None:
            # A trial may have checkpoints in the store, but no folder on this disk.
            numbers |= self._ended.keys()
        for number in numbers:
            if number not in self._ended or number not in self._sizes:
                self._sizes[number] = checkpoint_sizes(self._root_of(number))

    def _checkpoints_of(self, number: int, finished: bool) -> TrialCheckpoints:
        state = self._ended.get(number)
        best = state.best.name if state and state.best else None
        latest = state.checkpoint.name if state and state.checkpoint else None
        return TrialCheckpoints(number, finished, self._sizes[number], best, latest)
