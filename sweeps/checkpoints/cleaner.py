"""Deletes checkpoints that a sweep need not keep: the files' side of `retention`."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from sweeps.checkpoints.retention import RetentionPolicy, TrialCheckpoints, rank_trials, select_deletable
from sweeps.core.checkpoint_files import remove, sizes
from sweeps.core.sweep_folder import SweepFolder
from sweeps.core.trial import Result, format_trial_id
from sweeps.space.section_models import Repeats
from sweeps.study.repeats import Configurations

log = logging.getLogger(__name__)

# (number, number of the trial that it repeats, how it stands, name of its latest checkpoint)
EndedTrial = tuple[int, int | None, Result, str | None]


@dataclass(frozen=True)
class CleanupResult:
    """What was deleted, or would be.

    Attributes:
        checkpoints: how many.
        trials: of how many trials.
        bytes: in all.
        left: bytes of the checkpoints that stay.
    """

    checkpoints: int = 0
    trials: int = 0
    bytes: int = 0
    left: int = 0

    def to_json(self) -> dict[str, Any]:
        """As it stands in `result.json`."""
        return asdict(self)


class CheckpointCleaner:
    """Keeps a running sweep to its rule, in a thread of its own: a large checkpoint takes a slow disk seconds.

    Args:
        folder: the sweep's.
        rule: what to keep.
        repeats: of each configuration.
        goals: for each objective whether smaller is better.
        known: trials that ended before this driver began.
    """

    def __init__(self, folder: Path, rule: RetentionPolicy, repeats: Repeats, goals: tuple[bool, ...], known: list[EndedTrial]):
        self.folder, self.rule, self.repeats, self.goals = SweepFolder(folder).trials, rule, repeats, goals
        self.freed = CleanupResult()
        self._known = {trial[0]: trial for trial in known}
        self._on_disk: dict[int, dict[str, int]] = {}  # what trials that have ended hold, if that was looked at
        self._poorer: set[int] = set()  # trials that something was deleted of
        self._thread = ThreadPoolExecutor(1, "checkpoints")

    def trial_ended(self, trial: EndedTrial) -> None:
        """A trial has ended, and this is on record: delete what need not be kept any more, some time soon."""
        self._thread.submit(self._clean, trial)

    def close(self) -> None:
        """Look at all of it once more, and wait until it is done."""
        self._thread.submit(self._clean, None)
        self._thread.shutdown()

    def _clean(self, trial: EndedTrial | None) -> None:
        try:
            if trial is None:
                self._on_disk.clear()
            else:
                self._known[trial[0]] = trial
                self._on_disk.pop(trial[0], None)
            if self.folder.is_dir():
                self._apply()
        except Exception:
            log.exception("checkpoints could not be deleted")

    def _apply(self) -> None:
        for folder in self.folder.iterdir():
            number = int(folder.name) if folder.name.isdigit() else None
            if number is not None and (number not in self._known or number not in self._on_disk):
                self._on_disk[number] = sizes(folder)
        now = rank_trials(Configurations.of((trial[:3] for trial in self._known.values()), self.repeats), self.goals)
        held = [self._files_of(number, number in now.finished) for number, files in self._on_disk.items() if files]
        for number, name in select_deletable(held, now.ranked, now.protected, self.rule):
            if not remove(self.folder / format_trial_id(number) / name):
                log.warning("checkpoint %s of trial %04d could not be deleted", name, number)
                continue
            self._poorer.add(number)
            size = self._on_disk[number].pop(name)
            self.freed = replace(
                self.freed, checkpoints=self.freed.checkpoints + 1, trials=len(self._poorer), bytes=self.freed.bytes + size
            )
        self.freed = replace(self.freed, left=sum(sum(files.values()) for files in self._on_disk.values()))

    def _files_of(self, number: int, over: bool) -> TrialCheckpoints:
        if number not in self._known:
            return TrialCheckpoints(number, False, self._on_disk[number])
        _, _, result, latest = self._known[number]
        return TrialCheckpoints(
            number, over, self._on_disk[number], Path(result.checkpoint.path).name if result.checkpoint else None, latest
        )
