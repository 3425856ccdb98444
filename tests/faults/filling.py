"""Fill a disk, at once or at a chosen point."""

from __future__ import annotations

import contextlib
import importlib
import os
from pathlib import Path
from typing import Any

import pytest


def fill(disk: Path, leave: int = 0) -> Path:
    """Fill a disk except for some bytes, and return the path of the file that fills the disk."""
    filler = disk / "filler"
    with open(filler, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    if leave:
        os.truncate(filler, max(0, filler.stat().st_size - leave))
    return filler


def fill_before(target: str, disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Patch a function, given as `module:function`, so that it fills the disk before it does its
    work.
    """
    module, _, name = target.partition(":")
    owner: Any = importlib.import_module(module)
    whole = getattr(owner, name)

    def latched(*args: Any, **kwargs: Any) -> Any:
        fill(disk)
        return whole(*args, **kwargs)

    monkeypatch.setattr(owner, name, latched)
