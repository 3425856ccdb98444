"""Commands as a user of this environment types them."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from pathlib import Path

# The root of all sweeps where none is named, in the working directory.
DEFAULT_ROOT = "sweeps-runs"


def shell_command(name: str) -> str:
    """Return how a command of this environment is typed: by its name where the shell finds it, else by its path, else as a module."""
    if shutil.which(name):
        return name
    beside = Path(sys.executable).with_name(name)
    return shell_quoted(beside) if beside.exists() else f"{_python()} -m {name}"


def _python() -> str:
    """How this interpreter is typed."""
    here = Path(sys.executable)
    return here.name if shutil.which(here.name) == str(here) else shell_quoted(here)


def shell_quoted(path: Path) -> str:
    """A path as it is typed in a shell."""
    return shlex.quote(relative_path(path))


def relative_path(path: Path) -> str:
    """Relative to the working directory where that is shorter."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


# Escape sequences that only set a colour, which a loop's own log may hold.
_COLOUR = re.compile(r"(\x1b\[[0-9;]*m)")
_ACTS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str, colours: bool = False) -> str:
    r"""Return a text without what a terminal acts on: names and values of a sweep's folder may be anyone's.

    Control characters, marks that turn the direction of writing, and lone surrogates become escapes; line feeds and tabs stay.

    Args:
        text: to be printed.
        colours: keep sequences that set a colour.

    >>> printable("\x1b]0;title\x07")
    '\\x1b]0;title\\x07'
    """
    parts = _COLOUR.split(text) if colours else [text]
    return "".join(part if i % 2 else _ACTS.sub(lambda found: ascii(found[0])[1:-1], part) for i, part in enumerate(parts))


def repair_command(folder: Path) -> str:
    """What rebuilds a sweep's study from what can be read of it."""
    return f"{shell_command('sweeps')} repair {shell_quoted(folder)}"


def resume_command(folder: Path) -> str:
    """What takes a sweep up again."""
    return f"{shell_command('sweeps')} resume {shell_quoted(folder)}"
