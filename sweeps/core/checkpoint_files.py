"""The checkpoints of one trial on disk: which are its newest, how large they are, and how one is deleted."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

# Behind the name of a checkpoint that is being deleted.
GONE = ".gone"


def step_of(name: str) -> int:
    """Return the step in a checkpoint's name, `checkpoint_000012`; 0 if the name has none."""
    found = re.search(r"\d+", name)
    return int(found[0]) if found else 0


def newest_checkpoints(names: Iterable[str], latest: str | None, count: int) -> list[str]:
    """Return the newest whole checkpoints of a trial, the newest first.

    A rank that reports step n has written its checkpoints of all earlier steps. So every checkpoint up to `latest` is whole.

    Args:
        names: names in the trial's folder.
        latest: the newest checkpoint that every rank has written; None if there is none.
        count: return at most this many.
    """
    if latest is None or count < 1:
        return []
    whole = {name for name in names if not name.endswith(GONE) and step_of(name) < step_of(latest)} | ({latest} & set(names))
    return sorted(whole, key=step_of, reverse=True)[:count]


def checkpoint_sizes(folder: Path) -> dict[str, int]:
    """The bytes of each checkpoint in a trial's folder, by name; others may be writing and deleting there."""
    found = {}
    for path in sorted(folder.glob("checkpoint_*")):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            if path.is_dir():
                found[path.name] = sum(_size(file) for file in path.rglob("*"))
    return found


def _size(file: Path) -> int:
    try:
        return file.stat().st_size if file.is_file() else 0
    except FileNotFoundError:
        return 0


def delete_checkpoint(path: Path) -> bool:
    """Delete a checkpoint; False if it cannot be. Under its name it is there whole or not at all, also for who looks meanwhile."""
    gone = path.with_name(f"{path.name}{GONE}")
    if gone.exists():  # an earlier deletion was cut short
        shutil.rmtree(gone, ignore_errors=True)
    try:
        path.rename(gone)
    except FileNotFoundError:
        pass
    except OSError:
        return False
    shutil.rmtree(gone, ignore_errors=True)
    return not gone.exists()
