"""The verb `compare`."""

import functools
import sys
from pathlib import Path

import click

from sweeps.terminal import terminal_text

from . import options
from .group import main


@main.command(short_help="Compare sweeps side by side.")
@click.argument("sweeps", metavar="SWEEP...", nargs=-1, required=True)
@options.as_json
@options.stored_root
def compare(sweeps: tuple[str, ...], as_json: bool, root: Path | str) -> None:
    """Compare sweeps: best values, regret, spaces, importances and best configurations.

    Each SWEEP is a folder, a name, the beginning of a name, or `latest`. ROOT/NAME is a sweep in
    another root folder.
    """
    from sweeps.stored.sweep_comparison import compare_sweeps
    from sweeps.terminal.comparison_text import format_comparison

    text = functools.partial(format_comparison, width=terminal_text.width_of(sys.stdout))
    options.echo(compare_sweeps(sweeps, root), as_json, text)
