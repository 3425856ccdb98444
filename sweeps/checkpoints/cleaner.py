"""Delete checkpoints that a running sweep need not keep. `retention` decides which ones."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from sweeps.checkpoints.retention import RetentionPolicy, TrialCheckpoints, rank_trials, select_deletable
from sweeps.core.checkpoint_files import checkpoint_sizes, delete_checkpoint
from sweeps.core.sweep_folder import SweepFolder
from sweeps.core.trial import Result, State, format_trial_id
from sweeps.space.section_models import Repeats
from sweeps.study.repeats import Configurations
from sweeps.study.study_store import StudyStore

log = logging.getLogger(__name__)

# An ended trial: (number, number of the trial that it repeats, result, name of its latest checkpoint)
EndedTrial = tuple[int, int | None, Result, str | None]


@dataclass(frozen=True)
class CleanupResult:
    """Checkpoints that were deleted, or that a dry run would delete.

    Attributes:
        checkpoints: number of deleted checkpoints.
        trials: number of trials that lost a checkpoint.
        bytes: total size of the deleted checkpoints.
        left: total size in bytes of the checkpoints that stay.
    """

    checkpoints: int = 0
    trials: int = 0
    bytes: int = 0
    left: int = 0


class CheckpointCleaner:
    """Apply a retention policy while the sweep runs.

    The work happens in a thread of its own, because a slow disk takes seconds to delete a large checkpoint.

    Args:
        folder: folder of the sweep.
        policy: the checkpoints to keep.
        repeats: the repeats of each configuration.
        goals: for each objective, whether it is minimized.
        ended: trials that ended before this driver started.

    Attributes:
        freed: the checkpoints deleted so far.
    """

    def __init__(self, folder: Path, policy: RetentionPolicy, repeats: Repeats, goals: tuple[bool, ...], ended: list[EndedTrial]):
        self.folder, self.policy, self.repeats, self.goals = SweepFolder(folder).trials, policy, repeats, goals
        self.freed = CleanupResult()
        self._ended = {trial[0]: trial for trial in ended}
        self._files: dict[int, dict[str, int]] = {}  # sizes of checkpoints by trial; an ended trial is read only once
        self._deleted: dict[tuple[int, str], int] = {}  # sizes of the deleted checkpoints, by trial and name
        self._thread = ThreadPoolExecutor(1, "checkpoints")

    @classmethod
    def of_study(cls, store: StudyStore, policy: RetentionPolicy) -> Self:
        """Return a cleaner that knows all ended trials of a study."""
        configurations, saved = store.configurations(), store.saved()
        origins = {n: first for first, trials in configurations.trials.items() for n, _ in trials if n != first}
        ended = [(n, origins.get(n), r, saved[n][1]) for n, r in store.results().items() if r.state is not State.RUNNING]
        return cls(store.folder, policy, configurations.repeats, store.objectives.goals, ended)

    def trial_ended(self, trial: EndedTrial) -> None:
        """Delete the checkpoints that are unnecessary now. Call this after the study has recorded the end of the trial."""
        self._thread.submit(self._clean, trial)

    def close(self) -> None:
        """Read the folder once more, delete what is unnecessary, and wait until this is done."""
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
            dry_run: delete nothing.

        Returns:
            the checkpoints deleted so far, or that would be.
        """
        for folder in self.folder.glob("[0-9]*"):
            if folder.name.isdigit() and (int(folder.name) not in self._ended or int(folder.name) not in self._files):
                self._files[int(folder.name)] = checkpoint_sizes(folder)
        ranking = rank_trials(Configurations.of((trial[:3] for trial in self._ended.values()), self.repeats), self.goals)
        trials = [self._checkpoints_of(number, number in ranking.finished) for number, files in self._files.items() if files]
        for number, name in select_deletable(trials, ranking.ranked, ranking.protected, self.policy):
            if not dry_run and not delete_checkpoint(self.folder / format_trial_id(number) / name):
                log.warning("checkpoint %s of trial %04d could not be deleted", name, number)
                continue
            self._deleted[number, name] = self._files[number].pop(name)
        left = sum(sum(files.values()) for files in self._files.values())
        return CleanupResult(len(self._deleted), len({number for number, _ in self._deleted}), sum(self._deleted.values()), left)

    def _checkpoints_of(self, number: int, finished: bool) -> TrialCheckpoints:
        if number not in self._ended:
            return TrialCheckpoints(number, False, self._files[number])
        _, _, result, latest = self._ended[number]
        best = Path(result.checkpoint.path).name if result.checkpoint else None
        return TrialCheckpoints(number, finished, self._files[number], best, latest)
