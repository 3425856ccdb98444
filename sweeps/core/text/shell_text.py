"""Format commands, paths and foreign texts, so that a terminal shows them safely."""

import re
import shlex
import shutil
import sys
from pathlib import Path

# The default folder of all sweeps, in the working directory.
DEFAULT_ROOT = "sweeps-runs"


def shell_command(name: str) -> str:
    """Return what a user must type to run a command of this Python environment, such as `sweeps`.

    This is the command's name if the shell finds a command of this name, else the command's path.
    If the environment has no such command, it is `python -m NAME`.
    """
    if shutil.which(name):
        return name
    beside = Path(sys.executable).with_name(name)
    if beside.exists():
        return shell_quoted(beside)
    return f"{shell_quoted(Path(sys.executable))} -m {name}"


def shell_quoted(path: Path) -> str:
    """Return a path as text that is quoted for a shell.

    A path in the working directory is made relative.
    """
    return shlex.quote(relative_path(path))


def relative_path(path: Path) -> str:
    """Return a path as text.

    A path in the working directory is made relative; other paths stay unchanged.
    """
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


# Escape sequences that only set a color. The log of a training loop may contain such sequences.
_COLOR = re.compile(r"(\x1b\[[0-9;]*m)")
_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


def printable(text: str, colors: bool = False) -> str:
    r"""Return a text that is safe to print: its characters cannot control the terminal.

    The text may come from a stranger's file.

    Control characters, bidirectional marks, Unicode's separators of lines and paragraphs, and lone
    surrogates become escapes. Line feeds and tabs are not escaped.

    Args:
        text: The text to print.
        colors: True to keep those escape sequences that only set a color.

    >>> printable("\x1b]0;title\x07")
    '\\x1b]0;title\\x07'
    """
    parts = _COLOR.split(text) if colors else [text]
    return "".join(
        # The parts with an odd index are color sequences.
        part if i % 2 else _CONTROL.sub(lambda match: ascii(match[0])[1:-1], part)
        for i, part in enumerate(parts)
    )
