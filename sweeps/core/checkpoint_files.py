"""List, measure and delete the checkpoints of one trial on disk."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

# Suffix of a checkpoint that is being deleted.
GONE = ".gone"


def step_of(name: str) -> int:
    """Return the step in the name of a checkpoint, such as `checkpoint_000012`; 0 if the name has no digits."""
    found = re.search(r"\d+", name)
    return int(found[0]) if found else 0


def newest_checkpoints(names: Iterable[str], latest: str | None, count: int) -> list[str]:
    """Return the names of a trial's newest complete checkpoints. The newest name comes first.

    Every checkpoint before `latest` is complete too, because a rank reports a step only after it has written all earlier checkpoints.

    Args:
        names: Names of the checkpoints in the trial's folder.
        latest: Name of the newest checkpoint that all ranks have written completely. None if there is none; the result is then empty.
        count: Largest number of names to return.
    """
    if latest is None or count < 1:
        return []
    whole = {name for name in names if not name.endswith(GONE) and step_of(name) < step_of(latest)} | ({latest} & set(names))
    return sorted(whole, key=step_of, reverse=True)[:count]


def checkpoint_sizes(folder: Path) -> dict[str, int]:
    """Return the size in bytes of each checkpoint in a trial's folder, by the checkpoint's name.

    Other processes may write or delete files meanwhile. If a file disappears before it is measured, it counts as 0 bytes.
    """
    found = {}
    for path in sorted(folder.glob("checkpoint_*")):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            if path.is_dir():
                found[path.name] = sum(_size(file) for file in path.rglob("*"))
    return found


def _size(file: Path) -> int:
    """Return the size of a regular file in bytes. Return 0 for anything else, and if the file no longer exists."""
    try:
        return file.stat().st_size if file.is_file() else 0
    except FileNotFoundError:
        return 0


def delete_checkpoint(path: Path) -> bool:
    """Delete a checkpoint's folder, and return True if the folder no longer exists.

    The folder is renamed before its files are deleted, so no reader finds an incomplete checkpoint.
    """
    gone = path.with_name(f"{path.name}{GONE}")
    if gone.exists():  # an earlier deletion was interrupted
        shutil.rmtree(gone, ignore_errors=True)
    try:
        path.rename(gone)
    except FileNotFoundError:
        pass
    except OSError:
        return False
    shutil.rmtree(gone, ignore_errors=True)
    return not gone.exists()
