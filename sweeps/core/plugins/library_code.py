"""Distinguish the code of Python and of installed packages from the user's code."""

import functools
import sys
import sysconfig
from pathlib import Path

INSTALLED = frozenset({"site-packages", "dist-packages"})


def is_library_file(file: Path) -> bool:
    """Return whether a module's file belongs to Python itself or to an installed package.

    The package may be in any environment on `sys.path`.
    """
    file = file.resolve()
    if not INSTALLED.isdisjoint(file.parts) or file == Path(sys.executable).resolve():
        return True
    return any(folder in file.parents for folder in _library_folders())


@functools.cache
def _library_folders() -> tuple[Path, ...]:
    """Return the folders of the standard library, commands, and installed packages behind links."""
    paths = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "scripts")]
    paths += [path for path in sys.path if Path(path).name in INSTALLED]
    return tuple({Path(path).resolve() for path in paths})
