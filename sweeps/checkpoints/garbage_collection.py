"""Delete unnecessary checkpoints of a sweep that is not running, as `sweeps gc` does."""

from pathlib import Path

from sweeps.core.errors import InputError
from sweeps.core.files.folder_lock import FolderLock
from sweeps.core.files.sweep_folder import refuse_other_entries
from sweeps.space.parse import value_types
from sweeps.space.python.saved_space import saved_space
from sweeps.space.sections.search_models import Checkpoints
from sweeps.study.study_store import StudyStore

from .cleaner import CheckpointCleaner, CleanupResult


def collect_garbage(folder: Path, policy: Checkpoints, dry_run: bool = False) -> CleanupResult:
    """Delete the checkpoints that a policy does not keep.

    Trials that can be resumed keep all their checkpoints. The best trial always keeps its best
    checkpoint. With several objectives, every trial on the Pareto front keeps its best checkpoint.

    Args:
        folder: Folder of the sweep.
        policy: Rule that says which checkpoints are kept.
        dry_run: True to delete nothing, and only compute the result.

    Returns:
        Number and size of the checkpoints that were deleted. With `dry_run`, these are the
        checkpoints that would be deleted.

    Raises:
        InputError: The folder is not a sweep's folder.
        SweepLocked: The sweep is running.
    """
    space, _ = saved_space(folder)
    refuse_other_entries(folder)
    with FolderLock(folder):
        return CheckpointCleaner(StudyStore(folder, space), policy).clean(dry_run)


def parse_size(text: str) -> int:
    """Convert a size such as `10GB` to bytes.

    Raises:
        InputError: The text is not a size.
    """
    try:
        return value_types.size(text)
    except ValueError:
        raise InputError(
            "--max-disk",
            f"`{text}` is not a size; write a number with a unit, such as 500MB or 10GB",
        ) from None
