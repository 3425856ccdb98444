"""Delete unnecessary checkpoints of a sweep that does not run: `sweeps gc`."""

from __future__ import annotations

from pathlib import Path

from sweeps.checkpoints.cleaner import CheckpointCleaner, CleanupResult
from sweeps.checkpoints.retention import RetentionPolicy
from sweeps.core.errors import InputError, Problem
from sweeps.core.folder_lock import FolderLock
from sweeps.core.sweep_folder import refuse_links
from sweeps.space import value_types
from sweeps.space.saved_space import saved_space
from sweeps.study.study_store import StudyStore


def collect_garbage(folder: Path, policy: RetentionPolicy, dry_run: bool = False) -> CleanupResult:
    """Delete the checkpoints that a policy does not keep.

    Trials that can be resumed keep all their checkpoints. The best trial, or the Pareto front, keeps its best checkpoints.

    Args:
        folder: folder of the sweep.
        policy: the checkpoints to keep.
        dry_run: delete nothing.

    Returns:
        The checkpoints that were deleted, or would be.

    Raises:
        InputError: the folder is not a sweep's folder.
        SweepLocked: the sweep runs.
    """
    space, _ = saved_space(folder)
    refuse_links(folder)
    with FolderLock(folder):
        return CheckpointCleaner.of_study(StudyStore(folder, space), policy).clean(dry_run)


def parse_size(text: str) -> int:
    """Convert a size such as `10GB` to bytes.

    Raises:
        InputError: the text is not a size.
    """
    try:
        return value_types.size(text)
    except ValueError:
        raise InputError(Problem("--max-disk", f"`{text}` is not a size; write it as 500MB or 10GB")) from None
