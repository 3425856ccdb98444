"""Write the files of `sweeps init`, and check that the space file is valid."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sweeps.core.atomic_files import write_text
from sweeps.core.errors import InputError, Problem


def refuse_existing(paths: list[Path], force: bool) -> None:
    """Raise an InputError if one of the files exists, unless `force` is true."""
    existing = [path for path in paths if path.exists()]
    if existing and not force:
        names = ", ".join(map(str, existing))
        raise InputError(
            Problem(names, "already exists; name another FILE, or overwrite the file with --force")
        )


def write_files(texts: Mapping[Path, str], force: bool) -> None:
    """Write files. Missing folders are made.

    Raises:
        InputError: a file exists and `force` is false, or a file cannot be written.
    """
    refuse_existing(list(texts), force)
    for path, text in texts.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, text)
        except OSError as e:
            raise InputError(Problem(str(path), f"cannot be written: {e.strerror or e}")) from None
