"""`sweeps gc`: delete the checkpoints that nothing needs any more of a sweep that does not run."""

from __future__ import annotations

from pathlib import Path

from sweeps.checkpoints.cleaner import CleanupResult
from sweeps.checkpoints.retention import RetentionPolicy, TrialCheckpoints, rank_trials, select_deletable
from sweeps.core.checkpoint_files import remove, sizes
from sweeps.core.errors import InputError, Problem
from sweeps.core.sweep_folder import SweepFolder, refuse_links
from sweeps.space import value_types


def collect_garbage(folder: Path, rule: RetentionPolicy, dry_run: bool = False) -> CleanupResult:
    """Delete checkpoints by a rule.

    Args:
        folder: the sweep's.
        rule: what to keep; trials that can be resumed, and the best one or the front, keep theirs in any case.
        dry_run: delete nothing.

    Raises:
        InputError: no such sweep.
        SweepLocked: the sweep runs.
    """
    from sweeps.core.folder_lock import FolderLock
    from sweeps.search.study_store import StudyStore
    from sweeps.space.saved_space import saved_space

    space, _ = saved_space(folder)
    refuse_links(folder)
    lock = FolderLock(folder)
    try:
        ledger = StudyStore(folder, space)
        now = rank_trials(ledger.configurations(), ledger.judge.goals)
        on_disk = {n: sizes(SweepFolder(folder).trial(n)) for n in ledger.results()}
        saved = ledger.saved()
        held = [TrialCheckpoints(n, n in now.finished, files, *saved[n]) for n, files in on_disk.items()]
        gone = select_deletable(held, now.ranked, now.protected, rule)
        if not dry_run:
            gone = [(n, name) for n, name in gone if remove(SweepFolder(folder).trial(n) / name)]
        size = sum(on_disk[n][name] for n, name in gone)
        total = sum(sum(files.values()) for files in on_disk.values())
        return CleanupResult(len(gone), len({n for n, _ in gone}), size, total - size)
    finally:
        lock.release()


def parse_size(text: str) -> int:
    """`10GB` as bytes.

    Raises:
        InputError: it is no size.
    """
    try:
        return value_types.size(text)
    except ValueError:
        raise InputError(Problem("--max-disk", f"`{text}` is no size; write it as 500MB or 10GB")) from None
