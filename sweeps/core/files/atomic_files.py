"""Write files and folders whole or not at all.

The new content is written to `.NAME.part`, next to the final path, and then renamed. A reader sees
either the whole old content or the whole new content. If the writing process is killed, the `.part`
remains. `crash_cleanup.remove_partial_files` deletes such files.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def partial_path(path: Path) -> Path:
    """Return the path `.NAME.part`, where a file or folder is written before it is renamed."""
    return path.with_name(f".{path.name}.part")


def write_text(file: Path, text: str) -> None:
    """Write a text file in UTF-8, whole or not at all."""
    write_bytes(file, text.encode())


def write_bytes(file: Path, data: bytes, sync: bool = False) -> None:
    """Write a file, whole or not at all.

    If the path of the file or of its `.part` is a symbolic link, the link itself is replaced. The
    link's target stays unchanged.

    Args:
        file: The file to write.
        data: The new content.
        sync: True to force the content to the disk before the rename. The content then survives a
            crash of the machine.
    """
    with write_atomically(file) as part, open(part, "xb") as opened:
        opened.write(data)
        if sync:
            opened.flush()
            os.fsync(opened.fileno())


@contextmanager
def write_atomically(target: Path) -> Iterator[Path]:
    """Write a file or a folder in a `with` block, whole or not at all.

    Yields:
        The temporary path to write to, which does not exist yet. If the block ends without an
        error, this file or folder replaces `target`. Otherwise it is deleted, and `target` stays
        unchanged.
    """
    part = partial_path(target)
    remove(part)
    try:
        yield part
        if part.is_dir():
            remove(target)
        part.rename(target)
    finally:
        remove(part)


def remove(path: Path) -> None:
    """Delete a file or a folder if it exists.

    If the path is a symbolic link, only the link is deleted.
    """
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
