"""Commands and paths in messages, as the user can type them."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from pathlib import Path

# The default folder of all sweeps, in the working directory.
DEFAULT_ROOT = "sweeps-runs"


def shell_command(name: str) -> str:
    """Return how to type a command of this environment: its name if the shell finds it, else its path, else `python -m NAME`."""
    if shutil.which(name):
        return name
    beside = Path(sys.executable).with_name(name)
    return shell_quoted(beside) if beside.exists() else f"{_python()} -m {name}"


def _python() -> str:
    """Return how to type the command of this interpreter."""
    here = Path(sys.executable)
    return here.name if shutil.which(here.name) == str(here) else shell_quoted(here)


def shell_quoted(path: Path) -> str:
    """Return a path quoted for a shell."""
    return shlex.quote(relative_path(path))


def relative_path(path: Path) -> str:
    """Return a path relative to the working directory if it lies there."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


# Escape sequences that only set a color, as the log of a loop may contain.
_COLOR = re.compile(r"(\x1b\[[0-9;]*m)")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str, colors: bool = False) -> str:
    r"""Escape the characters of a text that control the terminal, because a sweep's folder may come from a stranger.

    Control characters, bidirectional marks and lone surrogates become escapes. Line feeds and tabs stay.

    Args:
        text: The text to print.
        colors: Keep sequences that set a color.

    >>> printable("\x1b]0;title\x07")
    '\\x1b]0;title\\x07'
    """
    parts = _COLOR.split(text) if colors else [text]
    return "".join(part if i % 2 else _CONTROL.sub(lambda match: ascii(match[0])[1:-1], part) for i, part in enumerate(parts))


def repair_command(folder: Path) -> str:
    """Return the command that repairs a sweep's study."""
    return f"{shell_command('sweeps')} repair {shell_quoted(folder)}"


def resume_command(folder: Path) -> str:
    """Return the command that resumes a sweep."""
    return f"{shell_command('sweeps')} resume {shell_quoted(folder)}"
