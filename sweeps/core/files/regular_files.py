"""Read files of a sweep's folder.

Another user may have made the folder, so a file's place may hold a link, a pipe or a folder.
"""

import os
import stat
from pathlib import Path

from sweeps.core.errors import Problem, UnreadableFile

_KINDS = {
    stat.S_IFREG: "a file",
    stat.S_IFDIR: "a folder",
    stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}
FILE = _KINDS[stat.S_IFREG]
FOLDER = _KINDS[stat.S_IFDIR]


def kind_of(path: str | Path) -> str | None:
    """Return what a path holds, such as `FILE`, "a link" or "a pipe". Links are not followed.

    Return None if there is nothing.
    """
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return None
    return _KINDS.get(stat.S_IFMT(mode), "a device")


def refuse_other_kind(path: str | Path, wanted: str = FILE) -> None:
    """Raise an error if a path holds anything but the wanted kind.

    A path that holds nothing is allowed.

    Args:
        path: The path.
        wanted: `FILE` or `FOLDER`.

    Raises:
        UnreadableFile: The path holds another kind.
    """
    if (kind := kind_of(path)) not in (None, wanted):
        raise _other_kind(path, kind, wanted)


def _other_kind(path: str | Path, kind: str | None, wanted: str = FILE) -> UnreadableFile:
    """Return the error to raise for a path that holds `kind` in place of the wanted kind."""
    rule = (
        f"but must be {wanted} inside the sweep's folder; move it away, or restore the original "
        "from a backup"
    )
    return UnreadableFile(Problem(str(path), f"is {kind}, {rule}"))


def open_regular(path: str | Path, flags: int) -> int:
    """Open a regular file, and return its descriptor.

    Pass this function to Python's `open` as the argument `opener`.

    A link is not followed, because it may lead out of the sweep's folder. Opening a pipe does not
    block.

    Raises:
        UnreadableFile: The path holds anything but a regular file.
        OSError: The file does not exist, or cannot be opened.
    """
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError:
        refuse_other_kind(path)
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _other_kind(path, kind_of(path))
    return descriptor


def read_bytes(file: Path) -> bytes:
    """Return the content of a regular file.

    Raises:
        UnreadableFile: The path holds anything but a regular file, or the file cannot be read.
        FileNotFoundError: The file does not exist.
    """
    try:
        with open(file, "rb", opener=open_regular) as opened:
            return opened.read()
    except FileNotFoundError:
        raise
    except OSError as e:
        raise unreadable(file, e) from e


def unreadable(file: str | Path, error: OSError) -> UnreadableFile:
    """Return the error to raise for a file that cannot be read."""
    hint = "check the permissions of the file and of its folder"
    return UnreadableFile(Problem(str(file), f"cannot be read: {error.strerror}; {hint}"))
