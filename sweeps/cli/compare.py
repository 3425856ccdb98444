"""The verb `compare`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from sweeps.cli import options
from sweeps.cli.group import main
from sweeps.core.text.shell_text import printable
from sweeps.terminal import terminal_text


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

    comparison = compare_sweeps(sweeps, root)
    if as_json:
        click.echo(json.dumps(comparison.to_json()))
    else:
        click.echo(printable(format_comparison(comparison, terminal_text.width_of(sys.stdout))))
