"""Run `sweeps` with a disk that becomes full at a chosen point: `python -m tests.faults.filling
TARGET DISK ARGS...`.

TARGET is a function that is called before something is written, as `module:function`.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from pathlib import Path
from typing import Any


def fill(disk: Path, leave: int = 0) -> Path:
    """Fill a disk except for some bytes, and return the path of the file that fills the disk."""
    filler = disk / "filler"
    with open(filler, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    if leave:
        os.truncate(filler, max(0, filler.stat().st_size - leave))
    return filler


def arm(target: str, disk: Path) -> None:
    """Patch the function so that it fills the disk before it does its work."""
    module, _, name = target.partition(":")
    owner: Any = importlib.import_module(module)
    whole = getattr(owner, name)

    def latched(*args: Any, **kwargs: Any) -> Any:
        fill(disk)
        return whole(*args, **kwargs)

    setattr(owner, name, latched)


def main() -> None:
    from sweeps.core import logging_setup

    logging_setup.set_environment()
    arm(sys.argv[1], Path(sys.argv[2]))
    from sweeps import cli

    sys.argv = ["sweeps", *sys.argv[3:]]
    cli.main()


if __name__ == "__main__":
    main()
