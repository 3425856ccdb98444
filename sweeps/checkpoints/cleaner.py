"""Delete checkpoints that a running sweep need not keep. `retention` decides which ones."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from sweeps.checkpoints.retention import RetentionPolicy, TrialCheckpoints, rank_trials, select_deletable
from sweeps.core.checkpoint_files import checkpoint_sizes, delete_checkpoint
from sweeps.core.sweep_folder import SweepFolder
from sweeps.core.trial import Result, format_trial_id
from sweeps.space.section_models import Repeats
from sweeps.study.repeats import Configurations

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

    def to_json(self) -> dict[str, Any]:
        """Return the fields as `result.json` stores them."""
        return asdict(self)


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
        self._reduced: set[int] = set()  # trials that lost a checkpoint
        self._thread = ThreadPoolExecutor(1, "checkpoints")

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
            if self.folder.is_dir():
                self._apply()
        except Exception:
            log.exception("checkpoints could not be deleted")

    def _apply(self) -> None:
        for folder in self.folder.iterdir():
            number = int(folder.name) if folder.name.isdigit() else None
            if number is not None and (number not in self._ended or number not in self._files):
                self._files[number] = checkpoint_sizes(folder)
        ranking = rank_trials(Configurations.of((trial[:3] for trial in self._ended.values()), self.repeats), self.goals)
        trials = [self._checkpoints_of(number, number in ranking.finished) for number, files in self._files.items() if files]
        for number, name in select_deletable(trials, ranking.ranked, ranking.protected, self.policy):
            if not delete_checkpoint(self.folder / format_trial_id(number) / name):
                log.warning("checkpoint %s of trial %04d could not be deleted", name, number)
                continue
            self._reduced.add(number)
            size = self._files[number].pop(name)
            self.freed = replace(
                self.freed, checkpoints=self.freed.checkpoints + 1, trials=len(self._reduced), bytes=self.freed.bytes + size
            )
        self.freed = replace(self.freed, left=sum(sum(files.values()) for files in self._files.values()))

    def _checkpoints_of(self, number: int, finished: bool) -> TrialCheckpoints:
        if number not in self._ended:
            return TrialCheckpoints(number, False, self._files[number])
        _, _, result, latest = self._ended[number]
        best = Path(result.checkpoint.path).name if result.checkpoint else None
        return TrialCheckpoints(number, finished, self._files[number], best, latest)
