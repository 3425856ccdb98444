"""Find the paths and the libraries that loaders need."""

from __future__ import annotations

import contextlib
import contextvars
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
    """Return the path beside the space file if it exists there.

    Else the path relative to the working directory.
    """
    beside = _base.get() / path
    return beside if beside.exists() else Path(path)


def library(name: str, package: str | None = None) -> Any:
    """Import a library that only some sources need.

    Raises:
        ValueError: The library is not installed.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as e:
        raise ValueError(
            f"needs the package `{package or name}`; install it with: pip install "
            '"sweeps-ray[sources]"'
        ) from e
