"""Delete unnecessary checkpoints of a sweep that does not run: `sweeps gc`."""

from __future__ import annotations

from pathlib import Path

from sweeps.checkpoints.cleaner import CleanupResult
from sweeps.checkpoints.retention import RetentionPolicy, TrialCheckpoints, rank_trials, select_deletable
from sweeps.core.checkpoint_files import checkpoint_sizes, delete_checkpoint
from sweeps.core.errors import InputError, Problem
from sweeps.core.sweep_folder import SweepFolder, refuse_links
from sweeps.space import value_types


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
    from sweeps.core.folder_lock import FolderLock
    from sweeps.space.saved_space import saved_space
    from sweeps.study.study_store import StudyStore

    space, _ = saved_space(folder)
    refuse_links(folder)
    lock = FolderLock(folder)
    try:
        study_store, sweep_folder = StudyStore(folder, space), SweepFolder(folder)
        ranking = rank_trials(study_store.configurations(), study_store.objectives.goals)
        files = {n: checkpoint_sizes(sweep_folder.trial(n)) for n in study_store.results()}
        saved = study_store.saved()
        trials = [TrialCheckpoints(n, n in ranking.finished, own, *saved[n]) for n, own in files.items()]
        deleted = select_deletable(trials, ranking.ranked, ranking.protected, policy)
        if not dry_run:
            deleted = [(n, name) for n, name in deleted if delete_checkpoint(sweep_folder.trial(n) / name)]
        size = sum(files[n][name] for n, name in deleted)
        total = sum(sum(own.values()) for own in files.values())
        return CleanupResult(len(deleted), len({n for n, _ in deleted}), size, total - size)
    finally:
        lock.release()


def parse_size(text: str) -> int:
    """Convert a size such as `10GB` to bytes.

    Raises:
        InputError: the text is not a size.
    """
    try:
        return value_types.size(text)
    except ValueError:
        raise InputError(Problem("--max-disk", f"`{text}` is not a size; write it as 500MB or 10GB")) from None
