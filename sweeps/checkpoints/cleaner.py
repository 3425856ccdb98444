"""Delete checkpoints that a sweep does not need to keep.

`retention` decides which checkpoints these are.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from sweeps.checkpoints.retention import (
    RetentionPolicy,
    TrialCheckpoints,
    rank_trials,
    select_deletable,
)
from sweeps.core.checkpoint_files import (
    checkpoint_sizes,
    delete_checkpoint,
    root_in,
    sizes_of_files,
)
from sweeps.core.stores import open_store, store_of
from sweeps.core.sweep_folder import SweepFolder
from sweeps.core.trial import Result, format_trial_id
from sweeps.space.section_models import Repeats
from sweeps.study.repeats import Configurations
from sweeps.study.study_store import StudyStore

log = logging.getLogger(__name__)

# An ended trial: (number, number of the trial that it repeats or None, result, name of its latest
# checkpoint or None)
EndedTrial = tuple[int, int | None, Result, str | None]


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
        folder: Folder of the sweep.
        policy: Rule that says which checkpoints are kept.
        repeats: How many trials each configuration has, and how their values are aggregated.
        goals: One boolean for each objective: True if smaller values are better.
        ended: Trials that ended before this driver started.

    Attributes:
        freed: Number and size of the checkpoints that were deleted so far.
        store: Address of the sweep's store; None if the checkpoints are on disk.
        before_delete: Function that is called before checkpoints are deleted. It saves the study in
            the store, so that the study in the store names no deleted checkpoint.
    """

    def __init__(
        self,
        folder: Path,
        policy: RetentionPolicy,
        repeats: Repeats,
        goals: tuple[bool, ...],
        ended: list[EndedTrial],
    ):
        self.folder, self.policy, self.repeats, self.goals = (
            SweepFolder(folder).trials,
            policy,
            repeats,
            goals,
        )
        self.store = store_of(folder)
        self.before_delete: Callable[[], None] = lambda: None
        self.freed = CleanupResult()
        self._ended = {trial[0]: trial for trial in ended}
        self._files: dict[
            int, dict[str, int]
        ] = {}  # sizes of checkpoints, by trial and name; an ended trial's folder is read only once
        self._deleted: dict[
            tuple[int, str], int
        ] = {}  # sizes of the deleted checkpoints, by trial and name
        self._thread = ThreadPoolExecutor(1, "checkpoints")

    @classmethod
    def of_study(cls, store: StudyStore, policy: RetentionPolicy) -> Self:
        """Create a cleaner that knows all trials of a study that have ended."""
        ended = [
            (
                state.number,
                state.trial.repeat_of,
                state.result,
                state.checkpoint.name if state.checkpoint else None,
            )
            for state in store.states.values()
            if state.has_ended
        ]
        return cls(store.folder, policy, store.space.repeats, store.objectives.goals, ended)

    def trial_ended(self, trial: EndedTrial) -> None:
        """Start to delete the checkpoints that are unnecessary now that a trial has ended.

        Call this method after the study has recorded the end of the trial. The method does not wait
        for the deletion.
        """
        self._thread.submit(self._clean, trial)

    def close(self) -> None:
        """Read all trial folders again, and wait until unnecessary checkpoints are deleted."""
        self._thread.submit(self._clean, None)
        self._thread.shutdown()

    def _clean(self, trial: EndedTrial | None) -> None:
        try:
            if trial is None:
                self._files.clear()
            else:
                self._ended[trial[0]] = trial
                self._files.pop(trial[0], None)
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
        ranking = rank_trials(
            Configurations.of((trial[:3] for trial in self._ended.values()), self.repeats),
            self.goals,
        )
        trials = [
            self._checkpoints_of(number, number in ranking.finished)
            for number, files in self._files.items()
            if files
        ]
        deletable = select_deletable(trials, ranking.ranked, ranking.protected, self.policy)
        if deletable and not dry_run:
            self.before_delete()
        for number, name in deletable:
            if not dry_run and not delete_checkpoint(
                f"{root_in(self.store, self.folder / format_trial_id(number))}/{name}"
            ):
                log.warning("checkpoint %s of trial %04d could not be deleted", name, number)
                continue
            self._deleted[number, name] = self._files[number].pop(name)
        left = sum(sum(files.values()) for files in self._files.values())
        return CleanupResult(
            len(self._deleted),
            len({number for number, _ in self._deleted}),
            sum(self._deleted.values()),
            left,
        )

    def _measure(self) -> None:
        """Read checkpoint sizes that are unknown, or may have changed because the trial runs."""
        if (
            self.store is not None and not self._files
        ):  # One listing of the whole store is faster than one for each trial.
            files: dict[int, dict[str, int]] = {}
            for path, size in open_store(f"{self.store}/trials").files().items():
                trial, _, name = path.partition("/")
                if trial.isdigit():
                    files.setdefault(int(trial), {})[name] = size
            self._files = {number: sizes_of_files(inside) for number, inside in files.items()}
            return
        known = set(self._files) | {
            int(folder.name) for folder in self.folder.glob("[0-9]*") if folder.name.isdigit()
        }
        for number in known | (set(self._ended) if self.store is not None else set()):
            if number not in self._ended or number not in self._files:
                self._files[number] = checkpoint_sizes(
                    root_in(self.store, self.folder / format_trial_id(number))
                )

    def _checkpoints_of(self, number: int, finished: bool) -> TrialCheckpoints:
        if number not in self._ended:
            return TrialCheckpoints(number, False, self._files[number])
        _, _, result, latest = self._ended[number]
        best = result.checkpoint.name if result.checkpoint else None
        return TrialCheckpoints(number, finished, self._files[number], best, latest)
