"""Commands as a user of this environment types them."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

# The root of all sweeps where none is named, in the working directory.
DEFAULT_ROOT = "sweeps-runs"


def typed(name: str) -> str:
    """Return how a command of this environment is typed: by its name where the shell finds it, else by its path, else as a module."""
    if shutil.which(name):
        return name
    beside = Path(sys.executable).with_name(name)
    return quoted(beside) if beside.exists() else f"{_python()} -m {name}"


def _python() -> str:
    """How this interpreter is typed."""
    here = Path(sys.executable)
    return here.name if shutil.which(here.name) == str(here) else quoted(here)


def quoted(path: Path) -> str:
    """A path as it is typed in a shell."""
    return shlex.quote(short(path))


def short(path: Path) -> str:
    """Relative to the working directory where that is shorter."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def repair_of(folder: Path) -> str:
    """What rebuilds a sweep's study from what can be read of it."""
    return f"{typed('sweeps')} repair {quoted(folder)}"


def resume_of(folder: Path) -> str:
    """What takes a sweep up again."""
    return f"{typed('sweeps')} resume {quoted(folder)}"
