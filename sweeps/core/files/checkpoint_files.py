"""List, measure, copy and delete the checkpoints of one trial.

The checkpoints are on disk, or in the store of the sweep (see `sweeps.core.files.stores`). This
module takes a checkpoint, or the folder of a trial's checkpoints, as a path or as an address such
as `s3://bucket/churn-20260102-120000/trials/0007`.
"""

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from sweeps.core.errors import StoreError

from . import stores
from .atomic_files import write_atomically
from .stores import Store
from .sweep_folder import SweepFolder

# Suffix of the folder of a checkpoint that is being deleted.
DELETED_SUFFIX = ".gone"


def checkpoint_root(folder: Path, trial: str) -> str:
    """Return the folder of a trial's checkpoints.

    It is the trial's folder, or an address in the sweep's store.

    Args:
        folder: The sweep's folder.
        trial: The trial's id.
    """
    return checkpoint_root_in(stores.store_of(folder), SweepFolder(folder).trial(trial))


def checkpoint_place(folder: Path, trial: str, name: str) -> str:
    """Return the path or the address of a checkpoint.

    Args:
        folder: The sweep's folder.
        trial: The trial's id.
        name: Name of the checkpoint; see `sweeps.core.trial.Checkpoint`.
    """
    return f"{checkpoint_root(folder, trial)}/{name}"


def checkpoint_root_in(store: str | None, trial_folder: str | Path) -> str:
    """Return the folder of a trial's checkpoints, as `checkpoint_root` does, for a known store.

    Args:
        store: Address of the sweep's store; None if the sweep has no store.
        trial_folder: The trial's folder on disk.
    """
    return str(trial_folder) if store is None else f"{store}/trials/{Path(trial_folder).name}"


def _store(place: str | Path) -> Store | None:
    """Return the store at the address of a trial's folder or of a checkpoint.

    None if this is a path on disk.
    """
    return stores.open_store(str(place)) if stores.is_address(place) else None


def step_of(name: str) -> int:
    """Return the step in the name of a checkpoint, such as 12 for `checkpoint_000012`.

    Return 0 if the name has no digits.
    """
    match = re.search(r"\d+", name)
    return int(match[0]) if match else 0


def fold_folder(checkpoint: Path, number: int) -> Path:
    """Return the folder of a fold's model in a checkpoint of a cross-validation.

    Args:
        checkpoint: The checkpoint.
        number: Number of the fold, starting with 1.
    """
    return checkpoint / f"fold-{number}"


def newest_checkpoints(names: Iterable[str], latest: str | None, count: int) -> list[str]:
    """Return the names of a trial's newest complete checkpoints. The newest name comes first.

    Every checkpoint before `latest` is complete too, because a rank reports a step only after it
    has written all earlier checkpoints.

    Args:
        names: Names of the checkpoints in the trial's folder.
        latest: Name of the newest checkpoint that all ranks have written completely. None if there
            is none; the result is then empty.
        count: Largest number of names to return.
    """
    if latest is None or count < 1:
        return []
    complete = {
        name
        for name in names
        if name == latest or (not name.endswith(DELETED_SUFFIX) and step_of(name) < step_of(latest))
    }
    return sorted(complete, key=step_of, reverse=True)[:count]


def checkpoint_sizes(folder: str | Path) -> dict[str, int]:
    """Return the size in bytes of each checkpoint in a trial's folder, by the checkpoint's name.

    Other processes may write or delete files meanwhile. If a file disappears before it is measured,
    it counts as 0 bytes.
    """
    if store := _store(folder):
        return sizes_of_files(store.files())
    sizes = {}
    for path in sorted(Path(folder).glob("checkpoint_*")):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            if path.is_dir():
                sizes[path.name] = sum(_size(file) for file in path.rglob("*"))
    return sizes


def sizes_of_files(files: dict[str, int]) -> dict[str, int]:
    """Return the size of each checkpoint in a trial's folder, given the sizes of all its files.

    >>> sizes_of_files({"checkpoint_000001/a": 3, "checkpoint_000001/b/c": 4, "logs/rank-0.log": 9})
    {'checkpoint_000001': 7}
    """
    sizes: dict[str, int] = {}
    for name, size in sorted(files.items()):
        first, inside, _ = name.partition("/")
        if inside and first.startswith("checkpoint_"):
            sizes[first] = sizes.get(first, 0) + size
    return sizes


def checkpoint_names(folder: str | Path) -> list[str]:
    """Return the names of all checkpoints in a trial's folder, sorted. They may be incomplete."""
    if stores.is_address(folder):
        return sorted(checkpoint_sizes(folder))
    return sorted(path.name for path in Path(folder).glob("checkpoint_*"))


def checkpoint_exists(checkpoint: str | Path) -> bool:
    """Return whether a checkpoint exists. It may be incomplete."""
    if store := _store(checkpoint):
        return bool(store.files())
    return Path(checkpoint).is_dir()


def copy_checkpoint(source: str | Path, target: str) -> str:
    """Copy a checkpoint: on disk with hard links, or inside the store.

    On disk, `target` appears only when the copy is complete.

    Hard links are used because the driver's main thread waits for this copy, and copying 500 MB of
    data takes 0.3 s even from the page cache. Hard links are safe for two reasons. First, a hard
    link stays valid after the donor's checkpoint is deleted. Second, the files of a checkpoint are
    never modified. Ray, too, requires that training loops do not modify a checkpoint after they
    have reported it.

    Args:
        source: The checkpoint.
        target: The copy.

    Returns:
        `target`.

    Raises:
        FileNotFoundError: `source` does not exist.
    """
    if store := _store(source):
        target_store = stores.open_store(target)
        target_store.delete()
        store.copy_to(target_store)
        return target
    with write_atomically(Path(target)) as part:
        shutil.copytree(source, part, copy_function=_link)
    return target


def _link(source: str, target: str) -> None:
    """Create a hard link to a file.

    If this fails, for example because the file system has no hard links, copy the file.
    """
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def upload_checkpoint(source: Path, checkpoint: str) -> None:
    """Copy the files of a local folder to a checkpoint in the sweep's store.

    Raises:
        StoreError: The storage does not answer, or refuses the files.
    """
    stores.open_store(checkpoint).put(source)


@contextlib.contextmanager
def local_checkpoint(checkpoint: str | Path) -> Iterator[Path]:
    """Yield the local folder of a checkpoint.

    A checkpoint in a store is copied to a temporary folder, which exists within the block.

    Raises:
        FileNotFoundError: There is no such checkpoint.
        StoreError: The storage does not answer.
    """
    if not checkpoint_exists(checkpoint):
        raise FileNotFoundError(f"checkpoint {checkpoint} was deleted, so nothing can use it")
    if (store := _store(checkpoint)) is None:
        yield Path(checkpoint)
        return
    with tempfile.TemporaryDirectory(
        prefix="sweeps-checkpoint-", ignore_cleanup_errors=True
    ) as folder:
        store.get("", Path(folder))
        yield Path(folder)


def _size(file: Path) -> int:
    """Return the size of a regular file in bytes.

    Return 0 for anything else, and if the file no longer exists.
    """
    try:
        return file.stat().st_size if file.is_file() else 0
    except FileNotFoundError:
        return 0


def delete_checkpoint(checkpoint: str | Path) -> bool:
    """Delete a checkpoint, and return True if the checkpoint no longer exists.

    On disk, the folder is renamed before its files are deleted, so no reader finds an incomplete
    checkpoint.
    """
    if store := _store(checkpoint):
        try:
            store.delete()
        except StoreError:
            return False
        return True
    path = Path(checkpoint)
    gone = path.with_name(f"{path.name}{DELETED_SUFFIX}")
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
