"""Format commands about a sweep for messages, so that the user can copy them into a shell."""

import shlex
from pathlib import Path

from sweeps.core.files.stores import recorded_store

from .shell_text import shell_command, shell_quoted


def repair_command(folder: Path) -> str:
    """Return the command that repairs a sweep's study."""
    return f"{shell_command('sweeps')} repair {shell_quoted(folder)}"


def resume_command(folder: Path) -> str:
    """Return the command that resumes a sweep."""
    return f"{shell_command('sweeps')} resume {sweep_argument(folder)}"


def sweep_argument(folder: Path) -> str:
    """Return how a user names a sweep: the address of its store if it has one, else its folder."""
    store = recorded_store(folder)
    return shlex.quote(store) if store else shell_quoted(folder)
