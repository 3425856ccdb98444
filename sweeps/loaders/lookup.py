"""Find the paths that loaders read."""

import contextlib
import contextvars
from collections.abc import Iterator
from pathlib import Path

_base: contextvars.ContextVar[Path] = contextvars.ContextVar("base", default=Path())


@contextlib.contextmanager
def relative_to(folder: Path) -> Iterator[None]:
    """Within the `with` block, loaders look relative paths up in this folder first.

    They then look in the working directory.
    """
    token = _base.set(folder)
    try:
        yield
    finally:
        _base.reset(token)


def find(path: str) -> Path:
    """Return the path in the folder of `relative_to` if the path exists there.

    Otherwise, return the path relative to the working directory.
    """
    in_folder = _base.get() / path
    return in_folder if in_folder.exists() else Path(path)
